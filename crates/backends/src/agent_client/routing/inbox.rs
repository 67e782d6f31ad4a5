//! A session's queue: the agent's updates and requests in it, in order, bounded by count and by bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use trilogue_domain::{Body, Error, MessageId};
use trilogue_mapping::LoggedPosition;
use trilogue_mapping::agent_client::{MAX_IGNORED_BYTES, WorkReport};
use trilogue_runtime::RunContext;
use trilogue_sdk::agent_client::peer::{Backpressure, IgnoredReason, Notification, Request};

const MAX_ITEMS: usize = 1_024;
/// The most bytes that wait in a session. A larger update waits alone.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// How long the event about a stop may take.
const STOP_LOG_LIMIT: Duration = Duration::from_secs(5);

/// The sending end of a session's queue. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct SessionInbox {
    items: mpsc::Sender<SessionItem>,
    bytes: Arc<Semaphore>,
    /// Whether the session has tool calls that the agent has not ended.
    has_open_calls: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(crate) enum SessionItem {
    Notification {
        notification: Notification,
        _bytes: OwnedSemaphorePermit,
    },
    Request {
        request: Request,
        _bytes: OwnedSemaphorePermit,
    },
    /// The agent's process wants to reach a host that no setting allows.
    Network(NetworkQuestion),
    /// The agent's process has used the network: this event says how.
    NetworkUse(Box<Body>),
    /// The agent sent something that is not a message, or that was changed to be read.
    Ignored {
        line: IgnoredLine,
        _bytes: OwnedSemaphorePermit,
    },
    /// The agent sent a line that was too long to be read.
    Oversize(OversizeLine),
    /// The agent announces a sub-agent of the session with this update.
    NewSubagent {
        new: NewSubagentSession,
        notification: Notification,
        _bytes: OwnedSemaphorePermit,
    },
    /// The session's parent reports what this sub-agent does, at its place among the sub-agent's own messages.
    Work(WorkReport),
    /// The parent's session was closed: the sub-agent's open work ends as cancelled.
    ParentClosed,
    /// The parent's session gets a prompt: updates after this are no replay.
    ReplayOver,
    /// A response arrived while the session was being opened: notifications before it may be older than the response.
    Response,
    Begin {
        context: RunContext,
        user: MessageId,
        /// What the log has of the turn, if this server continues one that began in a previous server.
        logged: Option<Box<LoggedPosition>>,
    },
    /// The agent has answered the prompt. All items before it are logged once this is answered; later ones still belong to the run.
    Answered {
        end: TurnEnd,
        done: oneshot::Sender<AnsweredTurn>,
    },
    /// A run that the agent started begins. `done` is answered when the agent is quiet.
    BeginBackground {
        context: RunContext,
        done: oneshot::Sender<TurnSummary>,
    },
    /// The agent was asked to cancel its work: the run ends as soon as the agent is quiet, at the latest after `grace`.
    CancelBackground {
        grace: Duration,
    },
    /// The session is open: the agent's work outside of prompts can get runs.
    Opened,
    /// The agent's process has ended.
    ProcessEnded,
    /// The server stops the agent, or closes its session, for this reason.
    Stopping {
        reason: &'static str,
        done: oneshot::Sender<()>,
    },
    /// A run ends. All items before it are logged once this is answered.
    Finish {
        end: TurnEnd,
        done: oneshot::Sender<TurnSummary>,
    },
    /// The agent replays the history after this item. The replay is not logged.
    Replay,
    /// The agent has opened the session again.
    Reopened {
        may_still_replay: bool,
    },
    /// Requests the time at which the replay ends if no more updates arrive. `None` if there is nothing to wait for.
    ReplayEnd {
        is_expected: bool,
        ends: oneshot::Sender<Option<Instant>>,
    },
}

/// A question whether a process of the agent may reach a host.
#[derive(Debug)]
pub(crate) struct NetworkQuestion {
    /// The name or the address, as it is compared with settings.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Whether the hosts that people have allowed before were looked at.
    pub(crate) is_checked: bool,
    /// Dropped if no client can answer. Closed if the process no longer waits.
    pub(crate) answer: oneshot::Sender<NetworkDecision>,
}

/// The answer to a [`NetworkQuestion`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NetworkDecision {
    pub(crate) is_allowed: bool,
    /// The principal that answered, now or before: a person, or `rule:NAME`.
    pub(crate) by: String,
}

