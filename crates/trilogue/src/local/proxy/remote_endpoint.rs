//! A server elsewhere: the lines of the local socket, each in a text frame of a WebSocket.

use std::time::Duration;

use http::{HeaderValue, Request, header};
use tokio::io::{DuplexStream, Join};
use trilogue_domain::{Code, Error};
use trilogue_egress::{self as egress, WebSocket, WebSocketOptions};
use trilogue_mapping::native::message::PATH_SEGMENT;
use trilogue_wire::native::Problem;
use trilogue_wire::native::local::SUBPROTOCOL;
use url::Url;

use super::super::TRUST_AUTHORITY;

/// After this silence of the server, it is asked to show that it is there.
const SILENCE: Duration = Duration::from_secs(15);
/// How long it may take to show that, and how long it may take nothing that is sent.
const PONG_LIMIT: Duration = Duration::from_secs(15);
/// How long it may take to show that after this machine has slept: the connection is probably lost.
const AWAKE_PONG_LIMIT: Duration = Duration::from_secs(3);

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
        // The stream has no end.
        let options = egress::Options { total_timeout: None, ..egress::Options::default() };
        // The user has chosen the server.
        let client = egress::Client::new(egress::Policy::anywhere(), options)
            .map_err(|error| Error::new(Code::PeerUnavailable, error.to_string()))?;
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { client, url, token: token.map(Secret) })
    }

    /// Opens a stream of lines to an agent. The connection and the handshake may take this long together.
    pub(super) async fn open(
        &self,
        agent: &str,
        max_line_bytes: usize,
        limit: Duration,
    ) -> Result<Join<DuplexStream, DuplexStream>, RemoteFailure> {
        let options = WebSocketOptions {
            handshake_timeout: limit,
            max_message_bytes: max_line_bytes,
            ping_interval: SILENCE,
            pong_timeout: PONG_LIMIT,
            wake_timeout: Some(AWAKE_PONG_LIMIT),
        };
        let opened = self.client.open_websocket(self.request(agent)?, &options).await;
        let (headers, socket) = opened.map_err(|error| self.failure(error))?;
        if headers.get(header::SEC_WEBSOCKET_PROTOCOL).map(HeaderValue::as_bytes)
            != Some(SUBPROTOCOL.as_bytes())
        {
            return Err(self.other_protocol());
        }
        let WebSocket { read, write, end } = socket;
        tokio::spawn(async move {
            let reason = end.wait().await;
            tracing::debug!("the connection to the server {reason}");
        });
        Ok(tokio::io::join(read, write))
    }

    fn request(&self, agent: &str) -> Result<Request<()>, RemoteFailure> {
        let bad_url = |error: &dyn std::fmt::Display| {
            let reason = format!("the address is malformed: {error}");
            self.failure(egress::Error::BadUrl(reason))
        };
        let agent = percent_encoding::utf8_percent_encode(agent, PATH_SEGMENT);
        // Writes names of other scripts in ASCII.
        let url = Url::parse(&format!("{}/client/{agent}", self.url));
        let url = url.map_err(|error| bad_url(&error))?;
        let mut request = Request::get(url.as_str())
            .header(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
        if let Some(Secret(token)) = &self.token {
            let bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
                let message = "the token contains a character that tokens never have";
                RemoteFailure {
                    error: Error::new(Code::Unauthenticated, message),
                    is_transient: false,
                }
            })?;
            request = request.header(header::AUTHORIZATION, bearer);
        }
        request.body(()).map_err(|error| bad_url(&error))
    }

    fn failure(&self, error: egress::Error) -> RemoteFailure {
        let is_transient = !error.is_refusal();
        let reason = match error {
            egress::Error::NotUpgraded { status, body, .. } => return self.refusal(status, &body),
            egress::Error::Failed { reason, .. } | egress::Error::UnknownName { reason, .. } => {
                reason
            }
            error => error.to_string(),
        };
        let hint = egress::certificate_hint(&reason, TRUST_AUTHORITY)
            .unwrap_or_else(|| "check the address and the network".to_owned());
        let error = self.lost(&reason).hint(hint);
        RemoteFailure { error, is_transient }
    }

    /// The error for a connection that failed for this reason.
    pub(super) fn lost(&self, reason: &str) -> Error {
        let message = format!("no server answers at {}: {reason}", self.url);
        Error::new(Code::PeerUnavailable, message)
    }

    /// The error for a server that opens a WebSocket without our subprotocol: it would not understand the first line.
    fn other_protocol(&self) -> RemoteFailure {
        let message = format!("the server at {} is not a Trilogue server", self.url);
        let error = Error::new(Code::PeerUnavailable, message).hint(format!(
            "check the address; a proxy in front of the server must pass 'Sec-WebSocket-Protocol: {SUBPROTOCOL}' on"
        ));
        RemoteFailure { error, is_transient: false }
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
