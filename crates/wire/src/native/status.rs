use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the server is and does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The server's version.
    pub version: String,
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
    /// Open connections.
    pub connections: u64,
    /// Open event streams.
    pub streams: u64,
    /// Protections that were switched off, by the name of the option that did.
    pub dangerously: Vec<String>,
}

/// The store in numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StoreState {
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
