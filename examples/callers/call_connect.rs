//! Calls agents over the Agent Connect Protocol.
#![expect(clippy::print_stdout, reason = "the texts are what was asked for")]

use trilogue_sdk::client::connect::{Client, NewRun, Resume, RunOutput, ThreadCreate};
use trilogue_sdk::client::{ClientError, HttpTransport};

fn client(url: &str, token: &str) -> Result<Client, ClientError> {
    let address = format!("{url}/connect");
    Ok(Client::from_http(HttpTransport::to(&address)?.token(token)))
}

async fn start(client: &Client) -> Result<(), ClientError> {
    let response = client.run_and_wait(NewRun::new("counter", "Hello")).await?;
    println!("{}", response.text());
    Ok(())
}

async fn stream(client: &Client) -> Result<(), ClientError> {
    let mut events = client.run_stream(NewRun::new("counter", "Hello")).await?;
    let mut shown = String::new();
    while let Some(event) = events.next().await? {
        let Some(text) = event.text() else { continue };
        print!("{}", text.strip_prefix(&shown).unwrap_or(&text));
        shown = text;
    }
    println!();
    Ok(())
}

async fn answer(client: &Client) -> Result<(), ClientError> {
    let response = client.run_and_wait(NewRun::new("cleaner", "Clean up!")).await?;
    if let (Some(run), Some(RunOutput::Interrupt(question))) = (response.run, response.output) {
        println!("{}", question.interrupt.as_str());
        client.resume(run.run_id.as_str(), Resume::new("allow")).await?;
        println!("{}", client.wait(run.run_id).await?.text());
    }
    Ok(())
}

async fn continue_thread(client: &Client) -> Result<(), ClientError> {
    let thread = client.create_thread(&ThreadCreate::default()).await?.thread_id;
    client.run_and_wait(NewRun::new("counter", "Hello").on_thread(&thread)).await?;
    let new = NewRun::new("counter", "Again").on_thread(&thread);
    println!("{}", client.run_and_wait(new).await?.text());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, token] = arguments.as_slice() else {
        return Err(ClientError::Unexpected("usage: call_connect URL TOKEN".to_owned()));
    };
    let client = client(url, token)?;
    start(&client).await?;
    stream(&client).await?;
    answer(&client).await?;
    continue_thread(&client).await
}
