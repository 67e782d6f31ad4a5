//! Measures the official Rust SDK: an agent that writes the updates that it is asked for, and a client that counts them.
//!
//! `official-bench agent` is the agent. `official-bench listen` serves it with the SDK's server, over HTTP and over
//! WebSockets, on a free port of this machine, whose number it prints. `official-bench client UPDATES TURNS -- COMMAND…` launches one, and prints how
//! many updates, and how many turns in a row of one update each, it receives in a second, as one JSON object.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ContentBlock, InitializeRequest, NewSessionRequest, PromptRequest, SessionNotification,
};
use agent_client_protocol::{
    AcpAgent, Agent, Client, ConnectTo, Error, Result, Stdio, on_receive_notification,
    on_receive_request,
};
use agent_client_protocol_http::AcpHttpServer;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use uuid::Uuid;

/// The message that its updates continue.
const MESSAGE: &str = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["agent"] => agent().connect_to(Stdio::new()).await,
        ["listen"] => listen().await,
        ["client", updates, turns, "--", command @ ..] => {
            let counted = |text: &str| text.parse::<u64>().map_err(Error::into_internal_error);
            client(counted(updates)?, counted(turns)?, command).await
        }
        _ => Err(Error::invalid_params()),
    }
}

async fn listen() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::into_internal_error)?;
    let address = listener.local_addr().map_err(Error::into_internal_error)?;
    println!("{}", address.port());
    let router = AcpHttpServer::new(agent).into_router();
    axum::serve(listener, router).await.map_err(Error::into_internal_error)
}

fn agent() -> impl ConnectTo<Client> {
    Agent
        .v1()
        .name("official-rust")
        .on_receive_request(
            async move |_: InitializeRequest, responder, _| {
                responder.respond_with_result(typed(json!({"protocolVersion": 1})))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |_: NewSessionRequest, responder, _| {
                responder
                    .respond_with_result(typed(json!({"sessionId": Uuid::new_v4().to_string()})))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, client| {
                let connection = client.clone();
                client.spawn(async move {
                    let update: SessionNotification = typed(update(&request.session_id.0))?;
                    for _ in 0..wanted(&request) {
                        connection.send_notification(update.clone())?;
                    }
                    responder.respond_with_result(typed(json!({"stopReason": "end_turn"})))
                })
            },
            on_receive_request!(),
        )
}

async fn client(updates: u64, turns: u64, command: &[&str]) -> Result<()> {
    let seen = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&seen);
    let agent = AcpAgent::from_args(command)?;
    Client
        .v1()
        .name("official-rust")
        .on_receive_notification(
            async move |_: SessionNotification, _| {
                counted.fetch_add(1, Ordering::Relaxed);
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_with(agent, async |connection: ConnectionTo<Agent>| {
            measure(&connection, &seen, updates, turns).await
        })
        .await
}

async fn measure(
    connection: &ConnectionTo<Agent>,
    seen: &AtomicU64,
    updates: u64,
    turns: u64,
) -> Result<()> {
    let hello = json!({"protocolVersion": 1, "clientCapabilities": {}});
    connection.send_request(typed::<InitializeRequest>(hello)?).block_task().await?;
    let cwd = std::env::current_dir().map_err(Error::into_internal_error)?;
    let new = json!({"cwd": cwd, "mcpServers": []});
    let opened = connection.send_request(typed::<NewSessionRequest>(new)?).block_task().await?;
    let session = &opened.session_id.0;
    prompt(connection, session, 1_000).await?;
    let begun = Instant::now();
    prompt(connection, session, updates).await?;
    let flood = updates as f64 / begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    for _ in 0..turns {
        prompt(connection, session, 1).await?;
    }
    let in_a_row = turns as f64 / begun.elapsed().as_secs_f64();
    let all = 1_000 + updates + turns;
    if seen.load(Ordering::Relaxed) != all {
        return Err(Error::internal_error().data(json!({"seen": seen.load(Ordering::Relaxed)})));
    }
    println!("{}", json!({"updates": flood, "turns": in_a_row}));
    Ok(())
}

async fn prompt(connection: &ConnectionTo<Agent>, session: &str, updates: u64) -> Result<()> {
    let prompt = json!([{"type": "text", "text": format!("flood {updates}")}]);
    let params = json!({"sessionId": session, "prompt": prompt});
    connection.send_request(typed::<PromptRequest>(params)?).block_task().await?;
    Ok(())
}

/// The number of updates that a prompt requests.
fn wanted(request: &PromptRequest) -> u64 {
    let text = request.prompt.iter().find_map(|block| match block {
        ContentBlock::Text(text) => text.text.strip_prefix("flood "),
        _ => None,
    });
    text.and_then(|count| count.parse().ok()).unwrap_or_default()
}

fn update(session: &str) -> Value {
    let content = json!({"type": "text", "text": "and on "});
    let update =
        json!({"sessionUpdate": "agent_message_chunk", "messageId": MESSAGE, "content": content});
    json!({"sessionId": session, "update": update})
}

/// The SDK's type of a message.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(Error::into_internal_error)
}
