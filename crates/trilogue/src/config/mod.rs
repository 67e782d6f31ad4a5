//! The configuration file: the options of every part, composed.
//!
//! What the doc comments of these types say is the reference: `docs/configuration.md` is generated from them.

mod agent;
mod client;
mod explain;
mod exposure;
mod list;
mod load;
mod mounts;
mod notify;
mod quantity;
mod reference;
mod scheme;
mod secret;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_domain::Principal;
use trilogue_gateway as gateway;
use trilogue_store::record::NoOriginals;

pub use agent::{
    Agent, AgentKind, ClientMeta, ClientTools, Decision, Files, Hidden, OnRewind, Permission,
    Processes,
};
pub use client::{Client, MessageIdFormat, UserMessageId, WhenBusy};
pub use explain::{Origin, Setting, settings};
pub use exposure::{Exposed, check, overrides};
pub use list::{Item, List};
pub use load::{Error, Loaded, load, nearest, parse};
pub use mounts::{ErrorBody, Mount, Protocol};
pub use notify::Notify;
pub use quantity::{NotAQuantity, Size, Span};
pub use reference::reference;
pub use scheme::Scheme;
pub use secret::Secret;
pub use trilogue_egress::Cidr;

/// The port that is used where none is named.
pub const DEFAULT_PORT: u16 = 7878;
/// How long a run without a thread of its client's is kept by default.
const STATELESS_KEPT: Duration = Duration::from_secs(3600);

/// Everything that can be set. An empty file is a valid configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Where the server listens, and who may reach it.
    pub server: Server,
    /// Where the protocols are served. A protocol that is not listed is served at its default place: `communication` at `/communication`, `connect` at `/connect`.
    pub mounts: Vec<Mount>,
    /// What the server may reach by itself.
    pub egress: Egress,
    /// How clients of runs are called back.
    pub callbacks: Callbacks,
    /// Who is told when an agent begins to wait for an answer, on whichever protocol: an address, or a command. It gets one JSON object with `type` (`interrupt.raised`), `interrupt_id`, `run_id`, `thread_id`, `agent`, `kind`, `title` and `answer`, the command that answers. Three attempts are made.
    pub notify: Notify,
    /// How clients of the Agent Client Protocol are served: editors that start `trilogue connect` or `trilogue wrap`.
    pub client: Client,
    /// Where threads are kept, and how safely.
    pub store: Store,
    /// How runs are executed and how long they are kept.
    pub runtime: Runtime,
    /// What the server writes to standard error.
    pub log: Log,
    /// The agents, by the name under which they are served: letters, digits, `_` and `-`.
    pub agents: IndexMap<String, Agent>,
}

/// Where the server listens, and who may reach it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Addresses with ports to listen on. An address beyond loopback needs `trusted_proxies` or `dangerously_plain_http`. Where nothing is set and the machine has no IPv6, `[::1]` is left out.
    pub listen: List<SocketAddr>,
    /// The address under which clients reach the server, used in absolute addresses that it hands out. Its host is allowed.
    pub public_url: Option<String>,
    /// Host names that requests may name in `Host`, with or without port, besides the addresses listened on and `localhost`.
    pub allowed_hosts: List<String>,
    /// Origins of web pages that may call the server, such as `https://app.example.com`, with a token: browsers are told so by CORS headers. Pages of the server's own hosts may always, others not by default.
    pub allowed_origins: List<String>,
    /// Reverse proxies that end TLS in front of the server: addresses or blocks such as `10.0.0.0/8`. On a listener beyond loopback, connections from anywhere else but this machine are closed, unless `dangerously_plain_http` is set. They replace no token.
    pub trusted_proxies: List<Cidr>,
    /// Serve without tokens. Only possible while every listener is on loopback; every local user can then run agents.
    pub no_auth: bool,
    /// Listen beyond loopback without TLS, for whoever connects. Everybody on the way can read tokens and content.
    pub dangerously_plain_http: bool,
    /// How long a stop waits for running agents and open responses before it gives them up.
    pub shutdown_deadline: Span,
    /// Whether the server is the one that `trilogue connect` and `trilogue wrap` of its user find, by a socket that only this user can reach; one server of a user is.
    pub socket: Socket,
    /// How long nobody must have been connected to that socket, and no run been open, until the server ends by itself; `"0s"` for never. Not set: 30 minutes for a server that `connect` or `wrap` started, never for others.
    pub idle_exit: Option<Span>,
    /// Bounds on what one client can use.
    pub limits: Limits,
}

/// Whether a server is found by the programs of its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Socket {
    /// It is, unless another one is already.
    #[default]
    On,
    /// It is not.
    Off,
}

/// Bounds on what one client can use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The largest request body.
    pub max_body: Size,
    /// The largest metadata of one part of a message.
    pub max_part_metadata: Size,
    /// The most connections at once.
    pub max_connections: usize,
    /// The most event streams at once.
    pub max_streams: usize,
    /// How long the head of a request may take, and how long a connection may idle.
    pub head_timeout: Span,
    /// How long a request body may take.
    pub body_timeout: Span,
    /// How long a client may accept nothing of what is sent to it.
    pub write_timeout: Span,
    /// How often an event stream without news says that it lives.
    pub heartbeat: Span,
}

