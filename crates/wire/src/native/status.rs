use crate::json::record::record;

record! {
    /// The status of the server.
    pub struct Status {
        /// The server's version.
        version: String,
        /// The process id of the server.
        pid: u32 = default,
        /// When the server started.
        started_at: String,
        /// The durability of an acknowledged event: `fsync`, `buffered` or `memory`.
        durability: String,
        /// Why the store takes no writes. Absent if it takes writes.
        store_problem?: String,
        /// The statistics of the store.
        store: StoreState,
        /// The statistics of the runtime.
        runtime: RuntimeState,
        /// The processes of hosted agents.
        agents: AgentState,
        /// The servers that share the store, by name. Empty if only one process uses it.
        nodes: Vec<Node> = default unless "Vec::is_empty",
        /// The agents that only some of the live servers have, or that the servers describe differently, by name.
        agent_differences: Vec<AgentDifference> = default unless "Vec::is_empty",
        /// The number of open HTTP connections.
        connections: u64,
        /// The clients of the Agent Client Protocol that are connected: editors and other programs on the local socket, and clients over the network.
        clients: Vec<ConnectedClient> = default,
        /// The number of open event streams.
        streams: u64,
        /// The protections that are switched off, by the name of their option.
        dangerously: Vec<String>,
    }

    /// One of the servers that share a store.
    pub struct Node: Default {
        /// The server's name from its configuration.
        name: String,
        /// The address at which the other servers reach it.
        address: String,
        /// The server's version.
        version: String,
        /// Whether the server sends heartbeats. The threads of a server that does not are taken over.
        alive: bool,
        /// Whether the server hands its threads over and takes no others.
        draining: bool = default,
        /// Whether this is the server that sent this response.
        this: bool,
        /// The time since its last heartbeat, by the database's clock, in milliseconds.
        silent_ms: u64,
        /// The number of threads with an open run that it owns.
        open_threads: u64,
        /// The names of its agents. Empty if it does not report them.
        agents: Vec<String> = default unless "Vec::is_empty",
    }

    /// An agent for which the servers that share a store differ.
    pub struct AgentDifference: Default {
        /// The name of the agent.
        agent: String,
        /// The names of the servers that have the agent, in groups. Servers in one group describe it in the same way, so more than one group means a difference.
        variants: Vec<Vec<String>>,
        /// The names of the servers that do not have the agent. They forward its requests to the others.
        missing_on: Vec<String>,
    }

    /// A request to move a thread to another server.
    pub strict struct ThreadHandOver: Default {
        /// The name of the server that gets the thread.
        node: String,
    }

    /// A client of the Agent Client Protocol that is connected, such as an editor.
    pub struct ConnectedClient: Default {
        /// The agent of the connection.
        agent: String,
        /// The client's name, as it reports it.
        name?: String,
        /// The client's version, as it reports it.
        version?: String,
        /// The client's working directory, if it is known.
        cwd?: String,
        /// The id of the process that holds the connection, such as the process of `trilogue connect`. Clients over the network have none.
        pid?: u32,
        /// How the client reaches the server: `local` for the local socket, `websocket` or `http`.
        transport: String = default,
        /// The principal in whose name the client acts.
        principal: String = default,
        /// The sessions that the client has open, at most 100 of them.
        sessions: Vec<OpenSession> = default unless "Vec::is_empty",
        /// When the client connected.
        since: String,
    }

    /// A session that a client of the Agent Client Protocol has open.
    pub struct OpenSession: Default {
        /// The id of the thread.
        thread_id: String,
        /// Whether the agent's requests for files and terminals go to this client. Every other client of the session observes.
        controls: bool,
    }

    /// A client of the Agent Client Protocol that has a thread open.
    pub struct ThreadClient: Default {
        /// The client's name, as it reports it.
        name?: String,
        /// The client's version, as it reports it.
        version?: String,
        /// How the client reaches the server: `local` for the local socket, `websocket` or `http`.
        transport: String,
        /// The principal in whose name the client acts.
        principal: String,
        /// Whether the agent's requests for files and terminals go to this client. Every other client of the thread observes.
        controls: bool,
        /// When the client connected.
        since: String,
    }

    /// The statistics of the store.
    pub struct StoreState: Default {
        /// The URL of the store, such as `sqlite:/home/ada/.local/state/trilogue/trilogue.db`.
        url: String = default,
        /// The number of threads.
        threads: u64,
        /// The number of runs.
        runs: u64,
        /// The number of bytes on disk, or in memory.
        bytes: u64,
        /// The number of bytes in the tail cache.
        cache_bytes: u64,
        /// The number of threads whose stored data is damaged.
        quarantined: u64,
        /// Acknowledged changes that the store has lost: its write-ahead log was damaged, or PostgreSQL failed over to a replica without them; then each thread counts once. Zero again when the threads that it damaged are erased, or when a backup is restored.
        lost_commits: u64 = default,
        /// When a start of the server last found such a loss.
        lost_at?: String,
        /// The number of commits since the start.
        commits: u64,
        /// The number of frames that were appended since the start.
        frames: u64,
        /// The version of the store's schema.
        schema_version: u32,
    }

    /// The statistics of hosted agents' processes.
    pub struct AgentState: Default {
        /// The number of processes that run.
        processes: u64,
        /// The number of processes without a run.
        idle: u64,
        /// The processes with their resources.
        list: Vec<AgentProcess> = default,
    }

    /// A process of a hosted agent.
    pub struct AgentProcess: Default {
        /// The name of the agent.
        agent: String,
        /// The process id.
        pid: u32,
        /// The memory of the process and its child processes, in bytes. Zero if the system does not report it.
        memory_bytes: u64,
        /// Whether no run uses the process.
        idle: bool,
        /// The layers of its sandbox: `files`, `system calls`, `namespaces` and `limits`. Empty without one.
        sandbox: Vec<String> = default,
    }

    /// The standard error of a hosted agent's process.
    pub struct ProcessStderr: Default {
        /// The name of the agent.
        agent: String,
        /// The process id.
        pid: u32,
        /// The end of the output, at most 64 KiB: whole lines, without control characters and without the values of the agent's own variables.
        text: String,
    }

    /// The statistics of the runtime.
    pub struct RuntimeState: Default {
        /// The number of runs whose agents are running.
        running: u64,
        /// The number of thread owners in memory.
        owners: u64,
        /// Whether the server is shutting down.
        draining: bool,
    }
}
