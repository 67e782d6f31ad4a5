//! A provider of models that sends a scripted response, and passes the requests on to the test.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::timeout;
use trilogue_broker::{AgentAccess, Dialect, KeyHeader, ProviderKey, SecretText};

use crate::fixtures::{PATIENCE, read_head, serve_host};

pub(crate) const PLACEHOLDER: &str = "placeholder-1234";
pub(crate) const KEY: &str = "sk-the-real-key";

/// A request, as the provider has received it.
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Provider {
    port: u16,
    requests: UnboundedReceiver<ReceivedRequest>,
}

// === impl Provider ===

impl Provider {
    /// Sends this response to each request, and closes the connection.
    pub(crate) async fn start(response: impl Into<Vec<u8>>) -> Self {
        let (received, requests) = mpsc::unbounded_channel();
        let response: Arc<[u8]> = response.into().into();
        let port = serve_host(move |mut stream| {
            let (received, response) = (received.clone(), Arc::clone(&response));
            async move {
                if receive(&mut stream, &received).await {
                    drop(stream.write_all(&response).await);
                }
            }
        });
        Self { port: port.await, requests }
    }

    /// Sends to the first request what the test sends, and closes the connection with the sender.
    pub(crate) async fn start_driven() -> (Self, UnboundedSender<&'static str>) {
        let (received, requests) = mpsc::unbounded_channel();
        let (sender, pieces) = mpsc::unbounded_channel::<&'static str>();
        let pieces = Arc::new(Mutex::new(pieces));
        let port = serve_host(move |mut stream| {
            let (received, pieces) = (received.clone(), Arc::clone(&pieces));
            async move {
                let mut pieces = pieces.lock().await;
                receive(&mut stream, &received).await;
                while let Some(piece) = pieces.recv().await {
                    drop(stream.write_all(piece.as_bytes()).await);
                }
            }
        });
        (Self { port: port.await, requests }, sender)
    }

    pub(crate) async fn request(&mut self) -> ReceivedRequest {
        timeout(PATIENCE, self.requests.recv()).await.unwrap().unwrap()
    }

    pub(crate) fn has_request(&mut self) -> bool {
        self.requests.try_recv().is_ok()
    }

    /// Returns a key for the provider, whose address has a path.
    pub(crate) fn key(&self, dialect: Dialect) -> ProviderKey {
        ProviderKey {
            name: "API_KEY".to_owned(),
            placeholder: SecretText::new(PLACEHOLDER.to_owned()),
            key: SecretText::new(KEY.to_owned()),
            base: format!("http://127.0.0.1:{}/base/", self.port).parse().unwrap(),
            header: KeyHeader::Bearer,
            dialect,
        }
    }

    pub(crate) fn access(&self, dialect: Dialect) -> AgentAccess {
        AgentAccess { keys: vec![self.key(dialect)], ..AgentAccess::default() }
    }
}

/// Reads a request with a length or in chunks. Returns whether it is whole.
async fn receive(stream: &mut TcpStream, received: &UnboundedSender<ReceivedRequest>) -> bool {
    let head = read_head(stream).await;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    if stream.read_exact(&mut body).await.is_err() {
        return false;
    }
    if head.contains("transfer-encoding: chunked") {
        while !body.ends_with(b"0\r\n\r\n") {
            if !stream.read_buf(&mut body).await.is_ok_and(|count| count > 0) {
                return false;
            }
        }
    }
    received.send(ReceivedRequest { head, body }).is_ok()
}

/// A request to the key's route, on a connection that ends with the response.
pub(crate) fn post(path: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /keys/API_KEY{path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n{fields}\r\n{body}"
    )
}

pub(crate) fn with_placeholder() -> String {
    format!("authorization: Bearer {PLACEHOLDER}\r\n")
}

/// A response in one piece.
pub(crate) fn json_response(body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// A streamed response with this data in its events.
pub(crate) fn event_response(events: &str) -> String {
    let length = events.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{events}\r\n0\r\n\r\n"
    )
}

/// Removes the framing of a response in chunks.
pub(crate) fn unchunk(response: &str) -> String {
    let mut rest = response.split_once("\r\n\r\n").unwrap().1;
    let mut body = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        body.push_str(&after[..length]);
        rest = after[length..].strip_prefix("\r\n").unwrap_or_default();
    }
    body
}
