//! Hearing: what is taken of the messages of other nodes.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use trilogue_domain::port::ReadOriginal;

use super::NewsState;
use super::message::{HeardAppend, LogRemoval, NewsEntry, NodeMessage};
use crate::news::PeerNews;
use crate::record::Frame;

/// The most senders whose last number is remembered; beyond that all are forgotten.
const MAX_SENDERS: usize = 1_024;

#[derive(Debug)]
pub(super) struct Ear {
    /// Of this node: what it tells comes back to it.
    opening: i64,
    reader: Arc<dyn ReadOriginal>,
    state: Arc<NewsState>,
    senders: Senders,
}

/// The number of the last message of each sender, by opening.
#[derive(Debug, Default)]
struct Senders(HashMap<i64, u64>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arrival {
    Next,
    /// Messages before it were lost.
    Gap,
    /// It was heard before, or another one was that is newer.
    Late,
}

// === impl Ear ===

impl Ear {
    pub(super) fn new(opening: i64, reader: Arc<dyn ReadOriginal>, state: Arc<NewsState>) -> Self {
        Self { opening, reader, state, senders: Senders::default() }
    }

    pub(super) fn hear(&mut self, payload: &Bytes) {
        let Some(message) = NodeMessage::decode(payload) else { return };
        if message.opening == self.opening {
            return;
        }
        match self.senders.order(message.opening, message.number) {
            Arrival::Next => {}
            Arrival::Gap => self.state.missed(),
            Arrival::Late => return,
        }
        for entry in message.entries {
            match entry {
                NewsEntry::Append(append) => self.take(&append),
                // Without listeners it is for nobody.
                NewsEntry::Note(note) => drop(self.state.heard.send(PeerNews::Note(note))),
            }
        }
    }

    fn take(&self, append: &HeardAppend) {
        let (tails, thread, last) = (&self.state.tails, append.thread, append.last);
        match append.removal {
            Some(LogRemoval::Thread) => tails.ended(thread),
            Some(LogRemoval::Run) => tails.removed(thread, last),
            // Without readers, frames are not even looked at.
            None if tails.has_readers(thread) => {
                let frames = self.frames(append).unwrap_or_default();
                tails.told(thread, last, append.stamp, &frames);
            }
            None => {}
        }
    }

    /// The frames of an append, in copies of their own; `None` where they are not all frames of its thread, in order.
    fn frames(&self, append: &HeardAppend) -> Option<Vec<Arc<Frame>>> {
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

// === impl Senders ===

impl Senders {
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
