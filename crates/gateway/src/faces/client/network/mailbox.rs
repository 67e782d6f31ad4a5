//! The messages of one stream, or of a WebSocket: those that wait for a reader, and the last ones before them, for a reader that continues.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Principal};
use trilogue_wire::sse;

use crate::access::authenticator::Caller;
use crate::http::receive::{BodyBudget, HeldBytes};

/// How many messages of a stream are kept after they were sent, whenever that was.
const MIN_KEPT_MESSAGES: u64 = 1_024;
/// How many bytes of them.
const MIN_KEPT_BYTES: usize = 256 * 1024;
/// How many are kept for [`KEPT_FOR`]. Buffers on the way take this much before a lost network shows.
const MAX_KEPT_MESSAGES: u64 = 64 * 1_024;
/// How many bytes of them. The last message is kept even if it is larger.
const MAX_KEPT_BYTES: usize = 4 * 1024 * 1024;
/// How long a client may take to notice that it has lost the network.
const KEPT_FOR: Duration = Duration::from_secs(180);
/// Events are joined until a piece of a response has this many bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// The messages of one stream, numbered from 1.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    messages: VecDeque<Bytes>,
    /// How many messages were removed from the front.
    removed: u64,
    /// The number of the last message that a reader has taken.
    sent: u64,
    /// What is known of the messages at the front that were taken before, oldest first. Some of them may wait again.
    kept: VecDeque<KeptMessage>,
    /// Counts them, if they have a budget.
    kept_budget: Option<HeldBytes>,
    /// The size of the messages that a reader has taken, and of those that wait.
    sent_bytes: usize,
    waiting_bytes: usize,
    /// The number of the current reader, if there is one.
    reader: Option<u64>,
    /// Whether the session is known from more than a stream for it.
    pub(super) is_confirmed: bool,
    /// Notified when a message was added, or when the reader must end.
    pub(super) changed: Arc<Notify>,
}

#[derive(Debug)]
struct KeptMessage {
    /// When it was taken last.
    sent_at: Instant,
    /// How many bytes of the budget it holds.
    counted: usize,
}

/// The budget of what a caller's connections keep.
#[derive(Clone, Debug)]
pub(super) struct KeptBudget {
    budget: Arc<BodyBudget>,
    principal: Arc<Principal>,
}

/// What the reader of a mailbox gets.
#[derive(Debug)]
pub(super) enum MailboxRead {
    /// Events, and the number of the last one.
    Events(Bytes),
    /// No message waits.
    Nothing,
    /// Another reader has taken this one's place.
    Replaced,
}

// === impl KeptBudget ===

impl KeptBudget {
    pub(super) fn new(budget: &Arc<BodyBudget>, caller: &Caller) -> Self {
        Self { budget: Arc::clone(budget), principal: Arc::clone(&caller.principal) }
    }

    /// Holds nothing yet. Small messages count for the principal too.
    fn hold(&self) -> HeldBytes {
        let held = HeldBytes::of_waiting(&self.budget, &self.principal, 0);
        held.unwrap_or_else(|_| HeldBytes::of(&self.budget, &self.principal))
    }
}

// === impl Mailbox ===

impl Mailbox {
    /// A mailbox whose sent messages count in this budget if they are more than each one keeps.
    pub(super) fn new(budget: Option<&KeptBudget>) -> Self {
        Self { kept_budget: budget.map(KeptBudget::hold), ..Self::default() }
    }

    fn last(&self) -> u64 {
        self.removed + self.messages.len() as u64
    }

    /// Returns how many messages wait for a reader, and their bytes.
    pub(super) fn waiting_size(&self) -> (usize, usize) {
        let count = self.last() - self.sent;
        (usize::try_from(count).unwrap_or(usize::MAX), self.waiting_bytes)
    }

    pub(super) const fn has_reader(&self) -> bool {
        self.reader.is_some()
    }

    pub(super) fn push(&mut self, message: Bytes) {
        self.waiting_bytes += message.len();
        self.messages.push_back(message);
        self.changed.notify_one();
    }

