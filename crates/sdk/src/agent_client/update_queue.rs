//! The unread updates of a session.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use trilogue_domain::lock;
use trilogue_wire::agent_client::{ContentBlock, SessionUpdate};

use super::peer::RawJson;
use super::update::{Grouping, Update};
use super::user_messages::UserMessages;

/// The queue between the connection and the reader of one session.
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
    /// The size of the unread updates, in bytes as the agent wrote them.
    unread_bytes: usize,
    /// Whether updates of the running turn were dropped.
    has_overflowed: bool,
    grouping: Grouping,
    users: UserMessages,
    /// Whether a reader exists: a turn is running or the session is being loaded.
    is_attended: bool,
    /// Whether the session's history is being replayed.
    is_replaying: bool,
    /// The number of updates that were dropped because they were not read.
    missed: u64,
    /// Cancelled with the running turn.
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

    /// Adds an update. Never waits, because the same connection also carries the responses of other calls.
    ///
    /// Without a reader, the oldest updates are dropped for the new one. With a reader, updates above the limit are dropped, and the turn fails after the rest is read.
    pub(super) fn push(&self, body: SessionUpdate, original: RawJson) {
        {
            let mut state = self.state();
            let message = state.grouping.place(&body);
            let mut update = Update { body, message, original };
            if state.is_replaying {
                state.users.record_replay(&mut update);
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

    /// Takes the oldest update, if any.
    pub(super) fn pop(&self) -> Option<Update> {
        self.state().pop()
    }

    /// Returns `true` if updates of the turn were dropped since the last call.
    pub(super) fn take_overflow(&self) -> bool {
        std::mem::take(&mut self.state().has_overflowed)
    }

    /// Returns when an update may have arrived.
    pub(super) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Begins a turn. The prompt ends the open message. Returns the token that is cancelled with the turn.
    pub(super) fn begin_turn(&self) -> CancellationToken {
        let mut state = self.state();
        state.grouping.break_here();
        (state.is_attended, state.has_overflowed) = (true, false);
        state.turn = CancellationToken::new();
        state.turn.clone()
    }

    /// Begins the replay of the session's history.
    pub(super) fn begin_replay(&self) {
        let mut state = self.state();
        state.users.rewind();
        (state.is_attended, state.is_replaying) = (true, true);
    }

    /// Ends the replay. Later updates count as new.
    pub(super) fn end_replay(&self) {
        let mut state = self.state();
        state.is_replaying = false;
        state.users.settle();
    }

    /// Marks the queue as having no reader.
    pub(super) fn leave(&self) {
        self.state().is_attended = false;
    }

    /// Returns the token of the running turn.
    pub(super) fn turn(&self) -> CancellationToken {
        self.state().turn.clone()
    }

    /// Records a prompt with the id that the agent recorded.
    pub(super) fn note(&self, prompt: &[ContentBlock], id: Option<&str>, sent: Option<&str>) {
        self.state().users.note(prompt, id, sent);
    }

    pub(super) fn users(&self) -> UserMessages {
        self.state().users.clone()
    }

    /// Returns the number of updates that were dropped because they were not read.
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
