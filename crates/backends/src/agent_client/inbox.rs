//! A session's queue: everything that the agent says and asks in it, in order, bounded by count and by bytes.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use trilogue_domain::MessageId;
use trilogue_runtime::RunContext;
use trilogue_sdk::agent_client::peer::{Backpressure, Notification, Request};

/// The most that waits in a session.
pub(super) const MAX_ITEMS: usize = 1_024;
/// How much waits in a session, in bytes. One update may be larger than this; it is then alone.
pub(super) const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Where what belongs to a session is put. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    items: mpsc::Sender<Item>,
    room: Arc<Semaphore>,
}

/// Something that happens in a session.
#[derive(Debug)]
pub(super) enum Item {
    /// The agent says something.
    Said { said: Notification, _room: OwnedSemaphorePermit },
    /// The agent asks something.
    Asked(Request),
    /// The agent said something that was too long to be taken.
    PassedOver(PassedOver),
    /// While the session was being opened, a call was answered: what was said before may be older than the answer.
    Answered,
    /// A run begins.
    Begin { context: RunContext, user: MessageId },
    /// A run ends: whatever was said before is logged when this is answered.
    Finish { how: Finish, done: oneshot::Sender<Finished> },
    /// The history is told again from here on, and not logged.
    Replay,
    /// The agent has opened the session again. Whether the history may still come is said.
    Reopened { may_go_on: bool },
    /// Asks when the history has been told, if nothing more comes: `None` where nothing has to be waited for.
    History { is_expected: bool, ends: oneshot::Sender<Option<Instant>> },
}

/// A line that was too long, and was let go by.
#[derive(Debug)]
pub(super) struct PassedOver {
    /// How long it might have been, in bytes.
    pub(super) limit: usize,
    /// What it said, as far as its beginning tells.
    pub(super) method: Option<String>,
    /// Whether the log says that it was there. Nobody knows of the others whose they were, or they had an answer.
    pub(super) is_noted: bool,
}

/// A run that has ended.
#[derive(Debug, Default)]
pub(super) struct Finished {
    /// Whether the agent has worked: something of the turn was heard of it.
    pub(super) was_at_work: bool,
    /// Why the run could not go on, where the log did not take something.
    pub(super) refused: Option<trilogue_domain::Error>,
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Finish {
    /// As the agent says.
    Well,
    /// Before the agent was done: its tool calls have failed.
    Broken,
}

// === impl Inbox ===

impl Inbox {
    pub(super) fn new() -> (Self, mpsc::Receiver<Item>) {
        let (items, receiver) = mpsc::channel(MAX_ITEMS);
        (Self { items, room: Arc::new(Semaphore::new(MAX_BYTES)) }, receiver)
    }

    /// Puts in what the agent says.
    pub(super) fn say(&self, said: Notification) -> Backpressure {
        // The clamp keeps it far below.
        let bytes = u32::try_from(said.params.as_bytes().len().min(MAX_BYTES)).unwrap_or(1);
        let said = match Arc::clone(&self.room).try_acquire_many_owned(bytes) {
            Ok(room) => match self.items.try_send(Item::Said { said, _room: room }) {
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => return Backpressure::Ready,
                Err(mpsc::error::TrySendError::Full(Item::Said { said, .. })) => said,
                Err(mpsc::error::TrySendError::Full(_)) => return Backpressure::Ready,
            },
            Err(_) => said,
        };
        let inbox = self.clone();
        Backpressure::Full(Box::pin(async move {
            let Ok(room) = Arc::clone(&inbox.room).acquire_many_owned(bytes).await else { return };
            inbox.put(Item::Said { said, _room: room }).await;
        }))
    }

    /// Whether both are one.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.items.same_channel(&other.items)
    }

    /// Puts in what the agent asks.
    pub(super) fn ask(&self, request: Request) -> Backpressure {
        self.add(Item::Asked(request))
    }

    /// Puts in that the agent said something which was too long.
    pub(super) fn pass_over(&self, line: PassedOver) -> Backpressure {
        self.add(Item::PassedOver(line))
    }

    /// Puts in that a call was answered.
    pub(super) fn answered(&self) -> Backpressure {
        self.add(Item::Answered)
    }

    fn add(&self, item: Item) -> Backpressure {
        match self.items.try_send(item) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Backpressure::Ready,
            Err(mpsc::error::TrySendError::Full(item)) => {
                let inbox = self.clone();
                Backpressure::Full(Box::pin(async move { inbox.put(item).await }))
            }
        }
    }

    /// Puts anything in, behind what is there. A session that has ended takes nothing.
    pub(super) async fn put(&self, item: Item) {
        drop(self.items.send(item).await);
    }
}
