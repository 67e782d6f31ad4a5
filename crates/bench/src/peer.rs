//! The peers: bare servers in a process of their own, built from the same libraries.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::broadcast;

use crate::report;

/// A peer in a process of its own. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    _child: Child,
    address: SocketAddr,
}

// === impl Peer ===

impl Peer {
    /// Starts this program as the peer `name`, which gets `input` on its standard input.
    pub(crate) async fn start(name: &str, input: &str) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["peer", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().context("the peer has no input")?;
        stdin.write_all(input.replace('\n', " ").as_bytes()).await?;
        stdin.write_all(b"\n").await?;
        let mut lines = BufReader::new(child.stdout.take().context("the peer is mute")?).lines();
        let address = lines.next_line().await?.context("the peer ended")?.parse()?;
        Ok(Self { _child: child, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Is a peer until it is killed.
pub(crate) async fn serve(name: &str) -> Result<()> {
    let mut input = String::new();
    std::io::stdin().read_line(&mut input)?;
    let router = match name {
        "json" => json(input.trim_end()),
        "sse" => events(),
        "connect" => crate::connect::router(),
        _ => bail!("unknown peer '{name}'"),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    report::say(&listener.local_addr()?.to_string());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let builder = auto::Builder::new(TokioExecutor::new());
            // A connection that breaks is the load generator's affair.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Parses the request's JSON, and returns JSON that it makes from a value.
fn json(answer: &str) -> Router {
    let answer: Arc<Value> = Arc::new(serde_json::from_str(answer).unwrap_or_default());
    let handler = |State(answer): State<Arc<Value>>, body: Bytes| async move {
        match serde_json::from_slice::<Value>(&body) {
            Ok(_) => ([(CONTENT_TYPE, "application/json")], answer.to_string()).into_response(),
            Err(error) => error.to_string().into_response(),
        }
    };
    Router::new().route("/api/v1/runs", post(handler)).with_state(answer)
}

/// Broadcasts each posted body to all listeners.
fn events() -> Router {
    let (sender, _) = broadcast::channel::<Bytes>(1 << 15);
    let listen = |State(sender): State<broadcast::Sender<Bytes>>| async move {
        let receiver = sender.subscribe();
        let body = stream::unfold(receiver, |mut receiver| async move {
            loop {
                match receiver.recv().await {
                    Ok(bytes) => return Some((Ok::<_, Infallible>(bytes), receiver)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        });
        Response::builder()
            .header(CONTENT_TYPE, "text/event-stream")
            .body(Body::from_stream(body))
            .unwrap_or_default()
    };
    // The body is one event's bytes, and the query says how often it is sent.
    let publish = |State(sender): State<broadcast::Sender<Bytes>>,
                   axum::extract::Query(query): axum::extract::Query<Vec<(String, usize)>>,
                   body: Bytes| async move {
        let count = query.first().map_or(1, |(_, count)| *count);
        for _ in 0..count {
            // It is not an error if no client listens.
            let _ = sender.send(body.clone());
            tokio::task::yield_now().await;
        }
        "{}"
    };
    Router::new().route("/events", get(listen)).route("/publish", post(publish)).with_state(sender)
}
