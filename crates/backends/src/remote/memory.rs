//! Finds which messages of a thread an agent at another server has seen, and how much of a run is in the log.

use trilogue_domain::{Error, Failure, Json};
use trilogue_mapping::LoggedPosition;
use trilogue_runtime::{MemoryState, NewestMessages, RunContext};

/// The maximum size of the earlier messages that are sent before a run's input, in bytes. Whole messages are sent, the newest ones.
const MAX_EARLIER_BYTES: usize = 8 * 1024 * 1024;

/// The memory that an agent at another server has of a thread.
#[derive(Debug)]
pub(crate) struct RemoteMemory {
    /// The remote conversation of the thread. `None` if no remote conversation continues it.
    pub(crate) session: Option<String>,
    /// Messages that the agent has not seen.
    pub(crate) missed: NewestMessages,
}

// === impl RemoteMemory ===

impl RemoteMemory {
    /// Returns the memory of an agent that remembers nothing between runs: it has missed all earlier messages.
    pub(crate) async fn nothing(context: &RunContext) -> Result<Self, Failure> {
        let missed = context.newest_history(MAX_EARLIER_BYTES).await;
        let missed = missed.map_err(|error| to_failure(&error))?;
        Ok(Self { session: None, missed })
    }
}

/// Returns the memory that the agent has of a run's thread. A thread that was rewound counts as unknown to the agent.
pub(crate) async fn memory(context: &RunContext) -> Result<RemoteMemory, Failure> {
    let state = context.memory_state(MAX_EARLIER_BYTES).await;
    match state.map_err(|error| to_failure(&error))? {
        MemoryState::Bound { binding, missed } => {
            Ok(RemoteMemory { session: Some(binding.remote), missed })
        }
        MemoryState::Unbound | MemoryState::Rewound { .. } => RemoteMemory::nothing(context).await,
    }
}

/// Binds the thread to a conversation at the server. Call it before a run begins there. Returns `false` if the run here was stopped.
pub(crate) async fn bind(context: &RunContext, session: &str) -> bool {
    context.bind(session, Json::empty_object()).await.is_ok()
}

/// Loads the agent's binding, so that the end of a resumed or rejoined run counts as seen by the agent. The agent already knows the thread up to that run.
pub(super) async fn note_memory(context: &RunContext) -> Result<(), Failure> {
    context.binding().await.map(drop).map_err(|error| to_failure(&error))
}

/// Returns how much of a run is in its log here. Marks the run's unfinished messages as continued.
pub(crate) async fn log_position(context: &RunContext) -> Result<LoggedPosition, Failure> {
    let mut position = LoggedPosition::of_run(context.run().as_str());
    let read = context.each_event(|event| position.push(&event.body));
    read.await.map_err(|error| to_failure(&error))?;
    for (message, role) in position.open() {
        context.continue_message(message, role);
    }
    Ok(position)
}

fn to_failure(error: &Error) -> Failure {
    Failure::of(error.code(), error.message())
}
