//! The message format of nodes.
//!
//! A message is the opening of its sender, its number among that opening's messages, the database's time at its creation, and entries. An entry is a tag byte, the length of its body, and the body. An entry with an unknown tag is skipped. Integers are little-endian. [`super::encryption`] encrypts the message and adds the version.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use trilogue_domain::{ThreadKey, Timestamp};

use crate::news::PeerMessage;
use crate::record::Frame;

const HEAD_BYTES: usize = 24;
const ENTRY_HEAD_BYTES: usize = 5;
const APPEND_HEAD_BYTES: usize = 25;
const APPEND: u8 = 1;
const NOTE: u8 = 2;
/// The most bytes of a message, unless the NATS server allows fewer.
pub(super) const MAX_MESSAGE_BYTES: usize = 128 * 1024;
/// The most bytes of an append's frames in a message. For a larger append, the message only has the end of the log.
pub(super) const MAX_APPEND_BYTES: usize = 16 * 1024;

/// A durable append, as the other nodes receive it.
#[derive(Clone, Debug)]
pub(crate) struct AppendNotice {
    pub(crate) thread: ThreadKey,
    /// The end of the log after it.
    pub(crate) last: u64,
    /// The mark of the head after it.
    pub(crate) stamp: i64,
    pub(crate) removal: Option<LogRemoval>,
    /// Empty if the message leaves them out.
    pub(crate) frames: Vec<Arc<Frame>>,
}

