//! What happened in a session and was not read yet.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use trilogue_domain::lock;
use trilogue_wire::agent_client::{ContentBlock, SessionUpdate};

use super::peer::RawJson;
use super::update::{Grouping, Update};
use super::user_messages::UserMessages;

/// The updates of one session on their way to whoever reads them.
#[derive(Debug)]
pub(super) struct UpdateQueue {
    max_updates: usize,
    max_unread_bytes: usize,
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<Update>,
    /// How much waits, in bytes as the agent wrote it.
    unread_bytes: usize,
    /// Whether updates of the turn that is at work were let go.
    has_overflowed: bool,
    grouping: Grouping,
    users: UserMessages,
    /// Somebody reads: a turn is at work or a session is loaded.
    is_attended: bool,
    /// The session is told again.
    is_replaying: bool,
    /// Updates that were let go because nobody read them.
    missed: u64,
    /// Cancelled with the turn that is at work.
    turn: CancellationToken,
}

// === impl UpdateQueue ===

impl UpdateQueue {
    pub(super) fn new(max_updates: usize, max_unread_bytes: usize, users: UserMessages) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            unread_bytes: 0,
            has_overflowed: false,
            grouping: Grouping::default(),
            users,
            is_attended: false,
            is_replaying: false,
            missed: 0,
            turn: CancellationToken::new(),
        };
        Self { max_updates, max_unread_bytes, state: Mutex::new(state), filled: Notify::new() }
    }

    /// Adds an update, and never waits: other calls are answered on the same connection.
    ///
    /// Without a reader the oldest makes room for it. With one, what is beyond the limit is let go, and the turn fails once the rest is read.
    pub(super) fn push(&self, body: SessionUpdate, original: RawJson) {
        {
            let mut state = self.state();
            let message = state.grouping.place(&body);
            let mut update = Update { body, message, original };
            if state.is_replaying {
                state.users.replayed(&mut update);
            }
            let bytes = state.unread_bytes.saturating_add(update.size());
            if state.is_attended && (bytes > self.max_unread_bytes || state.has_overflowed) {
                state.has_overflowed = true;
                state.missed += 1;
            } else {
                state.unread_bytes = bytes;
                state.waiting.push_back(update);
                if !state.is_attended && state.waiting.len() > self.max_updates {
                    state.pop();
                    state.missed += 1;
                }
            }
        }
        self.filled.notify_one();
    }

    /// The oldest update, where there is one.
    pub(super) fn pop(&self) -> Option<Update> {
        self.state().pop()
    }

    /// Whether updates of the turn were let go since this was asked last.
    pub(super) fn take_overflow(&self) -> bool {
        std::mem::take(&mut self.state().has_overflowed)
    }

    /// Returns when an update may have come.
    pub(super) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// A turn begins: what is prompted is another message. Gives what is cancelled with the turn.
    pub(super) fn begin_turn(&self) -> CancellationToken {
        let mut state = self.state();
        state.grouping.break_here();
        (state.is_attended, state.has_overflowed) = (true, false);
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

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

// === impl State ===

impl State {
    fn pop(&mut self) -> Option<Update> {
        let update = self.waiting.pop_front()?;
        self.unread_bytes = self.unread_bytes.saturating_sub(update.size());
        Some(update)
    }
}