/// What the server may reach by itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Egress {
    /// Private addresses or blocks that the server may reach, such as `127.0.0.1` or `10.0.0.0/8`: a session's history may lie on another server, and clients may want to be called back there. Public addresses it always may.
    pub allow: List<Cidr>,
}

/// How clients of runs are called back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Callbacks {
    /// What callbacks are signed with, as Standard Webhooks writes it: `whsec_` and 24 to 64 bytes in base64. Two while one takes over from the other. Not set: one that the server makes at its first start and keeps in the per-user state folder; `trilogue webhooks secret` shows it.
    pub secrets: List<Secret>,
    /// How often a callback is tried before it goes to the dead-letter list.
    pub attempts: u32,
    /// How long a callback waits after its first failure; doubled with each further one.
    pub backoff: Span,
    /// The longest that a callback waits between two attempts.
    pub max_backoff: Span,
}

/// Where threads are kept, and how safely.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// `memory:`, or `sqlite:PATH`; a relative path begins at the working directory.
    pub url: String,
    /// When a change counts as stored: `fsync` when the disk has it, `buffered` when the operating system has it (a power cut may lose the last moments).
    pub durability: Durability,
    /// How much of the newest events of all threads stays in memory for readers.
    pub tail_cache: Size,
    /// The largest size of the database file; reaching it is a full disk. Not set: as large as the disk.
    pub max_size: Option<Size>,
    /// The room that is kept for ending runs when the disk is full.
    pub reserve: Size,
    /// `memory:` only: the most runs that are kept; then the oldest ended ones go.
    pub memory_runs: usize,
    /// `memory:` only: the most content that is kept; then the oldest ended runs go.
    pub memory_size: Size,
}

/// When a change counts as stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// When the disk has it.
    #[default]
    Fsync,
    /// When the operating system has it.
    Buffered,
}

/// How runs are executed and how long they are kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Runtime {
    /// How long a question that cannot outlive the server waits while nobody who may answer is connected.
    pub interrupt_deadline: Span,
    /// How long a cancelled agent has to stop by itself.
    pub cancel_grace: Span,
    /// The most runs that wait for their turn on one thread.
    pub max_queued_runs_per_thread: usize,
    /// The most runs at work at once; further ones wait in order.
    pub max_running: usize,
    /// Remove runs that ended longer ago than this. Not set: they are kept.
    pub keep_runs_for: Option<Span>,
    /// Keep at most this many ended runs a thread, the newest. Not set: all.
    pub keep_runs_per_thread: Option<u64>,
    /// Keep at most this many ended runs a tenant, the newest. Not set: all.
    pub keep_runs_per_tenant: Option<u64>,
    /// Remove runs without a thread of their client's that ended longer ago than this.
    pub keep_stateless_runs_for: Span,
    /// How often old runs are looked for.
    pub retention_interval: Span,
}

