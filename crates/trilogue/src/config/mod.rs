//! The configuration file: the options of every part, composed.
//!
//! `docs/reference/configuration.md` is generated from the doc comments of these types.

mod agent;
mod agent_limits;
mod agent_network;
mod agent_registry;
mod agent_settings;
mod client;
mod cluster;
mod explain;
mod exposure;
mod inspector;
mod list;
mod load;
mod log;
mod mcp_server;
mod mounts;
mod names;
mod network;
mod notify;
mod quantity;
mod reference;
mod scheme;
mod secret;
mod secret_text;
mod starter;
mod telemetry;
mod token_as;
mod usual_keys;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_backends::child::Budget;
use trilogue_domain::Principal;
use trilogue_gateway as gateway;
use trilogue_store::record::NoOriginals;

pub use trilogue_backends::agent_client::{
    ClientMeta, ClientTools, OnRewind, Processes, PromptCitations,
};
pub use trilogue_backends::permission::Verdict;
pub use trilogue_backends::workspace::Files;

pub use agent::{Agent, AllAgents, Permission, RedactedText, StartIn};
pub use agent_limits::{AgentLimits, Cores};
pub use agent_network::{KeySetting, NetworkSetting};
pub use agent_registry::AgentRegistry;
pub use agent_settings::AgentKind;
pub use client::{Client, MessageIdFormat, UserMessageId, WhenBusy};
pub use cluster::{Cluster, is_local};
pub use explain::{Origin, Setting, settings};
pub use exposure::{ExposureError, check, overrides};
pub use inspector::Inspector;
pub use list::{Item, List};
pub use load::{Error, LoadedConfig, load, nearest, parse};
pub use log::{Log, LogFormat};
pub use mcp_server::McpServer;
pub(crate) use mounts::to_gateway;
pub use mounts::{ErrorBody, Mount, Protocol};
pub(crate) use names::check_hosts_and_origins;
pub use network::Network;
pub use notify::Notify;
pub use quantity::{NotAQuantity, Size, Span};
pub use reference::reference;
pub use scheme::Scheme;
pub use secret::Secret;
pub(crate) use secret_text::{check_secret_text, secret_of_file, secret_text};
pub use starter::starter;
pub use telemetry::{Otlp, Ratio, Telemetry};
pub(crate) use token_as::RESERVED;
pub use token_as::{NotATokenForm, TokenAs};
pub use trilogue_egress::Cidr;

/// The port to listen on if you name none.
pub const DEFAULT_PORT: u16 = 7878;
/// How long the server keeps a stateless run by default.
const STATELESS_KEPT: Duration = Duration::from_secs(3600);

/// All settings. An empty file is a valid configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Where the server listens, and who can reach it.
    pub server: Server,
    /// The paths of the protocols. Without an entry, a protocol has its default path: `/communication` for `communication`, `/connect` for `connect`.
    pub mounts: Vec<Mount>,
    /// The page in the browser that shows agents, threads and questions.
    pub inspector: Inspector,
    /// The private addresses that the server may contact.
    pub egress: Egress,
    /// What hosted agents with a `network` of hosts reach at most. See [Network](../network.md).
    pub network: Network,
    /// How the server calls back the clients of runs.
    pub callbacks: Callbacks,
    /// A notification when an agent starts to wait for an answer, on any protocol. The server sends it to a URL or to a command, and tries three times. It is one JSON object with `type` (`interrupt.raised`), `interrupt_id`, `run_id`, `thread_id`, `agent`, `kind`, `title`, at most the first 200 characters of the question, and `answer`: the command that shows all of it and answers it.
    pub notify: Notify,
    /// Clients of the Agent Client Protocol: editors that start `trilogue connect` or `trilogue wrap`.
    pub client: Client,
    /// Where the server stores threads, and how durably.
    pub store: Store,
    /// The server among others that share a store in PostgreSQL. Every client reaches every thread through every server: one owns a thread, and the others send requests for it there. With another store this table has no effect.
    pub cluster: Cluster,
    /// How the server executes runs, and how long it keeps them.
    pub runtime: Runtime,
    /// What the server writes to standard error.
    pub log: Log,
    /// What the server reports to other systems. `GET /metrics` needs no setting.
    pub telemetry: Telemetry,
    /// The official registry of agents, from which `trilogue agents known` takes names and versions.
    pub agent_registry: AgentRegistry,
    /// The agents. `NAME` is the agent's name for clients: letters, digits, `_` and `-`.
    pub agents: IndexMap<String, Agent>,
    /// The file that the settings were read from. No agent gets it from the server.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// Further files that no agent gets: those of another server with these agents.
    #[serde(skip)]
    pub private_files: Vec<PathBuf>,
}

