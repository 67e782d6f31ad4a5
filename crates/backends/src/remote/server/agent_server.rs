//! A server of remote agents. All its agents here share it.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_runtime::Availability;
use trilogue_sdk::client::{HttpTransport, Method, Request, Response, Transport, TransportError};

use super::launch::ServerLaunch;
use super::process::{ServerProcess, ServerState};
use super::request_breaker::RequestBreaker;
use crate::child::Children;

/// How long a server out of reach may take to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay before the first probe of a server out of reach. It doubles with each probe, up to [`MAX_PROBE_DELAY`].
const PROBE_DELAY: Duration = Duration::from_secs(1);
const MAX_PROBE_DELAY: Duration = Duration::from_secs(30);

/// A server of any protocol over HTTP. It runs elsewhere, or this server starts it.
#[derive(Debug)]
pub struct AgentServer {
    /// The address that messages show. For a command, the address in its settings.
    url: String,
    origin: ServerOrigin,
    probe: Probe,
    breaker: RequestBreaker,
}

#[derive(Debug)]
enum ServerOrigin {
    Elsewhere(HttpTransport),
    Here(ServerProcess),
}

/// The request that checks whether a server answers. It depends on the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Probe {
    /// `GET /ping` of the Agent Communication Protocol.
    Ping,
    /// `POST /agents/search` of the Agent Connect Protocol.
    AgentSearch,
}

// === impl AgentServer ===

impl AgentServer {
    /// Returns a server at this address, such as `http://127.0.0.1:8000`.
    /// Errors: `invalid_request` for an invalid address.
    pub fn at(url: &str, probe: Probe) -> Result<Arc<Self>> {
        let transport = HttpTransport::to(url)
            .map_err(|error| Error::new(Code::InvalidRequest, error.message))?;
        Ok(Self::new(url.to_owned(), ServerOrigin::Elsewhere(transport), probe))
    }

    /// Returns a server that this one starts with a command when it is first needed, and then keeps running. `name` is its name in logs.
    #[must_use]
    pub fn of_command(
        name: &str,
        launch: ServerLaunch,
        children: Arc<Children>,
        probe: Probe,
    ) -> Arc<Self> {
        let url = launch.url.clone();
        let process = ServerProcess::new(name.to_owned(), launch, children, probe);
        Self::new(url, ServerOrigin::Here(process), probe)
    }

    fn new(url: String, origin: ServerOrigin, probe: Probe) -> Arc<Self> {
        Arc::new(Self { url, origin, probe, breaker: RequestBreaker::default() })
    }

    /// Starts the server if it has a command. Returns at once.
    pub fn start(&self) {
        if let ServerOrigin::Here(process) = &self.origin {
            process.start();
        }
    }

    /// Waits until a server with a command answers. Returns at once for a server elsewhere.
    pub async fn wait_until_running(&self) {
        if let ServerOrigin::Here(process) = &self.origin {
            process.wait_until_running().await;
        }
    }

    /// Waits until a server with a command answers or could not be started. Returns at once for a server elsewhere.
    pub async fn wait_for_start(&self) {
        if let ServerOrigin::Here(process) = &self.origin {
            process.wait_for_start().await;
        }
    }