/// What the server writes to standard error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// `text` for people, `json` for programs: one object a line.
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug` or `trace`; or by part, such as `info,trilogue_store=debug`.
    pub level: String,
}

/// The form of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    #[default]
    Json,
}

// === impl Options ===

impl Options {
    /// The options of a server that keeps everything in memory, with a store of its own for each start.
    #[must_use]
    pub fn in_memory() -> Self {
        let mut options = Self::default();
        "memory:".clone_into(&mut options.store.url);
        options
    }
}

// === impl Server ===

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: List(vec![
                SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)),
                SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, DEFAULT_PORT)),
            ]),
            public_url: None,
            allowed_hosts: List::default(),
            allowed_origins: List::default(),
            trusted_proxies: List::default(),
            no_auth: false,
            dangerously_plain_http: false,
            shutdown_deadline: Span::seconds(30),
            socket: Socket::On,
            idle_exit: None,
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let options = gateway::Options::default();
        Self {
            max_body: Size::of(options.max_body_bytes),
            max_part_metadata: Size::of(options.max_part_metadata_bytes),
            max_connections: options.max_connections,
            max_streams: options.max_streams,
            head_timeout: Span(options.head_timeout),
            body_timeout: Span(options.body_timeout),
            write_timeout: Span(options.write_timeout),
            heartbeat: Span(options.heartbeat),
        }
    }
}

impl Server {
    /// The gateway's own options; `owner` is who everybody is where nobody shows a token.
    #[must_use]
    pub fn to_options(&self, owner: Principal, dangerously: Vec<String>) -> gateway::Options {
        let loopback = self.listen.0.iter().all(|address| address.ip().is_loopback());
        gateway::Options {
            access: match self.no_auth {
                true => gateway::Access::Open(owner),
                false => gateway::Access::Tokens,
            },
            exposure: if loopback {
                gateway::Exposure::Loopback
            } else if self.dangerously_plain_http {
                gateway::Exposure::DangerouslyPublic
            } else {
                gateway::Exposure::BehindProxy(gateway::Proxies {
                    blocks: self.trusted_proxies.0.clone(),
                    loopback: true,
                })
            },
            public_url: self.public_url.clone(),
            max_part_metadata_bytes: self.limits.max_part_metadata.to_usize(),
            allowed_hosts: self.hosts(),
            allowed_origins: self.allowed_origins.0.clone(),
            dangerously,
            max_body_bytes: self.limits.max_body.to_usize(),
            max_connections: self.limits.max_connections,
            max_streams: self.limits.max_streams,
            head_timeout: self.limits.head_timeout.0,
            body_timeout: self.limits.body_timeout.0,
            write_timeout: self.limits.write_timeout.0,
            heartbeat: self.limits.heartbeat.0,
            ..gateway::Options::default()
        }
    }

    /// The host names, without ports, that requests may name beside the addresses listened on.
    fn hosts(&self) -> Vec<String> {
        let host = |text: &String| {
            url::Url::parse(&format!("http://{text}")).ok()?.host_str().map(str::to_owned)
        };
        let public = self.public_url.as_deref().and_then(|url| url::Url::parse(url).ok());
        let public = public.and_then(|url| url.host_str().map(str::to_owned));
        self.allowed_hosts.0.iter().filter_map(host).chain(public).collect()
    }
}

// === impl Egress ===

impl Egress {
    /// The policy of the client that reaches out.
    #[must_use]
    pub fn to_policy(&self) -> trilogue_egress::Policy {
        trilogue_egress::Policy { allow: self.allow.0.clone() }
    }
}

// === impl Callbacks ===

impl Default for Callbacks {
    fn default() -> Self {
        let options = trilogue_runtime::Options::default();
        Self {
            secrets: List::default(),
            attempts: options.callback_attempts,
            backoff: Span(options.callback_backoff),
            max_backoff: Span(options.callback_backoff_max),
        }
    }
}

// === impl Store ===

impl Default for Store {
    fn default() -> Self {
        let options = trilogue_store::Options::new(Arc::new(NoOriginals));
        Self {
            url: "sqlite:trilogue.db".to_owned(),
            durability: Durability::Fsync,
            tail_cache: Size::of(options.tail_cache_bytes),
            max_size: options.max_bytes.map(Size),
            reserve: Size(options.reserve_bytes),
            memory_runs: options.memory_runs,
            memory_size: Size::of(options.memory_bytes),
        }
    }
}

impl Store {
    /// The store's own options.
    #[must_use]
    pub fn to_options(&self) -> trilogue_store::Options {
        trilogue_store::Options {
            durability: match self.durability {
                Durability::Fsync => trilogue_store::Durability::Fsync,
                Durability::Buffered => trilogue_store::Durability::Buffered,
            },
            tail_cache_bytes: self.tail_cache.to_usize(),
            max_bytes: self.max_size.map(|size| size.0),
            reserve_bytes: self.reserve.0,
            memory_runs: self.memory_runs,
            memory_bytes: self.memory_size.to_usize(),
            ..trilogue_store::Options::new(Arc::new(NoOriginals))
        }
    }
}

// === impl Runtime ===

impl Default for Runtime {
    fn default() -> Self {
        let options = trilogue_runtime::Options::default();
        Self {
            interrupt_deadline: Span(options.interrupt_deadline),
            cancel_grace: Span(options.cancel_grace),
            max_queued_runs_per_thread: options.max_queued_runs_per_thread,
            max_running: options.max_running,
            keep_runs_for: options.retention.max_age.map(Span),
            keep_runs_per_thread: options.retention.max_runs_per_thread,
            keep_runs_per_tenant: options.retention.max_runs_per_tenant,
            keep_stateless_runs_for: Span(
                options.retention.max_stateless_age.unwrap_or(STATELESS_KEPT),
            ),
            retention_interval: Span(options.retention_interval),
        }
    }
}

impl Runtime {
    /// The runtime's own options.
    #[must_use]
    pub fn to_options(&self) -> trilogue_runtime::Options {
        trilogue_runtime::Options {
            interrupt_deadline: self.interrupt_deadline.0,
            cancel_grace: self.cancel_grace.0,
            max_queued_runs_per_thread: self.max_queued_runs_per_thread,
            max_running: self.max_running,
            retention: trilogue_store::rows::RetentionPolicy {
                max_stateless_age: Some(self.keep_stateless_runs_for.0),
                max_age: self.keep_runs_for.map(|span| span.0),
                max_runs_per_thread: self.keep_runs_per_thread,
                max_runs_per_tenant: self.keep_runs_per_tenant,
            },
            retention_interval: self.retention_interval.0,
            ..trilogue_runtime::Options::default()
        }
    }
}

// === impl Log ===

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Json, level: "info".to_owned() }
    }
}