/// Where the server listens, and who can reach it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// The addresses and ports to listen on. An address other than loopback needs `trusted_proxies` or `dangerously_plain_http`. The default leaves out `[::1]` on a machine without IPv6.
    pub listen: List<SocketAddr>,
    /// The base URL of the server for clients. The server uses it in absolute URLs and allows its host name.
    pub public_url: Option<String>,
    /// More host names that the server accepts in the header `Host`, in full, with or without a port; patterns are not supported. It always accepts its listen addresses and `localhost`.
    pub allowed_hosts: List<String>,
    /// More origins of web pages that may call the server with a token, as browsers write them, such as `https://app.example.com`; patterns are not supported. The server sends them CORS headers. Pages from the server's own hosts may always call it.
    pub allowed_origins: List<String>,
    /// Reverse proxies that terminate TLS in front of the server: addresses, or blocks such as `10.0.0.0/8`. A listener other than loopback then closes connections from anywhere else except this machine, unless `dangerously_plain_http` is set. Clients still need a token.
    pub trusted_proxies: List<Cidr>,
    /// Whether callers without a token learn which agents there are, what credentials each takes, and its schemas. Without it, they learn that only of agents with `authentication = ["none"]`.
    pub public_agents: bool,
    /// Serve without tokens. Every listener has to be on loopback. Every local user can then run agents.
    pub no_auth: bool,
    /// Listen on other addresses than loopback without TLS, for every client. Anyone on the network path can read tokens and content.
    pub dangerously_plain_http: bool,
    /// How long the server waits for running agents and open responses when it stops. Then it abandons them.
    pub shutdown_deadline: Span,
    /// Whether `trilogue connect` and `trilogue wrap` of the same user find this server, through a socket that only this user can open. Only one server per user can be `on`.
    pub socket: Socket,
    /// The server stops after this time without a connection to the socket and without an open run. `"0s"` means never. Not set: 30 minutes if `connect` or `wrap` started the server, otherwise never.
    pub idle_exit: Option<Span>,
    /// Limits on what clients can use.
    pub limits: Limits,
}

/// Whether programs of the same user find a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Socket {
    /// They do, unless another server already has the socket.
    #[default]
    On,
    /// They do not.
    Off,
}