    /// Lets this reader continue after the message with number `after`, or after the last message that was sent.
    /// Errors: `already_exists` if the stream has a reader and the new one does not continue; `invalid_cursor` if messages after `after` are gone.
    pub(super) fn attach(&mut self, reader: u64, after: Option<u64>) -> Result<()> {
        let after = match after {
            None if self.reader.is_some() => {
                return Err(Error::new(Code::AlreadyExists, "this stream is open already")
                    .hint("end the other request first, or continue with 'Last-Event-ID'"));
            }
            None => self.sent,
            Some(after) => {
                self.check(after).map_err(|error| {
                    error.hint("open the stream without 'Last-Event-ID', and load the session")
                })?;
                after
            }
        };
        // What the last reader may not have received waits again.
        self.sent = after;
        let sent = usize::try_from(after - self.removed).unwrap_or(usize::MAX);
        self.sent_bytes = self.messages.iter().take(sent).map(Bytes::len).sum();
        self.waiting_bytes = self.messages.iter().skip(sent).map(Bytes::len).sum();
        self.reader = Some(reader);
        // The reader that is replaced has to end, and must not take the notifications of the new one.
        std::mem::take(&mut self.changed).notify_one();
        Ok(())
    }

    /// Fails with `invalid_cursor` unless a reader can continue after the message with number `after`.
    pub(super) fn check(&self, after: u64) -> Result<()> {
        if (self.removed..=self.last()).contains(&after) {
            return Ok(());
        }
        let message = format!("the messages after {after} are not there any more");
        Err(Error::new(Code::InvalidCursor, message))
    }

    pub(super) fn detach(&mut self, reader: u64) {
        self.reader.take_if(|current| *current == reader);
    }

    /// Takes the messages that wait, as events.
    pub(super) fn take(&mut self, reader: u64, now: Instant) -> MailboxRead {
        if self.reader != Some(reader) {
            return MailboxRead::Replaced;
        }
        let mut events = Vec::new();
        while events.len() < PIECE_BYTES {
            let Some(message) = self.next() else { break };
            self.on_sent(now);
            sse::encode(&mut events, Some(&self.sent.to_string()), None, &message);
        }
        if events.is_empty() { MailboxRead::Nothing } else { MailboxRead::Events(events.into()) }
    }

    /// Returns the next message that waits.
    pub(super) fn next(&self) -> Option<Bytes> {
        let index = usize::try_from(self.sent - self.removed).unwrap_or(usize::MAX);
        self.messages.get(index).cloned()
    }

    /// Records that the next message was sent.
    pub(super) fn on_sent(&mut self, now: Instant) {
        let Some(message) = self.next() else { return };
        let index = usize::try_from(self.sent - self.removed).unwrap_or(usize::MAX);
        self.sent += 1;
        self.sent_bytes += message.len();
        self.waiting_bytes -= message.len();
        if let Some(again) = self.kept.get_mut(index) {
            again.sent_at = now;
        } else {
            // A copy, so that it counts no longer as a message that waits.
            let copy = Bytes::copy_from_slice(&message);
            let size = copy.len();
            // What each mailbox keeps needs no room.
            let counts = self.is_above_min();
            let budget = self.kept_budget.as_mut().filter(|_| counts);
            let has_room = budget.is_none_or(|budget| budget.try_grow(size));
            let is_counted = counts && has_room;
            self.kept.push_back(KeptMessage {
                sent_at: now,
                counted: if is_counted { size } else { 0 },
            });
            if let Some(slot) = self.messages.get_mut(index) {
                *slot = copy;
            }
            while !has_room && self.is_above_min() && self.kept_count() > 1 && self.remove_first() {
            }
        }
        self.trim(now);
    }

    const fn kept_count(&self) -> u64 {
        self.sent - self.removed
    }

    /// Whether more is kept than each mailbox may keep.
    const fn is_above_min(&self) -> bool {
        self.kept_count() > MIN_KEPT_MESSAGES || self.sent_bytes > MIN_KEPT_BYTES
    }

    /// Removes sent messages above the limits.
    pub(super) fn trim(&mut self, now: Instant) {
        while let Some(first) = self.kept.front() {
            let kept = self.kept_count();
            let is_old = now.duration_since(first.sent_at) > KEPT_FOR;
            let is_above = kept > MAX_KEPT_MESSAGES || self.sent_bytes > MAX_KEPT_BYTES;
            if kept <= 1 || !(is_above || is_old && self.is_above_min()) || !self.remove_first() {
                return;
            }
        }
    }

