//! Calls agents over `/api/v1`.
#![expect(clippy::print_stdout, reason = "the texts are what was asked for")]

use trilogue_sdk::client::wire::{AnswerCreate, ThreadCreate};
use trilogue_sdk::client::{Client, ClientError, HttpTransport, NewRun};

fn client(url: &str, token: &str) -> Result<Client, ClientError> {
    Ok(Client::from_http(HttpTransport::to(url)?.token(token)))
}

async fn start(client: &Client) -> Result<(), ClientError> {
    let run = client.run_and_wait(NewRun::new("counter", "Hello")).await?;
    println!("{}", run.text());
    Ok(())
}

async fn stream(client: &Client) -> Result<(), ClientError> {
    let mut events = client.stream_run(NewRun::new("counter", "Hello")).await?;
    while let Some(item) = events.next().await? {
        print!("{}", item.text().unwrap_or_default());
    }
    println!();
    Ok(())
}

async fn answer(client: &Client) -> Result<(), ClientError> {
    let run = client.run_and_wait(NewRun::new("cleaner", "Clean up!")).await?;
    for question in run.interrupts.iter().flatten() {
        println!("{}", question.text());
        client.answer(&question.id, &AnswerCreate::option("allow")).await?;
    }
    println!("{}", client.wait_for_run(&run.id).await?.text());
    Ok(())
}

async fn continue_thread(client: &Client) -> Result<(), ClientError> {
    let thread = client.create_thread(&ThreadCreate::default()).await?.id;
    client.run_and_wait(NewRun::new("counter", "Hello").on_thread(&thread)).await?;
    let run = client.run_and_wait(NewRun::new("counter", "Again").on_thread(&thread)).await?;
    println!("{}", run.text());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, token] = arguments.as_slice() else {
        return Err(ClientError::Unexpected("usage: call_native URL TOKEN".to_owned()));
    };
    let client = client(url, token)?;
    start(&client).await?;
    stream(&client).await?;
    answer(&client).await?;
    continue_thread(&client).await
}
