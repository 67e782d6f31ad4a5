use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The status of the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The server's version.
    pub version: String,
    /// The process id of the server.
    #[serde(default)]
    pub pid: u32,
    /// When the server started.
    pub started_at: String,
    /// The durability of an acknowledged event: `fsync`, `buffered` or `memory`.
    pub durability: String,
    /// Why the store takes no writes. Absent if it takes writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_problem: Option<String>,
    /// The statistics of the store.
    pub store: StoreState,
    /// The statistics of the runtime.
    pub runtime: RuntimeState,
    /// The processes of hosted agents.
    pub agents: AgentState,
    /// The servers that share the store, by name. Empty if only one process uses it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Node>,
    /// The agents that only some of the live servers have, or that the servers describe differently, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_differences: Vec<AgentDifference>,
    /// The number of open HTTP connections.
    pub connections: u64,
    /// The editors and other programs on this machine that are connected through the server's local socket.
    #[serde(default)]
    pub clients: Vec<ConnectedClient>,
    /// The number of open event streams.
    pub streams: u64,
    /// The protections that are switched off, by the name of their option.
    pub dangerously: Vec<String>,
}

/// One of the servers that share a store.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// The server's name from its configuration.
    pub name: String,
    /// The address at which the other servers reach it.
    pub address: String,
    /// The server's version.
    pub version: String,
    /// Whether the server sends heartbeats. The threads of a server that does not are taken over.
    pub alive: bool,
    /// Whether the server hands its threads over and takes no others.
    #[serde(default)]
    pub draining: bool,
    /// Whether this is the server that sent this response.
    pub this: bool,
    /// The time since its last heartbeat, by the database's clock, in milliseconds.
    pub silent_ms: u64,
    /// The number of threads with an open run that it owns.
    pub open_threads: u64,
    /// The names of its agents. Empty if it does not report them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
}

/// An agent for which the servers that share a store differ.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentDifference {
    /// The name of the agent.
    pub agent: String,
    /// The names of the servers that have the agent, in groups. Servers in one group describe it in the same way, so more than one group means a difference.
    pub variants: Vec<Vec<String>>,
    /// The names of the servers that do not have the agent. They forward its requests to the others.
    pub missing_on: Vec<String>,
}

/// A request to move a thread to another server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadHandOver {
    /// The name of the server that gets the thread.
    pub node: String,
}

/// A program on this machine that is connected through the server's local socket, such as an editor.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ConnectedClient {
    /// The agent of the connection.
    pub agent: String,
    /// The client's name, as it reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The client's version, as it reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The client's working directory, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The id of the process that holds the connection, such as the process of `trilogue connect`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// When the client connected.
    pub since: String,
}

/// The statistics of the store.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StoreState {
    /// The URL of the store, such as `sqlite:/home/ada/.local/state/trilogue/trilogue.db`.
    #[serde(default)]
    pub url: String,
    /// The number of threads.
    pub threads: u64,
    /// The number of runs.
    pub runs: u64,
    /// The number of bytes on disk, or in memory.
    pub bytes: u64,
    /// The number of bytes in the tail cache.
    pub cache_bytes: u64,
    /// The number of threads whose stored data is damaged.
    pub quarantined: u64,
    /// Acknowledged changes that the store has lost: its write-ahead log was damaged, or PostgreSQL failed over to a replica without them; then each thread counts once. Zero again when the threads that it damaged are erased, or when a backup is restored.
    #[serde(default)]
    pub lost_commits: u64,
    /// When a start of the server last found such a loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_at: Option<String>,
    /// The number of commits since the start.
    pub commits: u64,
    /// The number of frames that were appended since the start.
    pub frames: u64,
    /// The version of the store's schema.
    pub schema_version: u32,
}

/// The statistics of hosted agents' processes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentState {
    /// The number of processes that run.
    pub processes: u64,
    /// The number of processes without a run.
    pub idle: u64,
    /// The processes with their resources.
    #[serde(default)]
    pub list: Vec<AgentProcess>,
}

/// A process of a hosted agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentProcess {
    /// The name of the agent.
    pub agent: String,
    /// The process id.
    pub pid: u32,
    /// The memory of the process and its child processes, in bytes. Zero if the system does not report it.
    pub memory_bytes: u64,
    /// Whether no run uses the process.
    pub idle: bool,
}

/// The standard error of a hosted agent's process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ProcessStderr {
    /// The name of the agent.
    pub agent: String,
    /// The process id.
    pub pid: u32,
    /// The end of the output, at most 64 KiB: whole lines, without control characters and without the values of the agent's own variables.
    pub text: String,
}

/// The statistics of the runtime.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeState {
    /// The number of runs whose agents are running.
    pub running: u64,
    /// The number of thread owners in memory.
    pub owners: u64,
    /// Whether the server is shutting down.
    pub draining: bool,
}