    /// Removes the first message, which was sent. Returns whether there was one.
    fn remove_first(&mut self) -> bool {
        let (Some(message), Some(kept)) = (self.messages.pop_front(), self.kept.pop_front()) else {
            return false;
        };
        if let Some(budget) = &mut self.kept_budget {
            budget.shrink(kept.counted);
        }
        self.removed += 1;
        self.sent_bytes -= message.len();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(taken: MailboxRead) -> String {
        match taken {
            MailboxRead::Events(events) => String::from_utf8(events.to_vec()).unwrap(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_reader_continues_without_a_gap_or_a_duplicate() {
        let (mut mailbox, now) = (Mailbox::default(), Instant::now());
        for message in ["a", "b", "c"] {
            mailbox.push(Bytes::from(message));
        }
        mailbox.attach(1, None).unwrap();
        assert_eq!(
            text(mailbox.take(1, now)),
            "id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: c\n\n"
        );
        assert_eq!(text(mailbox.take(1, now)), "Nothing");
        assert_eq!(mailbox.attach(2, None).unwrap_err().code(), Code::AlreadyExists);
        // A reader that continues replaces one whose connection may be broken.
        mailbox.attach(2, Some(1)).unwrap();
        assert_eq!(text(mailbox.take(1, now)), "Replaced");
        assert_eq!(mailbox.waiting_size(), (2, 2));
        mailbox.push(Bytes::from("d"));
        assert_eq!(
            text(mailbox.take(2, now)),
            "id: 2\ndata: b\n\nid: 3\ndata: c\n\nid: 4\ndata: d\n\n"
        );
        mailbox.detach(1);
        assert!(mailbox.has_reader());
        mailbox.detach(2);
        assert!(!mailbox.has_reader());
        mailbox.attach(3, None).unwrap();
        assert_eq!(text(mailbox.take(3, now)), "Nothing");
        assert_eq!(mailbox.attach(4, Some(5)).unwrap_err().code(), Code::InvalidCursor);
    }

    #[test]
    fn sent_messages_have_their_limits_and_waiting_ones_are_kept() {
        let (mut mailbox, begin) = (Mailbox::default(), Instant::now());
        let send_all = |mailbox: &mut Mailbox, now| {
            while matches!(mailbox.take(1, now), MailboxRead::Events(_)) {}
        };
        mailbox.attach(1, None).unwrap();
        let large = Bytes::from(vec![b'x'; MAX_KEPT_BYTES / 4]);
        for _ in 0..8 {
            mailbox.push(large.clone());
        }
        assert_eq!(mailbox.waiting_size().0, 8);
        send_all(&mut mailbox, begin);
        assert_eq!((mailbox.messages.len(), mailbox.waiting_size()), (4, (0, 0)));
        assert_eq!(mailbox.attach(1, Some(3)).unwrap_err().code(), Code::InvalidCursor);
        mailbox.attach(1, Some(4)).unwrap();
        assert_eq!(mailbox.waiting_size().0, 4);
        for _ in 0..2 * MAX_KEPT_MESSAGES {
            mailbox.push(Bytes::from("y"));
        }
        send_all(&mut mailbox, begin);
        assert_eq!(mailbox.messages.len() as u64, MAX_KEPT_MESSAGES);
        // Later, only as much is kept as any client may need.
        mailbox.push(Bytes::from("y"));
        send_all(&mut mailbox, begin + 2 * KEPT_FOR);
        assert_eq!(mailbox.messages.len() as u64, MIN_KEPT_MESSAGES);
        mailbox.push(Bytes::from(vec![b'x'; 2 * MAX_KEPT_BYTES]));
        send_all(&mut mailbox, begin + 2 * KEPT_FOR);
        assert_eq!(mailbox.messages.len(), 1);
        assert_eq!(mailbox.kept.len(), 1);
    }

    #[test]
    fn without_room_in_the_budget_as_much_is_kept_as_each_mailbox_may_keep() {
        const PIECE: usize = MIN_KEPT_BYTES / 4;
        let (budget, now) = (BodyBudget::anonymous(2 * PIECE), Instant::now());
        let kept_budget = Some(HeldBytes::new(&budget));
        let mut mailbox = Mailbox { kept_budget, ..Mailbox::default() };
        mailbox.attach(1, None).unwrap();
        let send = |mailbox: &mut Mailbox, count: usize| {
            for _ in 0..count {
                mailbox.push(vec![b'x'; PIECE].into());
            }
            while matches!(mailbox.take(1, now), MailboxRead::Events(_)) {}
            (mailbox.kept.len(), budget.held_bytes())
        };
        assert_eq!(send(&mut mailbox, 4), (4, 0));
        assert_eq!(send(&mut mailbox, 2), (6, 2 * PIECE));
        // What is sent again counts once.
        mailbox.attach(1, Some(1)).unwrap();
        assert_eq!(send(&mut mailbox, 0), (6, 2 * PIECE));
        // Another one has no room.
        assert_eq!(send(&mut mailbox, 1).0, 4);
        mailbox.trim(now + 2 * KEPT_FOR);
        assert_eq!(mailbox.kept.len(), 4);
        drop(mailbox);
        assert_eq!(budget.held_bytes(), 0);
    }
}
