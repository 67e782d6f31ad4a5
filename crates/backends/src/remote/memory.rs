//! What an agent at another server knows of a thread, and what the log knows of a run there.

use trilogue_domain::{Error, Failure, Json};
use trilogue_mapping::LoggedPosition;
use trilogue_runtime::{MemoryState, NewestMessages, RunContext};

/// The most bytes of a thread's earlier messages that are sent before the input of a run: whole messages, the newest ones.
const MAX_EARLIER_BYTES: usize = 8 * 1024 * 1024;

/// What an agent at another server knows of a thread.
#[derive(Debug)]
pub(crate) struct RemoteMemory {
    /// The conversation there; `None` where there is none that goes on with the thread.
    pub(crate) session: Option<String>,
    /// Messages that the agent has not seen.
    pub(crate) missed: NewestMessages,
}

// === impl RemoteMemory ===

impl RemoteMemory {
    /// That of an agent that remembers nothing from one run to the next.
    pub(crate) async fn nothing(context: &RunContext) -> Result<Self, Failure> {
        let missed = context.newest_history(MAX_EARLIER_BYTES).await;
        let missed = missed.map_err(|error| failed(&error))?;
        Ok(Self { session: None, missed })
    }
}

/// What the agent knows of the thread of a run.
pub(crate) async fn memory(context: &RunContext) -> Result<RemoteMemory, Failure> {
    let state = context.memory_state(MAX_EARLIER_BYTES).await;
    match state.map_err(|error| failed(&error))? {
        MemoryState::Bound { binding, missed } => {
            Ok(RemoteMemory { session: Some(binding.remote), missed })
        }
        MemoryState::Unbound | MemoryState::Rewound { .. } => RemoteMemory::nothing(context).await,
    }
}

/// Binds the thread to a conversation at the server, before a run begins there; `false` where the run here was stopped.
pub(crate) async fn bind(context: &RunContext, session: &str) -> bool {
    context.bind(session, Json::empty_object()).await.is_ok()
}

/// Has the end of a run that goes on count as seen by its agent, which knows the thread from its beginning.
pub(super) async fn note_memory(context: &RunContext) -> Result<(), Failure> {
    context.binding().await.map(drop).map_err(|error| failed(&error))
}

/// How much of a run there is in its log here. Its unfinished messages go on.
pub(crate) async fn log_position(context: &RunContext) -> Result<LoggedPosition, Failure> {
    let mut position = LoggedPosition::of_run(context.run().as_str());
    let read = context.each_event(|event| position.push(&event.body));
    read.await.map_err(|error| failed(&error))?;
    for (message, role) in position.open() {
        context.continue_message(message, role);
    }
    Ok(position)
}

fn failed(error: &Error) -> Failure {
    Failure::of(error.code(), error.message())
}
