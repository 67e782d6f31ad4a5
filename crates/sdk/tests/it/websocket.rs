//! An agent served over WebSockets, and clients that connect to it.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use trilogue_sdk::agent_client::network::AgentUrl;
use trilogue_sdk::agent_client::{
    Client, Error, Options, Prompt, RejectAll, SessionOptions, StopReason,
};
use trilogue_sdk::prelude::*;
use trilogue_sdk::websocket;

const LONG: Duration = Duration::from_secs(20);

/// Serves an agent that repeats messages, and waits if the message says so.
async fn serve(options: websocket::Options) -> SocketAddr {
    let agent = agent_fn("echo", "Repeats.", |turn: Turn, context: Context| async move {
        context.text(turn.text()).await?;
        if turn.text() == "wait" {
            context.wait(LONG * 100).await?;
        }
        Ok::<_, AgentError>(Outcome::Completed)
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(websocket::serve_on(listener, agent, options));
    address
}

fn options() -> Options {
    Options { cancel_grace: LONG, ..Options::default() }
}

async fn open(address: SocketAddr) -> Client {
    let url = AgentUrl::parse(&format!("ws://{address}/any/path")).unwrap();
    Client::open(&url, RejectAll, options()).await.unwrap()
}

async fn answer_to(client: &Client, prompt: &str) -> String {
    let session = client.new_session(SessionOptions::new("/work")).await.unwrap();
    let mut turn = session.prompt(Prompt::from(prompt)).await.unwrap();
    let mut text = String::new();
    while let Some(update) = turn.next().await.unwrap() {
        text.push_str(update.text());
    }
    text
}

#[tokio::test]
async fn clients_prompt_an_agent_over_websockets() {
    let address = serve(websocket::Options::default()).await;
    let (one, two) = (open(address).await, open(address).await);
    let long = "x".repeat(300_000);
    let (short, large) = tokio::join!(answer_to(&one, "hello"), answer_to(&two, &long));
    assert_eq!((&*short, large.len()), ("hello", long.len()));
    assert_eq!(answer_to(&one, "second session").await, "second session");
    one.close().await;
    assert_eq!(answer_to(&two, "still here").await, "still here");
}

#[tokio::test]
async fn a_turn_over_a_websocket_is_cancelled() {
    let client = open(serve(websocket::Options::default()).await).await;
    let session = client.new_session(SessionOptions::new("/work")).await.unwrap();
    let mut turn = session.prompt(Prompt::from("wait")).await.unwrap();
    assert!(turn.next().await.unwrap().is_some());
    turn.cancel().await.unwrap();
    while turn.next().await.unwrap().is_some() {}
    assert_eq!(turn.outcome().unwrap().stop_reason, StopReason::Cancelled);
}

#[tokio::test]
async fn only_clients_with_the_token_connect() {
    let mut options = websocket::Options::default();
    options.accept.token = Some("right".to_owned());
    let address = serve(options).await;
    let url = || AgentUrl::parse(&format!("ws://{address}/?key=hidden")).unwrap();
    for agent in [url(), url().token("wrong"), url().token("right, or")] {
        let refused = Client::open(&agent, RejectAll, self::options()).await.map(drop);
        let Err(Error::Connect(error)) = refused else { unreachable!("{refused:?}") };
        assert_eq!((error.status, &*error.body), (Some(401), &b""[..]));
        assert!(error.hint.is_some() && !error.message.contains("hidden"), "{error:?}");
    }
    let client = Client::open(&url().token("right"), RejectAll, self::options()).await.unwrap();
    assert_eq!(answer_to(&client, "hello").await, "hello");
}

#[tokio::test]
async fn a_page_in_a_browser_is_refused() {
    let address = serve(websocket::Options::default()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET / HTTP/1.1\r\nhost: {address}\r\norigin: http://{address}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[test]
fn an_address_that_cannot_be_used_is_refused_at_once() {
    for bad in ["ftp://a.example", "ws://", "a.example", "wss://user:secret@a.example/"] {
        let error = AgentUrl::parse(bad).unwrap_err();
        assert!(!error.message.contains("secret"), "{error:?}");
    }
    let url = AgentUrl::parse("wss://a.example/acp?key=hidden").unwrap();
    assert_eq!(url.to_string(), "wss://a.example/acp");
    assert!(!format!("{url:?}").contains("hidden"));
}
