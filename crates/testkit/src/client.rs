//! A small HTTP client: one connection per request, and nothing hidden. With one address it never retries.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error_text;

/// Long enough for four responses of 20 MB at once beside other tests.
const REQUEST_LIMIT: Duration = Duration::from_secs(180);
const CANNOT_NOW: [StatusCode; 3] =
    [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];

#[derive(Clone, Debug)]
pub struct Client {
    nodes: Arc<Nodes>,
    token: Option<String>,
}

/// The servers of a client. Each of them can take each request.
#[derive(Debug)]
struct Nodes {
    addresses: Vec<SocketAddr>,
    next: AtomicUsize,
    is_closed: watch::Sender<bool>,
}

#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerSent {
    pub id: Option<String>,
    pub event: Option<String>,
    pub data: String,
}

#[derive(Debug)]
pub struct Stream {
    body: Incoming,
    buffer: BytesMut,
    is_closed: watch::Receiver<bool>,
}

// === impl Client ===

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self::of_any(vec![address])
    }

    /// Sends each request to the next of several servers, and tries the following one if the connection is refused. A response that only says "not now" counts as a failure, as behind a load balancer.
    pub fn of_any(addresses: Vec<SocketAddr>) -> Self {
        let is_closed = watch::Sender::new(false);
        Self {
            nodes: Arc::new(Nodes { addresses, next: AtomicUsize::new(0), is_closed }),
            token: None,
        }
    }

    /// Refuses further requests, and ends the streams of this client and of its clones.
    pub fn close(&self) {
        self.nodes.is_closed.send_replace(true);
    }

    pub fn is_closed(&self) -> bool {
        *self.nodes.is_closed.borrow()
    }

    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    pub async fn get(&self, path: &str) -> Result<Reply> {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Reply> {
        self.send(Method::POST, path, &[], Bytes::from(body.to_string())).await
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Reply> {
        let whole = async {
            let response = self.open(method, path, headers, body).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            error_text::check_response(head.status.as_u16(), &body);
            Ok(Reply { status: head.status.as_u16(), headers: head.headers, body })
        };
        timeout(REQUEST_LIMIT, whole).await.context("the request took too long")?
    }

    pub async fn stream(&self, path: &str, after: Option<&str>) -> Result<Stream> {
        let mut headers = vec![("accept", "text/event-stream")];
        headers.extend(after.map(|id| ("last-event-id", id)));
        self.stream_of(Method::GET, path, &headers, Bytes::new()).await
    }

    pub async fn stream_of(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Stream> {
        let opening = self.open(method, path, headers, body);
        let response = timeout(REQUEST_LIMIT, opening).await.context("no answer came")??;
        let status = response.status();
        if !status.is_success() {
            let body = response.into_body().collect().await?.to_bytes();
            error_text::check_response(status.as_u16(), &body);
            bail!("the stream was refused: {status} {}", String::from_utf8_lossy(&body));
        }
        let is_closed = self.nodes.is_closed.subscribe();
        Ok(Stream { body: response.into_body(), buffer: BytesMut::new(), is_closed })
    }

    async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<http::Response<Incoming>> {
        ensure!(!self.is_closed(), "the client is closed");
        let (stream, address) = self.nodes.connect().await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Ends when the response has been read or dropped.
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path);
        let has = |name: &str| headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        if !has("host") {
            request = request.header("host", address.to_string());
        }
        if !body.is_empty() && !has("content-type") {
            request = request.header("content-type", "application/json");
        }
        if let Some(token) = self.token.as_deref().filter(|_| !has("authorization")) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = sender.send_request(request.body(Full::new(body))?).await?;
        let status = response.status();
        let is_elsewhere = self.nodes.addresses.len() > 1 && CANNOT_NOW.contains(&status);
        ensure!(!is_elsewhere, "{address} cannot do it now: {status}");
        Ok(response)
    }
}

// === impl Nodes ===

impl Nodes {
    async fn connect(&self) -> Result<(TcpStream, SocketAddr)> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut failure = anyhow::anyhow!("the client has no server");
        for step in 0..self.addresses.len() {
            let address = self.addresses[(first + step) % self.addresses.len()];
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok((stream, address)),
                Err(error) => failure = error.into(),
            }
        }
        Err(failure)
    }
}

// === impl Reply ===

impl Reply {
    /// The body as JSON; `null` if it is not valid JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub fn ok(&self) -> Result<Value> {
        ensure!(
            (200..300).contains(&self.status),
            "the answer was {} {}",
            self.status,
            String::from_utf8_lossy(&self.body)
        );
        Ok(self.json())
    }

    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

// === impl Stream ===

impl Stream {
    pub async fn next(&mut self) -> Result<Option<ServerSent>> {
        loop {
            while let Some(block) = self.take_block() {
                let event = parse(&block);
                if event != ServerSent::default() {
                    return Ok(Some(event));
                }
            }
            let frame = tokio::select! {
                frame = self.body.frame() => frame,
                Ok(_) = self.is_closed.wait_for(|is_closed| *is_closed) => {
                    bail!("the client was closed");
                }
            };
            match frame {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    fn take_block(&mut self) -> Option<String> {
        let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
        let block = self.buffer.split_to(end + 2);
        Some(String::from_utf8_lossy(&block).into_owned())
    }
}

fn parse(block: &str) -> ServerSent {
    let mut event = ServerSent::default();
    let mut data: Vec<&str> = Vec::new();
    for line in block.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => event.id = Some(value.to_owned()),
            "event" => event.event = Some(value.to_owned()),
            "data" => data.push(value),
            _ => {}
        }
    }
    event.data = data.join("\n");
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_fields_of_an_event() {
        let event = parse(": hello\nid: 7\nevent: x\ndata: a\ndata:b\n\n");
        assert_eq!(event.id.as_deref(), Some("7"));
        assert_eq!(event.event.as_deref(), Some("x"));
        assert_eq!(event.data, "a\nb");
        assert_eq!(parse(": ping\n\n"), ServerSent::default());
    }
}
