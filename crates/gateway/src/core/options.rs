//! The gateway's settings.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use trilogue_domain::{AgentName, Principal, limits};
use trilogue_wire::json::DEFAULT_MAX_TREE_BYTES;

use super::callback_secrets::CallbackSecrets;
use super::exposure::Exposure;
use super::scheme::Scheme;

/// The gateway's settings.
#[derive(Clone, Debug)]
pub struct Options {
    pub access: Access,
    /// How callers of an agent may show who they are, where it has a say of its own; see [`Scheme::DEFAULT`] for the others.
    pub agent_schemes: HashMap<AgentName, Vec<Scheme>>,
    /// Who callers without a token are, for agents that take them: needed where one does.
    pub anonymous: Option<Principal>,
    /// Whether callers without a token learn which agents there are and what each takes; else only of agents that take such callers.
    pub public_agents: bool,
    pub exposure: Exposure,
    /// The address under which clients reach the server, without a mount's prefix; where there is none, addresses that are handed out begin with the host that a request names.
    pub public_url: Option<String>,
    /// Host names that this server answers for beside loopback ones, without port.
    pub allowed_hosts: Vec<String>,
    /// Origins of pages that may call, such as `https://inspector.example.com`. They are told so by CORS headers; without any there are none. A page of an allowed host's own origin may always call.
    pub allowed_origins: Vec<String>,
    /// Where the inspector is: nothing for the root, else such as `/inspector`. `None`: nowhere.
    pub inspector: Option<String>,
    /// What the keys of callbacks are derived from; the sender of callbacks has the same.
    pub callback_secrets: CallbackSecrets,
    /// The store's URL; shown in the status.
    pub store_url: String,
    /// Whether several nodes share the store: then a request for another's thread is sent there.
    pub has_nodes: bool,
    /// Protections that were switched off, by the name of the option that did; shown in the status.
    pub dangerously: Vec<String>,
    pub max_body_bytes: usize,
    /// The most bytes of request bodies that the server holds at once, of all clients together, each with what its JSON takes in memory. One of the largest size always fits.
    pub max_bodies_bytes: usize,
    /// What the JSON of a body may take in memory as a tree of values, in bytes, where six times the body is less.
    pub max_json_tree_bytes: usize,
    /// The largest head of a request, address and headers together, in bytes.
    pub max_head_bytes: usize,
    pub max_headers: usize,
    /// The largest metadata of one part, in bytes of its JSON.
    pub max_part_metadata_bytes: usize,
    /// The most output of a run that is given in one response, in bytes.
    pub max_output_bytes: usize,
    /// The most connections at once, as far as the limit of open files allows them; further ones wait to be accepted.
    pub max_connections: usize,
    /// The most connections at once of one address. `None`: three quarters of all.
    pub max_connections_per_peer: Option<usize>,
    pub max_streams: usize,
    /// The most event streams of one principal. `None`: three quarters of all.
    pub max_streams_per_principal: Option<usize>,
    /// The most requests of one principal that are at work or wait for a run at once. `None`: three quarters of `max_connections`.
    pub max_requests_per_principal: Option<usize>,
    /// The most requests at once on one HTTP/2 connection.
    pub max_requests_per_connection: u32,
    /// How long a client may take to send the head of a request, and how long a connection may idle.
    pub head_timeout: Duration,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How long a client may accept nothing of what is sent to it, on the connection and on each stream of HTTP/2.
    pub write_timeout: Duration,
    /// How long a client can wait in one request for the end of a run in the Agent Connect Protocol.
    pub max_wait: Duration,
    /// How often a stream without news says that it lives.
    pub heartbeat: Duration,
    /// How old what is known of a token may be: a revoked one ends its streams within twice this.
    pub token_recheck: Duration,
    /// The most failed sign-ins of one address in a minute, by token or link, that are answered with 401; further ones get 429. A valid token or link is always let in.
    pub max_failed_sign_ins: u32,
    /// The most rendered events that are kept for sharing between streams, in bytes.
    pub render_cache_bytes: usize,
    /// How long a connection has to end: when the server stops, after its runs and streams have, and when it takes no more requests.
    pub connection_grace: Duration,
}

#[derive(Clone, Debug)]
pub enum Access {
    /// Who shows a token.
    Tokens,
    /// Everybody who reaches the listener, in the name of this principal. Only on loopback.
    Open(Principal),
}

/// Whether browsers reach the server over TLS, as the operator says.
pub(crate) fn is_encrypted(public_url: Option<&str>) -> bool {
    public_url.is_some_and(|url| url.starts_with("https:"))
}

// === impl Options ===

impl Options {
    pub(crate) fn is_encrypted(&self) -> bool {
        is_encrypted(self.public_url.as_deref())
    }

    pub(crate) fn max_streams_each(&self) -> usize {
        self.max_streams_per_principal.unwrap_or((self.max_streams - self.max_streams / 4).max(1))
    }

    pub(crate) fn max_requests_each(&self) -> usize {
        self.max_requests_per_principal
            .unwrap_or((self.max_connections - self.max_connections / 4).max(1))
    }

    /// Where everybody reaches the server, without a slash at the end: what the operator says, else the first listener.
    pub(crate) fn address(&self, listeners: &[SocketAddr]) -> String {
        if let Some(url) = &self.public_url {
            return url.trim_end_matches('/').to_owned();
        }
        match listeners.first() {
            // Nobody can connect to the address that stands for all of them.
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
            dangerously: Vec::new(),
            max_body_bytes: limits::DEFAULT_MAX_BODY_BYTES,
            max_part_metadata_bytes: limits::DEFAULT_MAX_PART_METADATA_BYTES,
            max_head_bytes: 32 * 1024,
            max_headers: 100,
            max_output_bytes: 32 * 1024 * 1024,
            max_bodies_bytes: 256 * 1024 * 1024,
            max_json_tree_bytes: DEFAULT_MAX_TREE_BYTES,
            max_connections: 4_096,
            max_connections_per_peer: None,
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
