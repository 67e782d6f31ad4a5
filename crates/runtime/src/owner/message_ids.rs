//! The message ids of a thread that its owner knows: an id names one message of its thread.

use std::collections::BTreeSet;

use trilogue_domain::error::Result;
use trilogue_domain::{Input, MessageId};
use trilogue_store::Change;

use super::Owner;
use crate::step::Submit;

/// The most ids that an owner remembers of a thread that it created; with more it asks the store.
const MAX_KNOWN_IDS: usize = 256;

/// The ids that the next append adds, and all others too while `is_complete`.
#[derive(Debug, Default)]
pub(super) struct KnownMessageIds {
    ids: BTreeSet<MessageId>,
    /// Whether every message id in the store is also here.
    is_complete: bool,
}

// === impl KnownMessageIds ===

impl KnownMessageIds {
    /// The ids of a thread that is not stored yet.
    pub(super) fn of_new_thread() -> Self {
        Self { is_complete: true, ..Self::default() }
    }

    /// Notes the messages that the next append adds.
    pub(super) fn note(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Message(row) => {
                    self.ids.extend(std::iter::once(row.id.clone()).chain(row.alias.clone()));
                }
                // The ids of its messages are free when that is stored.
                Change::RemoveRun(_) => self.is_complete = false,
                _ => {}
            }
        }
    }

    /// The store has what was noted.
    pub(super) fn stored(&mut self) {
        if !self.is_complete || self.ids.len() > MAX_KNOWN_IDS {
            *self = Self::default();
        }
    }
}

// === impl Owner ===

impl Owner {
    /// Gives a message of a new run another id if one of the thread has its id already. Requests come here one by one, so that the first one keeps it.
    /// Fails as reading the store.
    pub(super) async fn replace_taken_ids(&self, submit: &mut Submit) -> Result<()> {
        let messages = match &mut submit.input {
            Input::Messages(messages) => messages,
            Input::Value(_) => &mut submit.said,
        };
        for (place, message) in messages.iter_mut().enumerate() {
            if !self.is_taken(&message.id).await? {
                continue;
            }
            message.id = MessageId::generate();
            // A repeated request gets the id that counts.
            if let Some(row) = submit.idempotency.as_mut().filter(|_| place == 0) {
                row.message = Some(message.id.clone());
            }
        }
        Ok(())
    }

    async fn is_taken(&self, id: &MessageId) -> Result<bool> {
        let KnownMessageIds { ids, is_complete } = &self.message_ids;
        // The noted ids come first: the store does not have those of the next append yet.
        if ids.contains(id) || *is_complete {
            return Ok(ids.contains(id));
        }
        Ok(self.services.store.message_in(self.thread, id).await?.is_some())
    }
}