/// Limits on what clients can use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The largest request body.
    pub max_body: Size,
    /// The memory that the JSON of a request body may need for its values, also where that is more than six times the body. The server refuses JSON of more and smaller values with 413 `json_too_complex`.
    pub max_json_tree: Size,
    /// The largest size of all request bodies together that the server holds at once, with the memory for their JSON values. It answers a further request with 429 `overloaded` and `Retry-After`. At least `max_body`. Requests of editors over the network that are not answered may use as much again.
    pub max_bodies: Size,
    /// The largest size of all responses together that clients have asked for and not taken yet; one principal can have half. Responses of up to 16 KiB do not count. Messages that clients under `/client` have not read count from the first byte; without room for one, its connection ends. Those that were sent and are kept for clients that continue have a quarter of it beside. The server answers a request whose response has no room with 429 `overloaded` and `Retry-After`. At least 32 MiB, the largest response.
    pub max_responses: Size,
    /// The largest metadata of one message part.
    pub max_part_metadata: Size,
    /// The maximum number of connections. The server raises its soft limit of open files at start, and leaves 1024 of them, at most half, to its other work: if fewer are left than this, that is the maximum. A new connection waits while it is reached; connections without a request for 1 second, and those whose client has not shown a token, are closed for it.
    pub max_connections: usize,
    /// The maximum number of connections of one address, or of one /64 block of IPv6. Trusted proxies have no such limit. Not set: three quarters of all.
    pub max_connections_per_peer: Option<usize>,
    /// The maximum number of connections that requests of one principal use at once; idle ones do not count. A request on a further one gets 429 `overloaded` with `Retry-After`. Not set: three quarters of those of one address, so that other principals and health checks reach the server from there.
    pub max_connections_per_principal: Option<usize>,
    /// The maximum number of event streams.
    pub max_streams: usize,
    /// The maximum number of event streams of one principal. Not set: three quarters of all.
    pub max_streams_per_principal: Option<usize>,
    /// The maximum number of requests of one principal that are at work or wait for a run. Not set: three quarters of `max_connections`.
    pub max_requests_per_principal: Option<usize>,
    /// The maximum number of failed sign-ins from one address, or from one /64 block of IPv6, within a minute. A further one gets 429 `overloaded` with `Retry-After`. Valid tokens and links are always let in.
    pub max_failed_sign_ins: u32,
    /// How long a request's head may take, and how long a connection may stay idle.
    pub head_timeout: Span,
    /// How long a request body may take.
    pub body_timeout: Span,
    /// How long a client may leave a response unread. It then loses the connection; on HTTP/2, the response, and the connection when its other responses have ended.
    pub write_timeout: Span,
    /// How often the server sends a heartbeat on an idle event stream.
    pub heartbeat: Span,
    /// The longest time that `…/wait` of the Agent Connect Protocol takes, with and without `timeout`. Then the response is 204 and the run continues. A wait without `timeout` that has sent line feeds ends with the run alone instead.
    pub max_wait: Span,
}

/// The private addresses that the server may contact.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Egress {
    /// Private addresses or blocks that the server may contact, such as `127.0.0.1` or `10.0.0.0/8`: for a session history on another server, or for a callback. It may always contact public addresses.
    pub allow: List<Cidr>,
}

/// How the server calls back the clients of runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Callbacks {
    /// The signing secrets in the form of Standard Webhooks: `whsec_` and 24 to 64 bytes in base64. Set two while you rotate them. Not set: the server makes a secret at its first start and keeps it in the user's state folder; it signs nothing itself: each address and principal has a key derived from it, which `trilogue webhooks secret URL` shows.
    pub secrets: List<Secret>,
    /// How many times the server tries a callback before it moves it to the dead-letter list.
    pub attempts: u32,
    /// The wait after the first failure. It doubles with each further failure.
    pub backoff: Span,
    /// The longest wait between two attempts.
    pub max_backoff: Span,
}

/// Where the server stores threads, and how durably.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// `memory:`, `sqlite:PATH` or `postgres://USER@HOST:PORT/DATABASE`. A relative path starts at the working directory. For PostgreSQL, `sslmode=verify-full` (the default beyond this machine) encrypts and verifies, with the authorities of the system or those in the file `sslrootcert`; `sslmode=disable` does neither.
    pub url: String,
    /// PostgreSQL only: the environment variable with the password, where the URL holds none.
    pub password_env: Option<String>,
    /// PostgreSQL only: the file with the password, in place of `password_env`.
    pub password_file: Option<String>,
    /// PostgreSQL only: how many connections look things up at once. Two more write, and one gives the signs of life.
    pub connections: usize,
    /// PostgreSQL only: the longest wait for a connection.
    pub connect_timeout: Span,
    /// PostgreSQL only: how long the server tries a change or a look-up again while the database cannot be reached, before it fails with `store_unavailable`.
    pub retry_for: Span,
    /// PostgreSQL only: a bucket for large content. Not set: all content is in the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blobs: Option<Blobs>,
    /// When a change counts as stored: `fsync` means it is on the disk; `buffered` means the operating system has it, so a power cut can lose the last moments.
    pub durability: Durability,
    /// The size of the memory cache for the newest events of all threads.
    pub tail_cache: Size,
    /// The largest size of the database file. The server treats a file of this size like a full disk. Not set: no limit but the disk.
    pub max_size: Option<Size>,
    /// The space that the server reserves for ending runs when the disk is full.
    pub reserve: Size,
    /// `memory:` only: the maximum number of runs. Above it, the server removes the oldest ended runs; those of a thread that a client has open go last.
    pub memory_runs: usize,
    /// `memory:` only: the maximum size of all content. Above it, the server removes the oldest ended runs and empty threads; those that a client has open go last.
    pub memory_size: Size,
}

