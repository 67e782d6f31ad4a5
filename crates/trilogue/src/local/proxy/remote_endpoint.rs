//! A server elsewhere: the lines of the local socket, each in a text frame of a WebSocket.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::time::{Instant, sleep_until, timeout};
use trilogue_domain::{Code, Error};
use trilogue_egress as egress;
use trilogue_egress::{WebSocketAnswer, WebSocketMessage, WebSocketReader, WebSocketWriter};
use trilogue_mapping::native::message::PATH_SEGMENT;
use trilogue_wire::native::Problem;
use trilogue_wire::native::local::SUBPROTOCOL;

use super::super::certificate_hint;

/// The bytes between the proxy and the WebSocket in each direction.
const PIPE_BYTES: usize = 64 * 1024;
/// How often the connection is looked at.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// After this silence of the server, it is asked to show that it is there.
const SILENCE: Duration = Duration::from_secs(15);
/// How long it may take to show that.
const PONG_LIMIT: Duration = Duration::from_secs(15);
/// The same after this machine has slept: the connection is probably lost.
const AWAKE_PONG_LIMIT: Duration = Duration::from_secs(3);
/// A pause of this length between two looks means that this machine has slept.
const SLEPT: Duration = Duration::from_secs(10);
/// How long the connection may take to accept a line.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// The largest body of a refusal, in bytes.
const MAX_REFUSAL_BYTES: u64 = 64 * 1024;

/// A server that is reached by its URL.
#[derive(Clone, Debug)]
pub struct RemoteEndpoint {
    client: egress::Client,
    /// Its address, without a slash at the end.
    url: String,
    token: Option<Secret>,
}

/// A token, which is never shown.
#[derive(Clone)]
struct Secret(String);

/// Why the connection failed.
#[derive(Debug)]
pub(super) struct RemoteFailure {
    pub(super) error: Error,
    /// Whether the server can answer differently later.
    pub(super) is_transient: bool,
}

// === impl RemoteEndpoint ===

impl RemoteEndpoint {
    /// The server at this address, which may have a path, and the token for it.
    ///
    /// # Errors
    /// If the system's certificates cannot be read.
    pub fn new(url: &str, token: Option<String>) -> Result<Self, Error> {
        let options = egress::Options {
            // The stream has no end.
            total_timeout: None,
            max_response_bytes: MAX_REFUSAL_BYTES,
            ..egress::Options::default()
        };
        // The user has chosen the server.
        let client = egress::Client::new(egress::Policy::anywhere(), options)
            .map_err(|error| Error::new(Code::PeerUnavailable, error.to_string()))?;
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { client, url, token: token.map(Secret) })
    }

    /// Opens a stream of lines to an agent.
    pub(super) async fn open(
        &self,
        agent: &str,
        max_line_bytes: usize,
    ) -> Result<DuplexStream, RemoteFailure> {
        let agent = percent_encoding::utf8_percent_encode(agent, PATH_SEGMENT);
        let url = format!("{}/client/{agent}", self.url);
        let headers = self.headers()?;
        let answer = self.client.open_websocket(&url, headers, max_line_bytes).await;
        match answer.map_err(|error| self.unreached(error))? {
            WebSocketAnswer::Open(reader, writer) => {
                let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
                tokio::spawn(carry(reader, writer, theirs));
                Ok(ours)
            }
            WebSocketAnswer::Refused(status, _, body) => {
                let body = body.collect().await.unwrap_or_default();
                Err(self.refusal(status.as_u16(), &body))
            }
        }
    }

    fn headers(&self) -> Result<http::HeaderMap, RemoteFailure> {
        let mut headers = http::HeaderMap::new();
        let protocol = http::HeaderValue::from_static(SUBPROTOCOL);
        headers.insert(http::header::SEC_WEBSOCKET_PROTOCOL, protocol);
        if let Some(Secret(token)) = &self.token {
            let bearer = http::HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
                let message = "the token contains a character that tokens never have";
                RemoteFailure {
                    error: Error::new(Code::Unauthenticated, message),
                    is_transient: false,
                }
            })?;
            headers.insert(http::header::AUTHORIZATION, bearer);
        }
        Ok(headers)
    }

    fn unreached(&self, error: egress::Error) -> RemoteFailure {
        let is_transient = !error.is_refusal();
        let reason = match error {
            egress::Error::Failed { reason, .. } | egress::Error::UnknownName { reason, .. } => {
                reason
            }
            error => error.to_string(),
        };
        let hint = certificate_hint(&reason).unwrap_or("check the address and the network");
        let error = self.lost(&reason).hint(hint);
        RemoteFailure { error, is_transient }
    }

    /// The error for a connection that failed for this reason.
    pub(super) fn lost(&self, reason: &str) -> Error {
        let message = format!("no server answers at {}: {reason}", self.url);
        Error::new(Code::PeerUnavailable, message)
    }

    fn refusal(&self, status: u16, body: &[u8]) -> RemoteFailure {
        let is_transient = matches!(status, 429 | 500 | 502..=504);
        let problem: Option<Problem> = serde_json::from_slice(body).ok();
        let known = problem.and_then(|problem| Some((Code::from_text(&problem.code)?, problem)));
        let error = match known {
            Some((code, problem)) if !is_missing_route(code) => {
                let error = Error::new(code, problem.detail);
                match problem.hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                }
            }
            _ => {
                let url = &self.url;
                let message = format!("{url} opens no WebSocket: it answered with status {status}");
                Error::new(Code::PeerUnavailable, message).hint(
                    "check the address; a proxy in front of the server must let WebSockets through, and the server must serve the protocol `client`",
                )
            }
        };
        RemoteFailure { error, is_transient }
    }
}