/// A session that the agent has just announced as a sub-agent, before it has a thread.
#[derive(Debug)]
pub(crate) struct NewSubagentSession {
    /// The agent's id of it.
    pub(crate) remote: String,
    pub(crate) inbox: SessionInbox,
    pub(crate) items: mpsc::Receiver<SessionItem>,
}

/// How work without a prompt ended, if it did not end as a turn usually does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WorkStop {
    Cancelled,
    ProcessEnded,
    /// It failed, for this reason.
    Failed(Option<String>),
    /// Another reason to stop, in the agent's word.
    Other(String),
}

#[derive(Debug)]
pub(crate) struct IgnoredLine {
    pub(crate) reason: IgnoredReason,
    /// The whole line, if its message follows. Otherwise its beginning, or nothing if the session must not see it.
    pub(crate) shown: Bytes,
    /// The bytes that it has.
    pub(crate) length: usize,
}

#[derive(Debug)]
pub(crate) struct OversizeLine {
    pub(crate) limit: usize,
    pub(crate) method: Option<String>,
    /// Whether it is logged. Other lines were answered, or may belong to another session.
    pub(crate) is_logged: bool,
}

#[derive(Debug, Default)]
pub(crate) struct TurnSummary {
    /// Whether the agent has begun to work: it has sent an update or a request in the turn.
    pub(crate) has_worked: bool,
    /// Why the log refused an event. The run fails with this error.
    pub(crate) refused: Option<Error>,
    /// How the agent reports that the work of a sub-agent ended.
    pub(crate) stop: Option<WorkStop>,
}

/// A turn whose agent has answered.
#[derive(Debug, Default)]
pub(crate) struct AnsweredTurn {
    pub(crate) summary: TurnSummary,
    /// Cancelled when the agent reports that it is idle.
    pub(crate) idle: CancellationToken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TurnEnd {
    Completed,
    /// The turn broke off: its open tool calls have failed.
    Broken,
}

// === impl SessionItem ===

impl SessionItem {
    /// The bytes of the agent's message.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Notification { notification, .. } => notification.params.as_bytes().len(),
            Self::Request { request, .. } => request.params().as_bytes().len(),
            _ => 0,
        }
    }
}

// === impl SessionInbox ===

impl SessionInbox {
    pub(crate) fn new() -> (Self, mpsc::Receiver<SessionItem>) {
        let (items, receiver) = mpsc::channel(MAX_ITEMS);
        let bytes = Arc::new(Semaphore::new(MAX_BYTES));
        (Self { items, bytes, has_open_calls: Arc::default() }, receiver)
    }

    pub(crate) fn set_open_calls(&self, are_any: bool) {
        self.has_open_calls.store(are_any, Ordering::Relaxed);
    }

    pub(crate) fn has_open_calls(&self) -> bool {
        self.has_open_calls.load(Ordering::Relaxed)
    }

    /// Logs why the server stops the agent, or closes its session.
    pub(crate) async fn log_stop(&self, reason: &'static str) {
        let logging = async {
            let (done, logged) = oneshot::channel();
            self.put(SessionItem::Stopping { reason, done }).await;
            // A closed session has no log to write to.
            drop(logged.await);
        };
        // A slow store must not keep the agent.
        drop(timeout(STOP_LOG_LIMIT, logging).await);
    }

    pub(super) fn notify(&self, notification: Notification) -> Backpressure {
        let length = notification.params.as_bytes().len();
        self.add_sized(length, |bytes| SessionItem::Notification { notification, _bytes: bytes })
    }

    pub(super) fn request(&self, request: Request) -> Backpressure {
        let length = request.params().as_bytes().len();
        self.add_sized(length, |bytes| SessionItem::Request { request, _bytes: bytes })
    }

    pub(super) fn ignored(&self, line: IgnoredLine) -> Backpressure {
        self.add_sized(line.shown.len(), |bytes| SessionItem::Ignored { line, _bytes: bytes })
    }

    pub(super) fn oversize(&self, line: OversizeLine) -> Backpressure {
        self.add(SessionItem::Oversize(line))
    }

    pub(super) fn response(&self) -> Backpressure {
        self.add(SessionItem::Response)
    }

    /// Adds an update that announces a sub-agent.
    pub(super) fn announce(
        &self,
        new: NewSubagentSession,
        notification: Notification,
    ) -> Backpressure {
        let length = notification.params.as_bytes().len();
        self.add_sized(length, |bytes| SessionItem::NewSubagent {
            new,
            notification,
            _bytes: bytes,
        })
    }

