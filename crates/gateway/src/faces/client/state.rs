//! The state that all connections of this face share.

use std::sync::Arc;
use std::time::Duration;

use metrics::Counter;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::port::Clock;
use trilogue_domain::{AgentName, Code, Error};
use trilogue_runtime::Runtime;
use trilogue_runtime::shares::{Shares, default_share};
use trilogue_store::Read;
use trilogue_wire::native::local::AttachCapability;

use super::ClientProtocol;
use super::ask_registry::AskRegistry;
use super::network::continuation::Continuation;
use super::network::http::connection::HttpConnection;
use super::network::lasting::LastingConnections;
use super::open_sessions::OpenSessions;
use super::options::ClientOptions;
use super::wrap::Wrap;
use crate::access::authenticator::Authenticator;
use crate::core::audit::RefusalLimits;
use crate::core::connected_clients::ConnectedClients;
use crate::core::lifecycle::Lifecycle;
use crate::core::opened_folders::OpenedFolders;
use crate::face::Services;
use crate::http::node_client::NodeClient;
use crate::http::receive::BodyBudget;
use crate::stream::Streams;

/// The state that all connections of this face share: the ports that it needs, and the counts over all connections.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) options: ClientOptions,
    wrap: Option<Arc<dyn Wrap>>,
    /// The agent whose endpoint is the mount's own path too.
    pub(super) agent: Option<AgentName>,
    /// How long connections have to end when the server stops.
    pub(super) connection_grace: Duration,
    /// How long a client may accept no bytes.
    pub(super) write_timeout: Duration,
    pub(super) runtime: Runtime,
    pub(super) read: Arc<dyn Read>,
    /// Sends requests to the nodes that own other threads.
    pub(super) node_client: Option<Arc<NodeClient>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) open_sessions: OpenSessions,
    pub(super) asks: AskRegistry,
    pub(super) connected_clients: ConnectedClients,
    pub(super) opened_folders: OpenedFolders,
    pub(super) refusals: Arc<RefusalLimits>,
    /// Identifies this start of the server.
    pub(super) life: String,
    pub(super) panics: Counter,
    pub(super) repeated_ids: Counter,
    pub(super) authenticator: Arc<Authenticator>,
    /// Permits for clients over the network.
    pub(super) network_room: Arc<Semaphore>,
    /// The clients of each principal among them.
    pub(super) network_shares: Arc<Shares>,
    pub(super) http_connections: LastingConnections<HttpConnection>,
    /// The connections whose clients may continue them on another WebSocket.
    pub(super) continuations: LastingConnections<Continuation>,
    pub(super) streams: Arc<Streams>,
    /// The budget of what arrives from clients of the network.
    pub(super) body_budget: Arc<BodyBudget>,
    /// The budget of their requests that are not answered.
    pub(super) open_request_budget: Arc<BodyBudget>,
    /// The budget of what they have not read.
    pub(super) response_budget: Arc<BodyBudget>,
    /// The budget of what they were sent and may ask for again.
    pub(super) kept_budget: Arc<BodyBudget>,
    lifecycle: Arc<Lifecycle>,
    /// Cancelled when streams of sessions end.
    pub(super) streams_end: CancellationToken,
}

// === impl State ===

impl State {
    pub(super) fn new(services: &Services, protocol: &ClientProtocol) -> Self {
        let Services { ports, options, meters, lifecycle, .. } = services;
        Self {
            options: protocol.options.clone(),
            wrap: protocol.wrap.clone(),
            agent: protocol.agent.clone(),
            connection_grace: options.connection_grace,
            write_timeout: options.write_timeout,
            runtime: ports.runtime.clone(),
            read: Arc::clone(&ports.read),
            node_client: services.node_client.clone(),
            clock: Arc::clone(&ports.clock),
            open_sessions: OpenSessions::clone(&services.common_state()),
            asks: AskRegistry::clone(&services.common_state()),
            connected_clients: ConnectedClients::clone(&services.common_state()),
            opened_folders: OpenedFolders::clone(&services.common_state()),
            refusals: services.common_state(),
            life: uuid::Uuid::new_v4().to_string(),
            panics: meters.panics.clone(),
            repeated_ids: meters.repeated_ids.clone(),
            authenticator: Arc::clone(&services.authenticator),
            network_room: Arc::new(Semaphore::new(protocol.options.max_network_connections)),
            network_shares: Shares::new(default_share(protocol.options.max_network_connections)),
            http_connections: LastingConnections::default(),
            continuations: LastingConnections::default(),
            streams: Arc::clone(&services.streams),
            body_budget: Arc::clone(&services.body_budget),
            open_request_budget: Arc::clone(&services.open_request_budget),
            response_budget: Arc::clone(&services.response_budget),
            kept_budget: Arc::clone(&services.kept_budget),
            streams_end: lifecycle.streams_end(),
            lifecycle: Arc::clone(lifecycle),
        }
    }

    /// Returns the port that wraps commands. Errors: `invalid_request` if the server has no such port.
    pub(super) fn wrap(&self) -> Result<&dyn Wrap> {
        let refused = || {
            Error::new(Code::InvalidRequest, "this server wraps no commands")
                .hint("over the network a client reaches the server's agents; its own commands run on its own machine")
        };
        self.wrap.as_deref().ok_or_else(refused)
    }

    /// Returns what `initialize` announces on the connection with this id, or on one that cannot be continued.
    pub(super) fn attach_capability(&self, connection: Option<&str>) -> AttachCapability {
        let grace_ms = u64::try_from(self.options.idle_timeout.as_millis()).unwrap_or(u64::MAX);
        AttachCapability { connection_id: connection.map(str::to_owned), grace_ms }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.lifecycle.is_draining()
    }
}
