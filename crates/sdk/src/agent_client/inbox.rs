//! What happened in a session and was not read yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use trilogue_domain::lock;
use trilogue_wire::agent_client::{ContentBlock, SessionUpdate};

use super::peer::{Backpressure, RawJson};
use super::update::{Grouping, Update};
use super::user_messages::UserMessages;

/// The updates of one session on their way to whoever reads them.
#[derive(Debug)]
pub(super) struct Inbox {
    max_updates: usize,
    state: Mutex<State>,
    filled: Notify,
    drained: Notify,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<Update>,
    grouping: Grouping,
    users: UserMessages,
    /// Somebody reads: a turn is at work or a session is loaded. The agent waits where the reader does not keep up.
    is_attended: bool,
    /// The session is told again.
    is_replaying: bool,
    /// Updates that were let go because nobody read them.
    missed: u64,
    /// Cancelled with the turn that is at work.
    turn: CancellationToken,
}

// === impl Inbox ===

impl Inbox {
    pub(super) fn new(max_updates: usize, users: UserMessages) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            grouping: Grouping::default(),
            users,
            is_attended: false,
            is_replaying: false,
            missed: 0,
            turn: CancellationToken::new(),
        };
        Self {
            max_updates,
            state: Mutex::new(state),
            filled: Notify::new(),
            drained: Notify::new(),
        }
    }

    /// Adds an update. Without a reader the oldest makes room for it.
    pub(super) fn push(self: &Arc<Self>, body: SessionUpdate, original: RawJson) -> Backpressure {
        let room = {
            let mut state = self.state();
            let message = state.grouping.place(&body);
            let mut update = Update { body, message, original };
            if state.is_replaying {
                state.users.replayed(&mut update);
            }
            state.waiting.push_back(update);
            if state.waiting.len() <= self.max_updates {
                Backpressure::Ready
            } else if state.is_attended {
                let inbox = Arc::clone(self);
                Backpressure::Full(Box::pin(async move { inbox.room().await }))
            } else {
                state.waiting.pop_front();
                state.missed += 1;
                Backpressure::Ready
            }
        };
        self.filled.notify_one();
        room
    }

    /// The oldest update, where there is one.
    pub(super) fn pop(&self) -> Option<Update> {
        let update = self.state().waiting.pop_front();
        if update.is_some() {
            self.drained.notify_waiters();
        }
        update
    }

    /// Returns when an update may have come.
    pub(super) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// A turn begins: what is prompted is another message. Gives what is cancelled with the turn.
    pub(super) fn begin_turn(&self) -> CancellationToken {
        let mut state = self.state();
        state.grouping.break_here();
        state.is_attended = true;
        state.turn = CancellationToken::new();
        state.turn.clone()
    }

    /// The session is told again.
    pub(super) fn begin_replay(&self) {
        let mut state = self.state();
        state.users.rewind();
        (state.is_attended, state.is_replaying) = (true, true);
    }

    /// Everything was told again. What the agent still tells comes as if it were new.
    pub(super) fn end_replay(&self) {
        let mut state = self.state();
        state.is_replaying = false;
        state.users.settle();
    }

    /// Nobody reads any more.
    pub(super) fn leave(&self) {
        self.state().is_attended = false;
        self.drained.notify_waiters();
    }

    /// What is cancelled with the turn that is at work.
    pub(super) fn turn(&self) -> CancellationToken {
        self.state().turn.clone()
    }

    /// Notes by which id the agent recorded what was prompted.
    pub(super) fn note(&self, prompt: &[ContentBlock], id: Option<&str>, sent: Option<&str>) {
        self.state().users.note(prompt, id, sent);
    }

    pub(super) fn users(&self) -> UserMessages {
        self.state().users.clone()
    }

    /// How many updates were let go because nobody read them.
    pub(super) fn missed(&self) -> u64 {
        self.state().missed
    }

    async fn room(&self) {
        loop {
            let drained = self.drained.notified();
            {
                let state = self.state();
                if state.waiting.len() <= self.max_updates || !state.is_attended {
                    return;
                }
            }
            drained.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