/// A bucket for large content, in a store of objects that speaks the protocol of Amazon S3. All servers of a cluster have the same. PostgreSQL only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Blobs {
    /// `https://HOST:PORT/BUCKET`, or `s3://BUCKET` for Amazon's own. `http` sends content unencrypted; `trilogue status` shows it for another machine. The bucket has to exist.
    pub url: String,
    /// The region that requests are signed for.
    #[serde(default = "usual_region")]
    pub region: String,
    /// The id of the access key. Not set, like the secret: as Amazon's own programs find them, such as in `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` or by the machine's role.
    #[serde(default)]
    pub key_id: Option<String>,
    /// The environment variable with the secret of the access key.
    #[serde(default)]
    pub secret_env: Option<String>,
    /// The file with the secret, in place of `secret_env`.
    #[serde(default)]
    pub secret_file: Option<String>,
    /// Content of at least this size goes to the bucket. What is stored already stays where it is.
    #[serde(default = "usual_min_size")]
    pub min_size: Size,
}

/// When a change counts as stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The disk has it.
    #[default]
    Fsync,
    /// The operating system has it.
    Buffered,
}

/// How the server executes runs, and how long it keeps them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Runtime {
    /// How long a question that is lost on a restart waits while no client that can answer it is connected, counted from when the last such client left. An editor counts until it has sent nothing for this time.
    pub interrupt_deadline: Span,
    /// How long a question with a deadline waits at most, also while a client that can answer it is connected.
    pub attended_deadline: Span,
    /// How long a cancelled agent has to stop on its own. Then the server drops a built-in agent, and kills the process of a hosted one.
    pub cancel_grace: Span,
    /// The maximum number of queued runs of one thread.
    pub max_queued_runs_per_thread: usize,
    /// The maximum number of runs at work. Further runs wait in order. A run that waits for an answer is not at work. A run whose agent waits for another agent that it called through its context is not at work either. A run whose agent is a client of this server and waits for another run is at work, because the server cannot know what an agent waits for: set the limit above the number of runs that can wait in this way at once.
    pub max_running: usize,
    /// The maximum number of runs of one principal that are at work, on each server. Its further runs wait behind its own, and runs of others start before them. Not set: three quarters of `max_running`, at least 1. Set it to `max_running` if all runs are of one principal.
    pub max_running_per_principal: Option<usize>,
    /// The maximum number of runs of a chain in which each agent called the next.
    pub max_call_depth: usize,
    /// The maximum number of runs that one run called and that have not ended.
    pub max_calls_per_run: usize,
    /// The maximum number of runs of one principal that are scheduled and not due, in each server. A further one gets 429 `overloaded`.
    pub max_scheduled_runs_per_principal: usize,
    /// The maximum number of runs of one principal that have not ended, in each server: scheduled, queued, waiting for an answer or at work. A further one gets 429 `overloaded`.
    pub max_open_runs_per_principal: usize,
    /// The maximum number of events that one turn of an agent at another server logs, and of those that log nothing because they repeat a state. Its run then fails with `remote_output_too_large`.
    pub max_remote_events: u64,
    /// The maximum size of them, with the content that is stored beside the log. Its run then fails with `remote_output_too_large`.
    pub max_remote_output: Size,
    /// The maximum number of processes of all hosted agents together. The one that has been idle longest makes room for another.
    pub max_agent_processes: usize,
    /// The most memory of all processes of hosted agents together, with the processes that they started. Beyond it, idle ones are stopped before another starts.
    pub max_agent_memory: Size,
    /// Remove runs that ended longer ago than this. Not set: keep them.
    pub keep_runs_for: Option<Span>,
    /// Keep this many ended runs per thread: those that were created last, and those that ended last. Not set: keep all.
    pub keep_runs_per_thread: Option<u64>,
    /// Keep this many ended runs per tenant: those that were created last, and those that ended last. Not set: keep all.
    pub keep_runs_per_tenant: Option<u64>,
    /// Remove stateless runs that ended longer ago than this.
    pub keep_stateless_runs_for: Span,
    /// How often the server looks for runs to remove.
    pub retention_interval: Span,
}