/// An append of another node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ReceivedAppend {
    pub(super) thread: ThreadKey,
    pub(super) last: u64,
    pub(super) stamp: i64,
    pub(super) removal: Option<LogRemoval>,
    /// The stored form of its frames, unchecked.
    pub(super) frames: Vec<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LogRemoval {
    Run,
    Thread,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NewsEntry {
    Append(ReceivedAppend),
    Message(PeerMessage),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NodeMessage {
    pub(super) opening: i64,
    pub(super) number: u64,
    /// The creation time, by the database's clock.
    pub(super) made_at: Timestamp,
    pub(super) entries: Vec<NewsEntry>,
}

/// Packs entries into messages of a bounded size.
#[derive(Debug)]
pub(super) struct NewsWriter {
    opening: i64,
    /// The number of the next message.
    next: u64,
    /// The creation time of the next message.
    now: Timestamp,
    max_bytes: usize,
    current: Vec<u8>,
    done: Vec<Vec<u8>>,
}

// === impl NewsWriter ===

impl NewsWriter {
    pub(super) fn new(opening: i64) -> Self {
        let (now, current, done) = (Timestamp::from_micros(0), Vec::new(), Vec::new());
        Self { opening, next: 1, now, max_bytes: 0, current, done }
    }

    /// Sets the maximum size of the next messages, in bytes, and their creation time.
    pub(super) fn begin(&mut self, max_bytes: usize, now: Timestamp) {
        self.max_bytes = max_bytes.min(MAX_MESSAGE_BYTES);
        self.now = now;
    }

    /// Skips numbers for messages that are lost, so that the others notice the gap.
    pub(super) fn skip(&mut self, messages: u64) {
        self.next = self.next.saturating_add(messages);
    }

    pub(super) fn append(&mut self, append: &AppendNotice) {
        let frames: &[Arc<Frame>] = match append.bytes() {
            1..=MAX_APPEND_BYTES if append.removal.is_none() => &append.frames,
            _ => &[],
        };
        let body = append_body(append, frames);
        if !self.entry(APPEND, &body) && !self.entry(APPEND, &append_body(append, &[])) {
            self.skip(1);
        }
    }

    pub(super) fn push_message(&mut self, note: &PeerMessage) {
        if !self.entry(NOTE, &note.encode()) {
            self.skip(1);
        }
    }

    /// Returns the full messages, and the last one.
    pub(super) fn finish(&mut self) -> Vec<Vec<u8>> {
        self.close();
        std::mem::take(&mut self.done)
    }

    /// Adds an entry. Returns `false` if it does not fit into a message.
    fn entry(&mut self, tag: u8, body: &[u8]) -> bool {
        let bytes = ENTRY_HEAD_BYTES + body.len();
        let Ok(length) = u32::try_from(body.len()) else { return false };
        if HEAD_BYTES + bytes > self.max_bytes {
            return false;
        }
        if self.current.len() + bytes > self.max_bytes {
            self.close();
        }
        if self.current.is_empty() {
            self.current.put_i64_le(self.opening);
            self.current.put_u64_le(self.next);
            self.current.put_i64_le(self.now.as_micros());
            self.next = self.next.saturating_add(1);
        }
        self.current.put_u8(tag);
        self.current.put_u32_le(length);
        self.current.put_slice(body);
        true
    }

    fn close(&mut self) {
        if !self.current.is_empty() {
            self.done.push(std::mem::take(&mut self.current));
        }
    }
}

// === impl AppendNotice ===

impl AppendNotice {
    /// The size of its frames, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.frames.iter().map(|frame| frame.bytes().len()).sum()
    }
}

fn append_body(append: &AppendNotice, frames: &[Arc<Frame>]) -> Vec<u8> {
    let mut body = Vec::with_capacity(APPEND_HEAD_BYTES + append.bytes() + 4 * frames.len());
    body.put_i64_le(append.thread.0);
    body.put_u64_le(append.last);
    body.put_i64_le(append.stamp);
    body.put_u8(match append.removal {
        None => 0,
        Some(LogRemoval::Run) => 1,
        Some(LogRemoval::Thread) => 2,
    });
    for frame in frames {
        body.put_u32_le(u32::try_from(frame.bytes().len()).unwrap_or(u32::MAX));
        body.put_slice(frame.bytes());
    }
    body
}

// === impl NodeMessage ===

impl NodeMessage {
    /// Decodes a message. `None` if another version sent it.
    pub(super) fn decode(mut rest: Bytes) -> Option<Self> {
        let (opening, number) = (rest.try_get_i64_le().ok()?, rest.try_get_u64_le().ok()?);
        let made_at = Timestamp::from_micros(rest.try_get_i64_le().ok()?);
        let mut entries = Vec::new();
        while rest.has_remaining() {
            let (tag, mut body) = (rest.try_get_u8().ok()?, part(&mut rest)?);
            match tag {
                APPEND => entries.push(NewsEntry::Append(decode_append(&mut body)?)),
                NOTE => entries.extend(PeerMessage::decode(&body).map(NewsEntry::Message)),
                _ => {}
            }
        }
        Some(Self { opening, number, made_at, entries })
    }
}

fn decode_append(body: &mut Bytes) -> Option<ReceivedAppend> {
    let thread = ThreadKey(body.try_get_i64_le().ok()?);
    let (last, stamp) = (body.try_get_u64_le().ok()?, body.try_get_i64_le().ok()?);
    let removal = match body.try_get_u8().ok()? {
        0 => None,
        1 => Some(LogRemoval::Run),
        2 => Some(LogRemoval::Thread),
        _ => return None,
    };
    let mut frames = Vec::new();
    while body.has_remaining() {
        frames.push(part(body)?);
    }
    Some(ReceivedAppend { thread, last, stamp, removal, frames })
}

/// The next part, after its length.
fn part(rest: &mut Bytes) -> Option<Bytes> {
    let length = rest.try_get_u32_le().ok()? as usize;
    (length <= rest.len()).then(|| rest.split_to(length))
}

#[cfg(test)]
mod tests {
    use trilogue_domain::{InterruptId, PrincipalId, RunId};

    use super::*;
    use crate::news::ShownQuestion;

    const NOW: Timestamp = Timestamp::from_micros(8);

    fn decode(message: &[u8]) -> Option<NodeMessage> {
        NodeMessage::decode(Bytes::copy_from_slice(message))
    }

    fn append_notice(thread: i64, last: u64) -> AppendNotice {
        AppendNotice {
            thread: ThreadKey(thread),
            last,
            stamp: 9,
            removal: None,
            frames: Vec::new(),
        }
    }

    fn received(append: &AppendNotice) -> NewsEntry {
        let AppendNotice { thread, last, stamp, removal, .. } = *append;
        NewsEntry::Append(ReceivedAppend { thread, last, stamp, removal, frames: Vec::new() })
    }

    #[test]
    fn a_message_reads_back_and_what_is_none_is_passed_over() {
        let gone = AppendNotice { removal: Some(LogRemoval::Thread), ..append_notice(1, u64::MAX) };
        let note = PeerMessage::Shown(ShownQuestion {
            principal: PrincipalId::generate(),
            run: RunId::generate(),
            interrupt: InterruptId::generate(),
            at: Timestamp::from_micros(7),
        });
        let mut writer = NewsWriter::new(5);
        writer.begin(usize::MAX, NOW);
        writer.skip(2);
        writer.append(&append_notice(7 << 40, 3));
        assert!(writer.entry(77, b"of a later version"));
        writer.push_message(&note);
        writer.append(&gone);
        let [message] = &writer.finish()[..] else { panic!("one message") };
        let entries =
            vec![received(&append_notice(7 << 40, 3)), NewsEntry::Message(note), received(&gone)];
        let read = NodeMessage { opening: 5, number: 3, made_at: NOW, entries };
        assert_eq!(decode(message), Some(read.clone()));
        for at in 0..message.len() {
            assert_ne!(decode(&message[..at]), Some(read.clone()), "cut at {at}");
        }
    }

    #[test]
    fn messages_keep_to_the_bound_and_what_fits_into_none_leaves_a_number_out() {
        let mut writer = NewsWriter::new(5);
        let most = HEAD_BYTES + 2 * (ENTRY_HEAD_BYTES + APPEND_HEAD_BYTES);
        writer.begin(most, NOW);
        (1..=5).for_each(|number| writer.append(&append_notice(1, number)));
        writer.push_message(&PeerMessage::Present(vec![ThreadKey(i64::MAX); 100]));
        writer.append(&append_notice(1, 6));
        let messages = writer.finish();
        assert!(messages.iter().all(|message| message.len() <= most));
        let read: Vec<_> = messages.iter().map(|it| decode(it).unwrap()).collect();
        let numbers: Vec<_> = read.iter().map(|message| message.number).collect();
        assert_eq!(numbers, [1, 2, 3]);
        writer.append(&append_notice(1, 7));
        // Number 4 belonged to the note, which did not fit.
        assert_eq!(decode(&writer.finish()[0]).unwrap().number, 5);
    }
}
