//! Connections to agents behind servers.
//!
//! ```no_run
//! use trilogue_sdk::agent_client::network::AgentUrl;
//! use trilogue_sdk::agent_client::{Client, Options, RejectAll};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = AgentUrl::parse("wss://agents.example.org/client/coder")?.token("secret");
//! let client = Client::open(&agent, RejectAll, Options::default()).await?;
//! # drop(client);
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//! - The credential goes to the host of the address and nowhere else: redirects are not followed.
//! - A connection ends when the other side is silent, sends an invalid message, or takes nothing of our output for too long.
//! - If the server keeps connections, as Trilogue does, a lost connection of the network is replaced: each message still arrives once.

#[cfg(feature = "ws")]
mod accept;
#[cfg(feature = "ws")]
mod continued;
#[cfg(feature = "http")]
mod cookies;
mod end;
mod error;
#[cfg(feature = "http")]
mod http_stream;
mod pauses;
#[cfg(feature = "ws")]
mod unconfirmed;
#[cfg(feature = "ws")]
mod websocket;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Request;
use tokio::io::DuplexStream;
#[cfg(feature = "ws")]
use trilogue_egress::WebSocketEnd;
use trilogue_egress::WebSocketOptions;
use trilogue_egress::{
    Authorities, Client as Egress, Options as EgressOptions, Policy, certificate_hint,
};
use url::Url;

use crate::client::Credential;

#[cfg(feature = "ws")]
pub use accept::{AcceptOptions, accept};
pub use error::ConnectError;
use error::TRUST_AUTHORITY;

use end::StreamEnd;

/// The address of an agent behind a server, and what is needed to reach it. Cheap to clone.
///
/// It may be any address, including a private one, because the user of the program chose the server.
#[derive(Clone)]
pub struct AgentUrl {
    url: Url,
    credential: Option<Credential>,
    /// Certificates in PEM form.
    authorities: Arc<[u8]>,
    /// Built for the first connection.
    egress: Arc<OnceLock<Egress>>,
}

/// The limits of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionOptions {
    /// How long the connection may take until messages can be sent.
    pub connect_timeout: Duration,
    /// The maximum size of a received message, in bytes. A larger one ends the connection.
    pub max_message_bytes: usize,
    /// How long the other side may send nothing before it gets a ping.
    pub ping_interval: Duration,
    /// How long the other side may then send nothing before the connection ends.
    pub pong_timeout: Duration,
}

/// A connection to an agent, as two streams of lines. It closes when `write` is shut down or dropped.
#[derive(Debug)]
pub struct Connection {
    /// The agent's messages, one a line.
    pub read: DuplexStream,
    /// Takes messages for the agent, one a line.
    pub write: DuplexStream,
    /// Reports why the connection ended, and ends it.
    pub end: ConnectionEnd,
}

/// Reports why a connection ended, and ends it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ConnectionEnd(EndKind);

#[derive(Clone, Debug)]
enum EndKind {
    /// One WebSocket.
    #[cfg(feature = "ws")]
    WebSocket(WebSocketEnd),
    /// Several connections of the network, one after the other or at once.
    Stream(StreamEnd),
}

/// The status of a server whose proxy passes no WebSockets on.
#[cfg(all(feature = "ws", feature = "http"))]
const NOT_IMPLEMENTED: u16 = 501;

/// The schemes of addresses, by the transports of this build.
const SCHEMES: &[&str] = &[
    #[cfg(feature = "ws")]
    "ws",
    #[cfg(feature = "ws")]
    "wss",
    #[cfg(feature = "http")]
    "http",
    #[cfg(feature = "http")]
    "https",
];

// === impl AgentUrl ===

impl AgentUrl {
    /// Reads an address: with the feature `ws`, `ws://` or `wss://` for a WebSocket; with the feature `http`, `http://` or `https://` for posts and server-sent events.
    ///
    /// # Errors
    /// If the address has another scheme, no host, or credentials.
    pub fn parse(url: &str) -> Result<Self, ConnectError> {
        let bad = |why: &str| ConnectError::invalid(format!("the address is invalid: {why}"));
        let parsed = Url::parse(url).map_err(|error| bad(&error.to_string()))?;
        if !SCHEMES.contains(&parsed.scheme()) || parsed.host().is_none() {
            let schemes = SCHEMES.join("://, ");
            return Err(bad(&format!("it must name a host and begin with one of {schemes}://")));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(bad("it holds credentials, which belong into a header field"));
        }
        let (authorities, egress) = (Arc::default(), Arc::default());
        Ok(Self { url: parsed, credential: None, authorities, egress })
    }

    /// Sends this token as `Authorization: Bearer`.
    #[must_use]
    pub fn token(self, token: impl Into<String>) -> Self {
        self.credential(Credential::Bearer(token.into()))
    }

    /// Sends this credential.
    #[must_use]
    pub fn credential(self, credential: Credential) -> Self {
        Self { credential: Some(credential), ..self }
    }

    /// Accepts certificates of these authorities, in addition to those of the system. The text is in PEM form.
    ///
    /// # Errors
    /// If the text has no certificate, or one that is damaged.
    pub fn authorities(self, pem: &[u8]) -> Result<Self, ConnectError> {
        Authorities::from_pem(pem).map_err(|error| ConnectError::invalid(error.to_string()))?;
        Ok(Self { authorities: pem.into(), egress: Arc::default(), ..self })
    }

