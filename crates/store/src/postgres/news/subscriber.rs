//! Receives the messages of other nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use trilogue_domain::Timestamp;
use trilogue_domain::port::{Clock, ReadOriginal};

use super::NewsState;
use super::encryption::Decryptor;
use super::message::{LogRemoval, NewsEntry, NodeMessage, ReceivedAppend};
use crate::news::PeerNews;
use crate::record::Frame;

/// The most senders whose last number is remembered. Beyond that all are forgotten.
const MAX_SENDERS: usize = 1_024;
/// The largest difference between the time of a message and this node's time, by the database's clock. An older message was delayed or replayed, and may no longer be true.
const MAX_AGE: Duration = Duration::from_secs(10);
/// The interval between log lines about refused messages.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct NewsSubscriber {
    /// The opening of this node. Its own messages also arrive here.
    opening: i64,
    reader: Arc<dyn ReadOriginal>,
    clock: Arc<dyn Clock>,
    state: Arc<NewsState>,
    decryptor: Decryptor,
    senders: Senders,
    refusals: Refusals,
}

/// The number of the last message of each sender, by opening.
#[derive(Debug, Default)]
struct Senders(HashMap<i64, u64>);

/// Messages that were refused since the last log line.
#[derive(Debug, Default)]
struct Refusals {
    count: u64,
    logged_at: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arrival {
    Next,
    /// Messages before it were lost.
    Gap,
    /// It arrived before, or a newer one did.
    Late,
}

// === impl NewsSubscriber ===

impl NewsSubscriber {
    pub(super) fn new(
        opening: i64,
        subject: &str,
        reader: Arc<dyn ReadOriginal>,
        clock: Arc<dyn Clock>,
        state: Arc<NewsState>,
    ) -> Self {
        let (decryptor, senders) = (Decryptor::new(subject), Senders::default());
        Self { opening, reader, clock, state, decryptor, senders, refusals: Refusals::default() }
    }

    pub(super) fn on_message(&mut self, payload: &Bytes) {
        let Some(message) = self.decryptor.decrypt(&self.state.keys, payload) else {
            return self.refusals.add(self.clock.now());
        };
        let Some(message) = NodeMessage::decode(message) else { return };
        if message.opening == self.opening {
            return;
        }
        if !self.is_fresh(message.made_at) {
            // A late message of a known sender still shows that messages are delayed.
            if self.senders.is_later(message.opening, message.number) {
                self.senders.order(message.opening, message.number);
                self.state.on_messages_lost();
            }
            return;
        }
        match self.senders.order(message.opening, message.number) {
            Arrival::Next => {}
            Arrival::Gap => self.state.on_messages_lost(),
            Arrival::Late => return,
        }
        for entry in message.entries {
            match entry {
                NewsEntry::Append(append) => self.apply_append(&append),
                // The send fails if there are no listeners, which is harmless.
                NewsEntry::Message(note) => {
                    drop(self.state.peer_news.send(PeerNews::Message(note)))
                }
            }
        }
    }

    fn is_fresh(&self, made_at: Timestamp) -> bool {
        let now = self.clock.now();
        now.until(made_at).max(made_at.until(now)) <= MAX_AGE
    }

    fn apply_append(&self, append: &ReceivedAppend) {
        let (tails, thread, last) = (&self.state.tails, append.thread, append.last);
        match append.removal {
            Some(LogRemoval::Thread) => tails.remove_thread(thread),
            Some(LogRemoval::Run) => tails.forget_frames(thread, last),
            // Without readers, frames are not even decoded.
            None if tails.has_readers(thread) => {
                let frames = self.frames(append).unwrap_or_default();
                tails.receive_append(thread, last, append.stamp, &frames);
            }
            None => {}
        }
    }

    /// The frames of an append, in separate copies. `None` unless all are frames of its thread, in order.
    fn frames(&self, append: &ReceivedAppend) -> Option<Vec<Arc<Frame>>> {
        let mut frames: Vec<Arc<Frame>> = Vec::with_capacity(append.frames.len());
        for bytes in &append.frames {
            let frame = Frame::from_bytes(Bytes::copy_from_slice(bytes), &self.reader)?;
            let is_next = frames.last().is_none_or(|before| before.last() + 1 == frame.first());
            if frame.thread() != append.thread || !is_next {
                return None;
            }
            frames.push(Arc::new(frame));
        }
        Some(frames)
    }
}

// === impl Refusals ===

impl Refusals {
    /// Counts a refused message. Every NATS client can cause one, so not each is logged.
    fn add(&mut self, now: Timestamp) {
        self.count += 1;
        if self.logged_at.is_none_or(|at| at.until(now) >= COMPLAIN_EVERY) {
            tracing::warn!(
                count = self.count,
                "messages on NATS are not of a server of this cluster, or under a key that is not known yet: they were ignored"
            );
            *self = Self { count: 0, logged_at: Some(now) };
        }
    }
}

// === impl Senders ===

impl Senders {
    /// Whether a message follows the last one of a known sender.
    fn is_later(&self, opening: i64, number: u64) -> bool {
        self.0.get(&opening).is_some_and(|last| number > *last)
    }

    fn order(&mut self, opening: i64, number: u64) -> Arrival {
        if self.0.len() >= MAX_SENDERS && !self.0.contains_key(&opening) {
            self.0.clear();
        }
        match self.0.insert(opening, number) {
            None => Arrival::Next,
            Some(last) if number <= last => {
                self.0.insert(opening, last);
                Arrival::Late
            }
            Some(last) if number == last + 1 => Arrival::Next,
            Some(_) => Arrival::Gap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_or_late_is_noticed_for_each_sender() {
        let mut senders = Senders::default();
        let mut order = |opening, number| senders.order(opening, number);
        assert_eq!(order(1, 4), Arrival::Next, "the first that is heard of it");
        assert_eq!(order(1, 5), Arrival::Next);
        assert_eq!(order(2, 1), Arrival::Next);
        assert_eq!(order(1, 5), Arrival::Late);
        assert_eq!(order(1, 8), Arrival::Gap);
        assert_eq!(order(1, 6), Arrival::Late);
        assert_eq!(order(1, 9), Arrival::Next);
    }
}