// === impl Options ===

impl Options {
    /// The options of a server that keeps everything in memory, with a new store at each start.
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
            public_agents: false,
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
            max_json_tree: Size::of(options.max_json_tree_bytes),
            max_bodies: Size::of(options.max_bodies_bytes),
            max_responses: Size::of(options.max_responses_bytes),
            max_part_metadata: Size::of(options.max_part_metadata_bytes),
            max_connections: options.max_connections,
            max_connections_per_peer: options.max_connections_per_peer,
            max_connections_per_principal: options.max_connections_per_principal,
            max_streams: options.max_streams,
            max_streams_per_principal: options.max_streams_per_principal,
            max_requests_per_principal: options.max_requests_per_principal,
            max_failed_sign_ins: options.max_failed_sign_ins,
            head_timeout: Span(options.head_timeout),
            body_timeout: Span(options.body_timeout),
            write_timeout: Span(options.write_timeout),
            heartbeat: Span(options.heartbeat),
            max_wait: Span(options.max_wait),
        }
    }
}

impl Server {
    /// The gateway's options. Without tokens, every caller is `owner`.
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
            public_agents: self.public_agents,
            allowed_hosts: self.hosts(),
            allowed_origins: self.allowed_origins.0.clone(),
            dangerously,
            max_body_bytes: self.limits.max_body.to_usize(),
            max_json_tree_bytes: self.limits.max_json_tree.to_usize(),
            max_bodies_bytes: self.limits.max_bodies.to_usize(),
            max_responses_bytes: self.limits.max_responses.to_usize(),
            max_connections: self.limits.max_connections,
            max_connections_per_peer: self.limits.max_connections_per_peer,
            max_connections_per_principal: self.limits.max_connections_per_principal,
            max_streams: self.limits.max_streams,
            max_streams_per_principal: self.limits.max_streams_per_principal,
            max_requests_per_principal: self.limits.max_requests_per_principal,
            max_failed_sign_ins: self.limits.max_failed_sign_ins,
            head_timeout: self.limits.head_timeout.0,
            body_timeout: self.limits.body_timeout.0,
            write_timeout: self.limits.write_timeout.0,
            heartbeat: self.limits.heartbeat.0,
            max_wait: self.limits.max_wait.0,
            ..gateway::Options::default()
        }
    }

    /// The host names, without ports, that requests may name besides the listen addresses.
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
            password_env: None,
            password_file: None,
            connections: options.readers,
            connect_timeout: Span(options.connect_wait),
            retry_for: Span(options.retry_for),
            blobs: None,
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
    ///
    /// # Errors
    /// When a password or secret cannot be read.
    pub fn to_options(&self) -> trilogue_domain::error::Result<trilogue_store::Options> {
        let password = secret_text("store.password", &self.password_env, &self.password_file)?;
        Ok(trilogue_store::Options {
            password: password.map(trilogue_store::Password::new),
            readers: self.connections.max(1),
            connect_wait: self.connect_timeout.0,
            retry_for: self.retry_for.0,
            bucket: self.blobs.as_ref().map(Blobs::to_options).transpose()?,
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
        })
    }
}

