//! Commands to a session's pump.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use trilogue_wire::jsonrpc::Id;

use super::super::wire::lines::MethodResult;

/// How many commands may wait for a pump.
pub(crate) const MAX_COMMANDS: usize = 64;

#[derive(Debug)]
pub(crate) enum PumpCommand {
    Replay(ReplayStart),
    /// Answer the prompts whose runs ended before the position that the client has reached.
    AnswerEnded,
    /// Report when everything before this command is in the outbox.
    Flush(oneshot::Sender<()>),
}

/// Where the pump begins, and what it does once the client has received the log up to `until`.
#[derive(Debug)]
pub(crate) struct ReplayStart {
    /// The number of the last event that the client has; `None` if it has everything up to now.
    pub(crate) from: Option<u64>,
    /// The number of the last event at the time of the request.
    pub(crate) until: u64,
    /// Whether the client receives its own messages too.
    pub(crate) is_replay: bool,
    /// Whether the client knows the questions that were raised before.
    pub(crate) knows_questions: bool,
    /// The request to respond to at that point.
    pub(crate) request: Option<(Id<'static>, OpenResponse)>,
    /// For a sub-agent: the replay of the session that the client has opened.
    pub(crate) parent: Option<ParentReplay>,
    /// The numbers of the last events that the client has of sub-agents, by their sessions.
    pub(crate) children: ChildPositions,
}

/// How far a client that continues has received the sub-agents of a session.
pub(crate) type ChildPositions = Option<Arc<BTreeMap<String, u64>>>;

/// A replay that waits for the part of a sub-agent.
#[derive(Debug)]
pub(crate) struct ParentReplay {
    /// Dropped when the sub-agent's part is in the outbox.
    pub(crate) caught_up: oneshot::Sender<()>,
    /// Cancelled at the end of the replay: until then the sub-agent sends nothing more.
    pub(crate) ended: CancellationToken,
}

/// The response to a request that opens a session.
#[derive(Debug)]
pub(crate) enum OpenResponse {
    Ready(MethodResult),
    /// Built from the log's state of the agent's session.
    FromLog,
}

// === impl ReplayStart ===

impl ReplayStart {
    /// Begins after event `from`, without a response.
    pub(crate) const fn live(from: u64, until: u64) -> Self {
        Self {
            from: Some(from),
            until,
            is_replay: false,
            knows_questions: true,
            request: None,
            parent: None,
            children: None,
        }
    }
}