/// Does not show the secret.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

fn is_missing_route(code: Code) -> bool {
    matches!(code, Code::NotFound | Code::NotImplemented | Code::UpgradeRequired)
}

/// Carries lines between the proxy and a WebSocket, until one of them ends.
async fn carry(mut reader: WebSocketReader, mut writer: WebSocketWriter, lines: DuplexStream) {
    let (from_proxy, mut to_proxy) = tokio::io::split(lines);
    // Counts what the server has sent.
    let received = Arc::new(AtomicU64::new(0));
    let incoming = async {
        loop {
            let message = match reader.next().await {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(error) => return tracing::debug!(%error, "the WebSocket is lost"),
            };
            received.fetch_add(1, Ordering::Relaxed);
            if let WebSocketMessage::Text(text) = message
                && write_line(&mut to_proxy, &text).await.is_err()
            {
                return;
            }
        }
    };
    let outgoing = send_lines(from_proxy, &mut writer, &received);
    tokio::select! {
        () = incoming => {}
        () = outgoing => {}
    }
    writer.close().await;
}

async fn write_line(to: &mut (impl tokio::io::AsyncWrite + Unpin), line: &[u8]) -> io::Result<()> {
    to.write_all(line).await?;
    to.write_all(b"\n").await
}

/// Sends the proxy's lines, and looks whether the server is still there. Returns when either has ended.
async fn send_lines(
    from: impl AsyncRead + Unpin,
    writer: &mut WebSocketWriter,
    received: &AtomicU64,
) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    let mut watch = ServerWatch::new();
    loop {
        let sent = tokio::select! {
            // A read that is dropped leaves what it has in `line`.
            read = from.read_until(b'\n', &mut line) => {
                if !read.is_ok_and(|count| count > 0) {
                    return;
                }
                if line.last() == Some(&b'\n') {
                    line.pop();
                }
                let text = Bytes::from(std::mem::take(&mut line));
                timeout(SEND_LIMIT, writer.send(as_text(text))).await
            }
            () = sleep_until(watch.next) => match watch.check(received.load(Ordering::Relaxed)) {
                Check::Fine => continue,
                Check::Ping => timeout(SEND_LIMIT, writer.ping()).await,
                Check::Lost => return tracing::debug!("the server is silent"),
            },
        };
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

/// A frame must be UTF-8. The server answers any other line with an error, so its exact bytes do not matter.
fn as_text(line: Bytes) -> Bytes {
    match std::str::from_utf8(&line) {
        Ok(_) => line,
        Err(_) => Bytes::from(String::from_utf8_lossy(&line).into_owned()),
    }
}

/// Decides when to ask the server whether it is there, and when it is lost.
#[derive(Debug)]
struct ServerWatch {
    next: Instant,
    /// The time of the last look: the monotonic clock does not run while this machine sleeps.
    looked_at: SystemTime,
    /// How much the server had sent by then, and when that changed.
    received: (u64, Instant),
    /// Until when it must show that it is there.
    expected: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    Fine,
    Ping,
    Lost,
}

// === impl ServerWatch ===

impl ServerWatch {
    fn new() -> Self {
        let now = Instant::now();
        let next = now + CHECK_EVERY;
        Self { next, looked_at: SystemTime::now(), received: (0, now), expected: None }
    }

    fn check(&mut self, received: u64) -> Check {
        self.check_at(received, Instant::now(), SystemTime::now())
    }

    fn check_at(&mut self, received: u64, now: Instant, wall: SystemTime) -> Check {
        self.next = now + CHECK_EVERY;
        let has_slept = wall.duration_since(self.looked_at).is_ok_and(|pause| pause >= SLEPT);
        self.looked_at = wall;
        if self.received.0 != received {
            (self.received, self.expected) = ((received, now), None);
        }
        match self.expected {
            Some(end) if now >= end => return Check::Lost,
            Some(_) if !has_slept => return Check::Fine,
            _ => {}
        }
        if has_slept {
            self.expected = Some(now + AWAKE_PONG_LIMIT);
            return Check::Ping;
        }
        if now.duration_since(self.received.1) < SILENCE {
            return Check::Fine;
        }
        self.expected = Some(now + PONG_LIMIT);
        Check::Ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch whose first look was at this time.
    fn watch(now: Instant, wall: SystemTime) -> ServerWatch {
        ServerWatch { next: now, looked_at: wall, received: (0, now), expected: None }
    }

    #[test]
    fn a_silent_server_is_asked_and_then_counts_as_lost() {
        let (now, wall) = (Instant::now(), SystemTime::now());
        let mut watch = watch(now, wall);
        let mut at = |seconds: u64, received: u64| {
            let passed = Duration::from_secs(seconds);
            watch.check_at(received, now + passed, wall + passed)
        };
        for second in 1..15 {
            assert_eq!(at(second, 0), Check::Fine, "{second}");
        }
        assert_eq!(at(15, 0), Check::Ping);
        assert_eq!(at(16, 0), Check::Fine);
        // The answer came.
        assert_eq!(at(17, 1), Check::Fine);
        for second in 18..32 {
            assert_eq!(at(second, 1), Check::Fine, "{second}");
        }
        assert_eq!(at(32, 1), Check::Ping);
        for second in 33..47 {
            assert_eq!(at(second, 1), Check::Fine, "{second}");
        }
        assert_eq!(at(47, 1), Check::Lost);
    }

    #[test]
    fn after_a_sleep_the_server_has_little_time() {
        let (now, wall) = (Instant::now(), SystemTime::now());
        let mut watch = watch(now, wall);
        let second = Duration::from_secs(1);
        assert_eq!(watch.check_at(5, now + second, wall + Duration::from_secs(3_600)), Check::Ping);
        for passed in 2..4 {
            let wall = wall + Duration::from_secs(3_600 + passed);
            assert_eq!(watch.check_at(5, now + second * passed as u32, wall), Check::Fine);
        }
        let wall = wall + Duration::from_secs(3_605);
        assert_eq!(watch.check_at(5, now + second * 4, wall), Check::Lost);
    }
}
