//! The gateway's settings.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use trilogue_domain::{AgentName, Principal, limits};
use trilogue_runtime::shares::default_share;
use trilogue_wire::json::DEFAULT_MAX_TREE_BYTES;

use super::callback_secrets::CallbackSecrets;
use super::exposure::Exposure;
use super::scheme::Scheme;

/// The gateway's settings.
#[derive(Clone, Debug)]
pub struct Options {
    pub access: Access,
    /// The authentication schemes of agents with their own setting; the others use [`Scheme::DEFAULT`].
    pub agent_schemes: HashMap<AgentName, Vec<Scheme>>,
    /// The principal of callers without a token, for agents that accept them: required if an agent does.
    pub anonymous: Option<Principal>,
    /// Whether callers without a token can list all agents and their schemes; otherwise they see only agents that accept such callers.
    pub public_agents: bool,
    pub exposure: Exposure,
    /// The address under which clients reach the server, without a mount's prefix; without it, generated addresses begin with the host of the request.
    pub public_url: Option<String>,
    /// The host names that this server answers for in addition to loopback ones, without port.
    pub allowed_hosts: Vec<String>,
    /// The origins of pages that may call, such as `https://inspector.example.com`. CORS headers tell browsers so; an empty list sends none. Pages from an allowed host itself may always call.
    pub allowed_origins: Vec<String>,
    /// The path of the inspector: empty for the root, otherwise such as `/inspector`. `None` disables it.
    pub inspector: Option<String>,
    /// The secrets that callback keys are derived from; the callback sender has the same.
    pub callback_secrets: CallbackSecrets,
    /// The store's URL, for the status.
    pub store_url: String,
    /// Whether several nodes share the store: then requests for another node's thread are forwarded.
    pub has_nodes: bool,
    /// The name of this server among those nodes; empty if `has_nodes` is `false`.
    pub node_name: String,
    /// The disabled protections, by the name of the option that disables each; for the status.
    pub dangerously: Vec<String>,
    pub max_body_bytes: usize,
    /// The most bytes of request bodies that the server holds at once, for all clients together and including the memory of their JSON. One body of the largest size always fits.
    pub max_bodies_bytes: usize,
    /// The most bytes of responses that clients have not taken yet, over all connections; one principal can have half of them. Small responses do not count.
    pub max_responses_bytes: usize,
    /// The most memory that the JSON tree of one body can take, in bytes; a body of more than a sixth of this can take six times its size.
    pub max_json_tree_bytes: usize,
    /// The largest request head (address and headers), in bytes.
    pub max_head_bytes: usize,
    pub max_headers: usize,
    /// The largest metadata of one part, in bytes of JSON.
    pub max_part_metadata_bytes: usize,
    /// The most run output in one response, in bytes.
    pub max_output_bytes: usize,
    /// The most connections at once, within the limit of open files; further ones wait to be accepted.
    pub max_connections: usize,
    /// The most connections at once from one address. `None`: three quarters of all.
    pub max_connections_per_peer: Option<usize>,
    /// The most connections that requests of one principal use at once. `None`: three quarters of those of one address, and fewer than these.
    pub max_connections_per_principal: Option<usize>,
    pub max_streams: usize,
    /// The most event streams of one principal. `None`: three quarters of all.
    pub max_streams_per_principal: Option<usize>,
    /// The most requests of one principal that are in progress or wait for a run at once. `None`: three quarters of `max_connections`.
    pub max_requests_per_principal: Option<usize>,
    /// The most requests at once on one HTTP/2 connection.
    pub max_requests_per_connection: u32,
    /// How long a client may take to send a request head, and how long a connection may be idle.
    pub head_timeout: Duration,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How long a client may accept no bytes, on a connection and on each HTTP/2 stream.
    pub write_timeout: Duration,
    /// How long one request of the Agent Connect Protocol can wait for the end of a run.
    pub max_wait: Duration,
    /// How often an idle stream sends a heartbeat.
    pub heartbeat: Duration,
    /// How long a token's state is cached: a revoked token's streams end within twice this.
    pub token_recheck: Duration,
    /// The most failed sign-ins of one address per minute, by token or link, that get 401; further ones get 429. A valid token or link always works.
    pub max_failed_sign_ins: u32,
    /// The most rendered events that streams share, in bytes.
    pub render_cache_bytes: usize,
    /// How long a connection has to end: at shutdown, after its runs and streams have ended, and when it accepts no more requests.
    pub connection_grace: Duration,
}

#[derive(Clone, Debug)]
pub enum Access {
    /// Callers with a token.
    Tokens,
    /// Everyone who reaches the listener, as this principal. Only on loopback.
    Open(Principal),
}

/// Whether browsers reach the server over TLS, according to the public URL.
pub(crate) fn is_encrypted(public_url: Option<&str>) -> bool {
    public_url.is_some_and(|url| url.starts_with("https:"))
}

// === impl Options ===

impl Options {
    pub(crate) fn is_encrypted(&self) -> bool {
        is_encrypted(self.public_url.as_deref())
    }

    pub(crate) fn max_streams_each(&self) -> usize {
        self.max_streams_per_principal.unwrap_or_else(|| default_share(self.max_streams))
    }

    pub(crate) fn max_requests_each(&self) -> usize {
        self.max_requests_per_principal.unwrap_or_else(|| default_share(self.max_connections))
    }

    /// Returns the server's address for clients, without a trailing slash: the configured one, or the first listener's.
    pub(crate) fn address(&self, listeners: &[SocketAddr]) -> String {
        if let Some(url) = &self.public_url {
            return url.trim_end_matches('/').to_owned();
        }
        match listeners.first() {
            // Clients cannot connect to the unspecified address, so name loopback.
            Some(address) if address.ip().is_unspecified() => {
                format!("http://localhost:{}", address.port())
            }
            Some(address) => format!("http://{address}"),
            None => "http://localhost".to_owned(),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            access: Access::Tokens,
            agent_schemes: HashMap::new(),
            anonymous: None,
            public_agents: false,
            exposure: Exposure::Loopback,
            public_url: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            inspector: None,
            callback_secrets: CallbackSecrets::default(),
            store_url: String::new(),
            has_nodes: false,
            node_name: String::new(),
            dangerously: Vec::new(),
            max_body_bytes: limits::DEFAULT_MAX_BODY_BYTES,
            max_part_metadata_bytes: limits::DEFAULT_MAX_PART_METADATA_BYTES,
            max_head_bytes: 32 * 1024,
            max_headers: 100,
            max_output_bytes: 32 * 1024 * 1024,
            max_bodies_bytes: 256 * 1024 * 1024,
            max_responses_bytes: 256 * 1024 * 1024,
            max_json_tree_bytes: DEFAULT_MAX_TREE_BYTES,
            max_connections: 4_096,
            max_connections_per_peer: None,
            max_connections_per_principal: None,
            max_streams: 4_096,
            max_streams_per_principal: None,
            max_requests_per_principal: None,
            max_requests_per_connection: 256,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            max_wait: Duration::from_secs(60 * 60),
            heartbeat: Duration::from_secs(15),
            token_recheck: Duration::from_secs(2),
            max_failed_sign_ins: 60,
            render_cache_bytes: 32 * 1024 * 1024,
            connection_grace: Duration::from_secs(5),
        }
    }
}