    /// Returns its address. For a server with a command, this is the current address, or the one in its settings while it does not run.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.origin {
            ServerOrigin::Here(process) => match process.state() {
                ServerState::Running(transport) => transport.url().to_owned(),
                _ => self.url.clone(),
            },
            ServerOrigin::Elsewhere(_) => self.url.clone(),
        }
    }

    /// Returns the path of its address, without a slash at the end.
    #[must_use]
    pub fn path(&self) -> String {
        match &self.origin {
            ServerOrigin::Elsewhere(transport) => transport.path().to_owned(),
            ServerOrigin::Here(process) => process.launch().path(),
        }
    }

    /// Returns whether it can be used, from its last known state.
    #[must_use]
    pub fn availability(&self) -> Availability {
        if let ServerOrigin::Here(process) = &self.origin {
            match process.state() {
                ServerState::Running(_) => {}
                ServerState::Starting => {
                    return Availability::unavailable("its server is starting");
                }
                ServerState::Failed(error) => return Availability::unavailable(error.message()),
            }
        }
        match self.check() {
            Ok(()) => Availability::Available,
            Err(error) => Availability::unavailable(error.message()),
        }
    }

    /// Checks that requests may be sent.
    /// Errors: `peer_unavailable` while it is known to be out of reach.
    pub fn check(&self) -> Result<()> {
        self.breaker.check(&self.url())
    }

    /// Sends a request, and updates the breaker with its outcome. Starts to probe the server if the breaker opens.
    pub(super) async fn send(
        self: &Arc<Self>,
        request: Request,
        prepare: impl FnOnce(HttpTransport) -> HttpTransport + Send,
    ) -> Result<Response, TransportError> {
        self.check().map_err(|error| unreached(&error))?;
        let transport = match &self.origin {
            ServerOrigin::Elsewhere(transport) => transport.clone(),
            ServerOrigin::Here(process) => {
                process.transport().await.map_err(|error| unreached(&error))?
            }
        };
        let sent = prepare(transport).send(request).await;
        match &sent {
            Ok(_) => self.breaker.record_success(),
            Err(error) if error.is_unreached => {
                if self.breaker.record_failure(&error.message) {
                    tracing::warn!(url = self.url(), %error, "a server of agents is out of reach");
                    tokio::spawn(probe(Arc::downgrade(self)));
                }
            }
            // The server may have received the request, so this error shows neither that it is in reach nor that it is not.
            Err(_) => {}
        }
        sent
    }

    async fn is_answering(&self) -> bool {
        let transport = match &self.origin {
            ServerOrigin::Elsewhere(transport) => transport.clone(),
            ServerOrigin::Here(process) => match process.state() {
                ServerState::Running(transport) => *transport,
                _ => return false,
            },
        };
        self.probe.is_answered(&transport, PROBE_TIMEOUT).await
    }
}

/// Probes a server out of reach until it answers or is dropped.
async fn probe(server: Weak<AgentServer>) {
    let mut delay = PROBE_DELAY;
    loop {
        tokio::time::sleep(delay).await;
        let Some(server) = server.upgrade() else { return };
        if server.is_answering().await {
            tracing::info!(url = server.url(), "a server of agents is in reach again");
            return server.breaker.record_success();
        }
        delay = (delay * 2).min(MAX_PROBE_DELAY);
    }
}

/// Returns the error of a request of which the server has received nothing.
fn unreached(error: &Error) -> TransportError {
    TransportError {
        message: error.message().to_owned(),
        hint: error.hint_text().map(str::to_owned),
        is_unreached: true,
    }
}

// === impl Probe ===

impl Probe {
    /// Returns its path, relative to the path of the server's address.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Ping => "/ping",
            Self::AgentSearch => "/agents/search",
        }
    }

    /// Returns whether the server answers within `limit`. A refusal (4xx) counts as an answer. An error of the server or of a proxy (5xx) does not.
    pub(super) async fn is_answered(self, server: &HttpTransport, limit: Duration) -> bool {
        let (method, body) = match self {
            Self::Ping => (Method::Get, Bytes::new()),
            Self::AgentSearch => (Method::Post, Bytes::from_static(b"{}")),
        };
        let path = format!("{}{}", server.path(), self.path());
        let headers = vec![("accept", "application/json".to_owned())];
        let headers = match method {
            Method::Get => headers,
            _ => [headers, vec![("content-type", "application/json".to_owned())]].concat(),
        };
        let answer = timeout(limit, server.send(Request { method, path, headers, body })).await;
        matches!(answer, Ok(Ok(response)) if response.status < 500)
    }
}

impl fmt::Display for AgentServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url())
    }
}