    /// Opens a connection. With the feature `http`, a WebSocket that a proxy does not pass on (status 501) becomes a connection over HTTP.
    ///
    /// # Errors
    /// If the server cannot be reached in time, or refuses the connection. Over HTTP, the server is reached with the first message, and [`ConnectionEnd`] reports both.
    pub async fn connect(&self, options: &ConnectionOptions) -> Result<Connection, ConnectError> {
        match self.url.scheme() {
            #[cfg(feature = "ws")]
            "ws" | "wss" => match continued::connect(self, options).await {
                // A proxy in front of the server passes no WebSockets on.
                #[cfg(feature = "http")]
                Err(error) if error.status == Some(NOT_IMPLEMENTED) => {
                    http_stream::connect(&self.over_http(), options)
                }
                opened => opened,
            },
            #[cfg(feature = "http")]
            "http" | "https" => http_stream::connect(self, options),
            other => Err(ConnectError::invalid(format!("the scheme '{other}' is not supported"))),
        }
    }

    /// Returns the same address for HTTP.
    #[cfg(all(feature = "ws", feature = "http"))]
    fn over_http(&self) -> Self {
        let mut agent = self.clone();
        let scheme = if agent.url.scheme() == "wss" { "https" } else { "http" };
        // These schemes can replace each other.
        let _ = agent.url.set_scheme(scheme);
        agent
    }

    fn egress(&self) -> Result<&Egress, ConnectError> {
        if let Some(egress) = self.egress.get() {
            return Ok(egress);
        }
        let authorities = match self.authorities.is_empty() {
            true => Authorities::default(),
            false => Authorities::from_pem(&self.authorities)
                .map_err(|error| ConnectError::invalid(error.to_string()))?,
        };
        // A stream has no end. Each of its messages has a limit.
        let options = EgressOptions {
            authorities,
            total_timeout: None,
            max_response_bytes: u64::MAX,
            ..EgressOptions::default()
        };
        let built = Egress::new(Policy::anywhere(), options)
            .map_err(|error| ConnectError::invalid(error.to_string()))?;
        Ok(self.egress.get_or_init(|| built))
    }

    /// Returns a request to the address, with the credential.
    fn request(&self, method: http::Method) -> Result<http::request::Builder, ConnectError> {
        let mut request = Request::builder().method(method).uri(self.url.as_str());
        if let Some(credential) = &self.credential {
            let (name, value) = credential.header().map_err(|_| {
                ConnectError::invalid("the credential does not fit into a header field".to_owned())
            })?;
            request = request.header(name, value);
        }
        Ok(request)
    }
}

impl PartialEq for AgentUrl {
    fn eq(&self, other: &Self) -> bool {
        (&self.url, &self.credential, &self.authorities)
            == (&other.url, &other.credential, &other.authorities)
    }
}

impl Eq for AgentUrl {}

/// Writes the address without its query, which may hold a secret.
impl fmt::Display for AgentUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.url.clone();
        shown.set_query(None);
        shown.set_fragment(None);
        f.write_str(shown.as_str())
    }
}

impl fmt::Debug for AgentUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentUrl({self})")
    }
}

// === impl ConnectionOptions ===

impl Default for ConnectionOptions {
    fn default() -> Self {
        let WebSocketOptions {
            handshake_timeout,
            max_message_bytes,
            ping_interval,
            pong_timeout,
            ..
        } = WebSocketOptions::default();
        Self { connect_timeout: handshake_timeout, max_message_bytes, ping_interval, pong_timeout }
    }
}

impl From<&ConnectionOptions> for WebSocketOptions {
    fn from(options: &ConnectionOptions) -> Self {
        let ConnectionOptions { connect_timeout, max_message_bytes, ping_interval, pong_timeout } =
            *options;
        Self {
            handshake_timeout: connect_timeout,
            max_message_bytes,
            ping_interval,
            pong_timeout,
            ..Self::default()
        }
    }
}

// === impl ConnectionEnd ===

impl ConnectionEnd {
    /// Returns why the connection ended, as a verb phrase that completes "the connection …". `None` while it is open.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        match &self.0 {
            #[cfg(feature = "ws")]
            EndKind::WebSocket(end) => end.reason().map(|reason| reason.to_string()),
            EndKind::Stream(end) => end.reason(),
        }
    }

    /// Returns what you can do about the end, if the server's certificate was refused.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.reason().and_then(|reason| certificate_hint(&reason, TRUST_AUTHORITY))
    }

    /// Waits until the connection has ended. Returns why.
    pub async fn wait(&self) -> String {
        match &self.0 {
            #[cfg(feature = "ws")]
            EndKind::WebSocket(end) => end.wait().await.to_string(),
            EndKind::Stream(end) => end.wait().await,
        }
    }

    /// Ends the connection at once.
    pub fn abort(&self) {
        match &self.0 {
            #[cfg(feature = "ws")]
            EndKind::WebSocket(end) => end.abort(),
            EndKind::Stream(end) => end.abort(),
        }
    }
}
