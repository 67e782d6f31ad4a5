//! Calls agents over the Agent Communication Protocol.
#![expect(clippy::print_stdout, reason = "the texts are what was asked for")]

use trilogue_sdk::client::communication::{Client, NewRun, Session};
use trilogue_sdk::client::{ClientError, HttpTransport};

fn client(url: &str, token: &str) -> Result<Client, ClientError> {
    let address = format!("{url}/communication");
    Ok(Client::from_http(HttpTransport::to(&address)?.token(token)))
}

async fn start(client: &Client) -> Result<(), ClientError> {
    let run = client.run_sync(NewRun::new("counter", "Hello")).await?;
    println!("{}", run.text());
    Ok(())
}

async fn stream(client: &Client) -> Result<(), ClientError> {
    let mut events = client.run_stream(NewRun::new("counter", "Hello")).await?;
    while let Some(event) = events.next().await? {
        print!("{}", event.text().unwrap_or_default());
    }
    println!();
    Ok(())
}

async fn answer(client: &Client) -> Result<(), ClientError> {
    let run = client.run_sync(NewRun::new("cleaner", "Clean up!")).await?;
    if let Some(question) = &run.await_request {
        println!("{}", question.message.plain_text());
    }
    let run = client.resume_sync(run.run_id, "allow").await?;
    println!("{}", run.text());
    Ok(())
}

async fn continue_session(client: &Client) -> Result<(), ClientError> {
    let mut session = Session::new();
    session.run_sync(client, NewRun::new("counter", "Hello")).await?;
    let run = session.run_sync(client, NewRun::new("counter", "Again")).await?;
    println!("{}", run.text());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, token] = arguments.as_slice() else {
        return Err(ClientError::Unexpected("usage: call_communication URL TOKEN".to_owned()));
    };
    let client = client(url, token)?;
    start(&client).await?;
    stream(&client).await?;
    answer(&client).await?;
    continue_session(&client).await
}
