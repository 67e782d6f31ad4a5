use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the server is and does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The server's version.
    pub version: String,
    /// Its process id.
    #[serde(default)]
    pub pid: u32,
    /// When it started.
    pub started_at: String,
    /// How durable an acknowledged event is: `fsync`, `buffered` or `memory`.
    pub durability: String,
    /// Why the store takes no writes, where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_problem: Option<String>,
    /// The store in numbers.
    pub store: StoreState,
    /// The runtime in numbers.
    pub runtime: RuntimeState,
    /// The processes of hosted agents.
    pub agents: AgentState,
    /// The servers that share the store, by name; none where one process holds it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Node>,
    /// The agents that only some of the live servers have, or that they describe differently, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_differences: Vec<AgentDifference>,
    /// Open connections over HTTP.
    pub connections: u64,
    /// The editors and other programs on this machine that are connected through the server's socket.
    #[serde(default)]
    pub clients: Vec<ConnectedClient>,
    /// Open event streams.
    pub streams: u64,
    /// Protections that were switched off, by the name of the option that did.
    pub dangerously: Vec<String>,
}

/// A server among those that share a store.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its name, from its configuration.
    pub name: String,
    /// Where the others reach it.
    pub address: String,
    /// Its version.
    pub version: String,
    /// Whether it gives signs of life: the threads of one that does not are taken over.
    pub alive: bool,
    /// Whether it hands its threads over and takes no others.
    #[serde(default)]
    pub draining: bool,
    /// Whether it is the server that says this.
    pub this: bool,
    /// The time since its last sign of life, by the database's clock, in milliseconds.
    pub silent_ms: u64,
    /// How many threads with an open run it owns.
    pub open_threads: u64,
    /// The names of its agents; none where it does not tell them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
}

/// An agent about which the servers that share a store do not agree.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentDifference {
    /// Its name.
    pub agent: String,
    /// The names of the servers that have it. Those that describe it in the same way are together: more than one group means that they describe it differently.
    pub variants: Vec<Vec<String>>,
    /// The names of the servers that do not have it. They send requests for it to the others.
    pub missing_on: Vec<String>,
}

/// A wish to have a thread on another server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadHandOver {
    /// The name of the server that gets the thread.
    pub node: String,
}

/// A program on this machine that is connected through the server's socket, such as an editor.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ConnectedClient {
    /// The agent that it is connected to.
    pub agent: String,
    /// The client's name, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The client's version, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its working directory, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The id of the process that holds the connection, such as that of `trilogue connect`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Since when it is connected.
    pub since: String,
}

/// The store in numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StoreState {
    /// Its URL, such as `sqlite:/home/ada/.local/state/trilogue/trilogue.db`.
    #[serde(default)]
    pub url: String,
    /// Threads.
    pub threads: u64,
    /// Runs.
    pub runs: u64,
    /// Bytes on disk, or held in memory.
    pub bytes: u64,
    /// Bytes of the tail cache.
    pub cache_bytes: u64,
    /// Threads whose stored data is damaged.
    pub quarantined: u64,
    /// Acknowledged changes that the store's write-ahead log has lost, because it was damaged. Zero again when the threads that it damaged are erased, or when a backup is restored.
    #[serde(default)]
    pub lost_commits: u64,
    /// When a start last found such a loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_at: Option<String>,
    /// Commits since the start.
    pub commits: u64,
    /// Frames appended since the start.
    pub frames: u64,
    /// Version of the store's schema.
    pub schema_version: u32,
}

/// The processes of hosted agents in numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentState {
    /// Processes that run.
    pub processes: u64,
    /// Those that no run uses.
    pub idle: u64,
    /// What each of them uses.
    #[serde(default)]
    pub list: Vec<AgentProcess>,
}

/// A process of a hosted agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentProcess {
    /// The name of its agent.
    pub agent: String,
    /// Its process id.
    pub pid: u32,
    /// The memory of the process and what it started, in bytes; zero where the system does not say.
    pub memory_bytes: u64,
    /// Whether no run uses it.
    pub idle: bool,
}

/// What a process of a hosted agent wrote to its standard error.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ProcessStderr {
    /// The name of its agent.
    pub agent: String,
    /// Its process id.
    pub pid: u32,
    /// The end of it, at most 64 KiB: whole lines, without control characters and without the values of the agent's own variables.
    pub text: String,
}

/// The runtime in numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeState {
    /// Runs whose agents are at work.
    pub running: u64,
    /// Thread owners in memory.
    pub owners: u64,
    /// Whether the server is shutting down.
    pub draining: bool,
}