    /// Adds a question or a report about the network. A full queue drops it: the question is then refused.
    pub(super) fn try_put(&self, item: SessionItem) {
        drop(self.items.try_send(item));
    }

    /// Adds an item without content.
    pub(super) fn note(&self, item: SessionItem) -> Backpressure {
        self.add(item)
    }

    /// Notes that the parent's session was closed. A full queue is emptied by the end of the session, which follows.
    pub(crate) fn parent_closed(&self) {
        drop(self.items.try_send(SessionItem::ParentClosed));
    }

    /// Notes that the process has ended. A full queue is emptied by the end of the session, which follows.
    pub(super) fn process_ended(&self) {
        drop(self.items.try_send(SessionItem::ProcessEnded));
    }

    /// Whether both belong to one session.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.items.same_channel(&other.items)
    }

    /// Whether a message is not handled yet: it is in the queue, or waits for a run.
    pub(crate) fn has_unhandled(&self) -> bool {
        self.bytes.available_permits() < MAX_BYTES
    }

    /// Adds an item of this many bytes once there is space for them.
    fn add_sized(
        &self,
        length: usize,
        item: impl FnOnce(OwnedSemaphorePermit) -> SessionItem + Send + 'static,
    ) -> Backpressure {
        // The clamp keeps it far below the maximum, so the conversion cannot fail.
        let bytes = u32::try_from(length.min(MAX_BYTES)).unwrap_or(1);
        if let Ok(permit) = Arc::clone(&self.bytes).try_acquire_many_owned(bytes) {
            return self.add(item(permit));
        }
        let inbox = self.clone();
        Backpressure::Full(Box::pin(async move {
            let permit = Arc::clone(&inbox.bytes).acquire_many_owned(bytes).await;
            let Ok(permit) = permit else { return };
            inbox.put(item(permit)).await;
        }))
    }

    fn add(&self, item: SessionItem) -> Backpressure {
        match self.items.try_send(item) {
            Ok(()) | Err(TrySendError::Closed(_)) => Backpressure::Ready,
            Err(TrySendError::Full(item)) => {
                let inbox = self.clone();
                Backpressure::Full(Box::pin(async move { inbox.put(item).await }))
            }
        }
    }

    /// A place at the end of the queue. `None` if the session has ended.
    pub(super) async fn place(&self) -> Option<mpsc::Permit<'_, SessionItem>> {
        self.items.reserve().await.ok()
    }

    /// Appends an item to the queue. A session that has ended drops it.
    pub(crate) async fn put(&self, item: SessionItem) {
        drop(self.items.send(item).await);
    }
}

// === impl IgnoredLine ===

impl IgnoredLine {
    pub(super) fn new(reason: IgnoredReason, line: &Bytes, is_shown: bool) -> Self {
        let shown = match reason {
            _ if !is_shown => Bytes::new(),
            IgnoredReason::ReplacedBytes => line.clone(),
            // A copy, so that the event does not keep the whole line in memory.
            _ => Bytes::copy_from_slice(line.get(..MAX_IGNORED_BYTES).unwrap_or(line)),
        };
        Self { reason, shown, length: line.len() }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use trilogue_sdk::agent_client::peer::RawJson;

    use super::*;

    fn update(bytes: usize) -> Notification {
        let params = RawJson::parse(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap();
        Notification { method: "session/update".into(), params }
    }

    #[tokio::test]
    async fn what_waits_in_a_session_is_bounded_in_bytes() {
        let (inbox, mut items) = SessionInbox::new();
        assert!(matches!(inbox.notify(update(MAX_BYTES / 2)), Backpressure::Ready));
        assert!(matches!(inbox.notify(update(MAX_BYTES / 2)), Backpressure::Ready));
        let Backpressure::Full(mut waiting) = inbox.notify(update(100)) else {
            panic!("there is no room for it");
        };
        assert_eq!((&mut waiting).now_or_never(), None);
        assert_eq!(items.len(), 2);
        drop(items.recv().await);
        waiting.await;
        assert_eq!(items.len(), 2);
        // An update that is larger than the whole space waits until it is alone.
        let Backpressure::Full(mut large) = inbox.notify(update(MAX_BYTES + 1)) else {
            panic!("there is no room for it");
        };
        drop(items.recv().await);
        assert_eq!((&mut large).now_or_never(), None);
        drop(items.recv().await);
        large.await;
        assert_eq!(items.len(), 1);
    }
}
