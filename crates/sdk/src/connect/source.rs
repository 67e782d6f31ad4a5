//! The events of one connection, as they were sent.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use futures_util::StreamExt;
use trilogue_wire::sse::{Decoder, Item};

use crate::client::{Body, ClientError, Options};

/// The most events of a run that are remembered, to tell what is repeated.
const MAX_REMEMBERED: usize = 16 * 1024;

/// One connection.
pub(super) struct Source {
    body: Body,
    decoder: Decoder,
    ready: VecDeque<Item>,
    /// The id that a heartbeat without a line end has swallowed.
    swallowed: Option<String>,
    /// The id of the event before: the one that an event without an id seems to have.
    before: String,
}

/// What a connection gives.
pub(super) enum Given {
    /// An event; its id is empty where it has none.
    Event {
        id: String,
        json: String,
    },
    Retry(Duration),
    SignOfLife,
    /// It ended as HTTP wants.
    End,
    /// It ended in between.
    Torn(ClientError),
}

/// The events of a run that came already.
#[derive(Debug, Default)]
pub(super) struct Seen {
    known: HashSet<u64>,
    order: VecDeque<u64>,
}

// === impl Source ===

impl Source {
    pub(super) fn new(body: Body, options: &Options) -> Self {
        Self {
            body,
            decoder: Decoder::new(options.stream_limits),
            ready: VecDeque::new(),
            swallowed: None,
            before: String::new(),
        }
    }

    /// Cancel-safe: what was read is in the decoder or in the queue.
    pub(super) async fn next(&mut self) -> Given {
        loop {
            match self.ready.pop_front() {
                Some(Item::Event { id, data, .. }) => {
                    return Given::Event { id: self.id_of(id), json: data };
                }
                Some(Item::Retry(millis)) => return Given::Retry(Duration::from_millis(millis)),
                Some(Item::Comment(text)) => {
                    // `:` without a line end glues itself to the line `id: 7` behind it.
                    let glued = text.trim_start_matches([':', ' ']).strip_prefix("id:");
                    if let Some(id) = glued {
                        self.swallowed = Some(id.trim_start().to_owned());
                    }
                    return Given::SignOfLife;
                }
                None => {}
            }
            match self.body.next().await {
                None => return Given::End,
                Some(Err(error)) => return Given::Torn(error.into()),
                Some(Ok(piece)) => self.decoder.push(&piece),
            }
            loop {
                match self.decoder.next() {
                    Ok(Some(item)) => self.ready.push_back(item),
                    Ok(None) => break,
                    Err(error) => return Given::Torn(ClientError::Unexpected(error.to_string())),
                }
            }
        }
    }

    /// The event's own id. The format lets an event without one have that of the event before; here every event has its own.
    fn id_of(&mut self, id: String) -> String {
        if let Some(swallowed) = self.swallowed.take() {
            return swallowed;
        }
        if id == self.before {
            return String::new();
        }
        self.before.clone_from(&id);
        id
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

// === impl Seen ===

impl Seen {
    /// Notes an event; `false` where it came before with this id and this content. A server may count anew on each connection, so the id alone says nothing.
    pub(super) fn add(&mut self, id: &str, json: &str) -> bool {
        if id.is_empty() {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        (id, json).hash(&mut hasher);
        let event = hasher.finish();
        if !self.known.insert(event) {
            return false;
        }
        self.order.push_back(event);
        if self.order.len() > MAX_REMEMBERED
            && let Some(old) = self.order.pop_front()
        {
            self.known.remove(&old);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_an_id_alone_is_no_repetition() {
        let mut seen = Seen::default();
        assert!(seen.add("1", "a") && seen.add("1", "b") && !seen.add("1", "a"));
        assert!(seen.add("", "a") && seen.add("", "a"), "without an id nothing is told");
        for number in 0..MAX_REMEMBERED {
            assert!(seen.add(&number.to_string(), "x"));
        }
        assert_eq!((seen.known.len(), seen.order.len()), (MAX_REMEMBERED, MAX_REMEMBERED));
    }
}