impl Store {
    /// Checks the files of its secrets. Fails as [`Self::to_options`].
    pub(crate) fn check(&self) -> trilogue_domain::error::Result<()> {
        check_secret_text("store.password", &self.password_env, &self.password_file)?;
        let Some(blobs) = &self.blobs else { return Ok(()) };
        check_secret_text("store.blobs.secret", &blobs.secret_env, &blobs.secret_file)
    }
}

// === impl Blobs ===

fn usual_region() -> String {
    trilogue_store::BucketOptions::new(String::new()).region
}

fn usual_min_size() -> Size {
    Size(trilogue_store::BucketOptions::new(String::new()).min_bytes)
}

impl Blobs {
    fn to_options(&self) -> trilogue_domain::error::Result<trilogue_store::BucketOptions> {
        let secret = secret_text("store.blobs.secret", &self.secret_env, &self.secret_file)?;
        Ok(trilogue_store::BucketOptions {
            url: self.url.clone(),
            region: self.region.clone(),
            key_id: self.key_id.clone(),
            secret: secret.map(trilogue_store::Password::new),
            min_bytes: self.min_size.0,
        })
    }
}

// === impl Runtime ===

impl Default for Runtime {
    fn default() -> Self {
        let options = trilogue_runtime::Options::default();
        let budget = Budget::default();
        Self {
            interrupt_deadline: Span(options.interrupt_deadline),
            attended_deadline: Span(options.attended_deadline),
            cancel_grace: Span(options.cancel_grace),
            max_queued_runs_per_thread: options.max_queued_runs_per_thread,
            max_running: options.max_running,
            max_running_per_principal: options.max_running_per_principal,
            max_call_depth: options.max_call_depth,
            max_calls_per_run: options.max_calls_per_run,
            max_scheduled_runs_per_principal: options.max_scheduled_per_principal,
            max_open_runs_per_principal: options.max_open_runs_per_principal,
            max_remote_events: options.max_remote_events,
            max_remote_output: Size::of(options.max_remote_bytes),
            max_agent_processes: budget.max_processes,
            max_agent_memory: Size(budget.max_memory_bytes),
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
    /// What the processes of all hosted agents may use together.
    #[must_use]
    pub fn to_budget(&self) -> Budget {
        Budget {
            max_processes: self.max_agent_processes,
            max_memory_bytes: self.max_agent_memory.0,
        }
    }

    /// The runtime's own options.
    #[must_use]
    pub fn to_options(&self) -> trilogue_runtime::Options {
        trilogue_runtime::Options {
            interrupt_deadline: self.interrupt_deadline.0,
            attended_deadline: self.attended_deadline.0,
            cancel_grace: self.cancel_grace.0,
            max_queued_runs_per_thread: self.max_queued_runs_per_thread,
            max_running: self.max_running,
            max_running_per_principal: self.max_running_per_principal,
            retention: trilogue_store::rows::RetentionPolicy {
                max_stateless_age: Some(self.keep_stateless_runs_for.0),
                max_age: self.keep_runs_for.map(|span| span.0),
                max_runs_per_thread: self.keep_runs_per_thread,
                max_runs_per_tenant: self.keep_runs_per_tenant,
            },
            retention_interval: self.retention_interval.0,
            max_call_depth: self.max_call_depth,
            max_calls_per_run: self.max_calls_per_run,
            max_scheduled_per_principal: self.max_scheduled_runs_per_principal,
            max_open_runs_per_principal: self.max_open_runs_per_principal,
            max_remote_events: self.max_remote_events,
            max_remote_bytes: self.max_remote_output.to_usize(),
            ..trilogue_runtime::Options::default()
        }
    }
}
