//! Drafts: events in their persisted form that have no numbers yet.

use std::sync::Arc;

use trilogue_domain::content::BlobRef;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::event::{Body, Event, InterruptEvent, MessageEvent, Original};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{MessageId, RunKey, ThreadKey, Timestamp, limits};

use super::body::{blobs_in, put_body, put_original};
use super::codec::put_signed;
use super::frame::{Frame, Header, LENGTH_BYTES};
use super::{FORMAT_VERSION, OUTLINED_VERSION};

/// Events that are not yet numbered, in their persisted form. A run's task fills it.
///
/// Everything is appended to one growing buffer; a sealed frame is one copy of it.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// The records, each after its length.
    records: Vec<u8>,
    count: usize,
    /// Text that may still grow: the last record.
    open: Option<GrowingText>,
    blobs: Vec<BlobRef>,
    /// Whether an original has blobs.
    is_outlined: bool,
    /// The events as they were pushed, while the records have the same content. Only for callers that read them back at once.
    events: Option<Vec<Event>>,
}

/// The last record, if it is text that the next delta of its message can continue.
#[derive(Clone, Debug)]
struct GrowingText {
    /// The position of the record's length.
    at: usize,
    message: MessageId,
}

/// The first capacity of a draft, in bytes: the records of a short run.
const USUAL_BYTES: usize = 512;

// === impl Draft ===

impl Draft {
    /// Adds an event. Text deltas of one message without an original are merged into one record.
    /// Errors: `event_too_large` if the record is larger than [`limits::MAX_EVENT_BYTES`], or than [`limits::MAX_ORIGINAL_BYTES`] if it holds an original or an interrupt. After an error, the draft is unchanged.
    pub fn push(&mut self, at: Timestamp, body: &Body, original: Option<&Original>) -> Result<()> {
        let delta = match (body, original) {
            (Body::Message(MessageEvent::Delta { message, text }), None) => Some((message, text)),
            _ => None,
        };
        if let Some((message, text)) = delta
            && self.grow(message, text)
        {
            return Ok(());
        }
        if self.records.capacity() == 0 {
            self.records.reserve(USUAL_BYTES);
        }
        let start = self.records.len();
        let blobs = self.blobs.len();
        self.records.extend_from_slice(&[0; LENGTH_BYTES]);
        put_signed(&mut self.records, at.as_micros());
        if let Some(original) = original {
            if put_original(original, body, &mut self.records) {
                blobs_in(body, &mut self.blobs);
                self.is_outlined = true;
            }
        } else {
            put_body(body, &mut self.records);
            blobs_in(body, &mut self.blobs);
        }
        let length = self.records.len() - start - LENGTH_BYTES;
        if length > limits::MAX_EVENT_BYTES {
            let most = most_bytes(body, original);
            if length > most {
                self.records.truncate(start);
                self.blobs.truncate(blobs);
                return Err(too_large(body, length, most));
            }
        }
        self.write_length(start, length);
        self.count += 1;
        match &mut self.events {
            Some(events) if original.is_none() => events.push(unnumbered(at, body)),
            // Only the readers of an original know its content.
            events => *events = None,
        }
        self.open = delta.map(|(message, _)| GrowingText { at: start, message: message.clone() });
        Ok(())
    }

    /// A draft whose frame is read back at once: the frame comes with its events and is not decoded.
    #[must_use]
    pub fn read_back() -> Self {
        Self { events: Some(Vec::new()), ..Self::default() }
    }

    /// A draft that uses this buffer and discards its content.
    #[must_use]
    pub fn reusing(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        Self { records: buffer, ..Self::default() }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        self.records.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether another event must wait: at [`limits::MAX_FRAME_EVENTS`] events or [`limits::MAX_FRAME_BYTES`]. So only the last event of a draft can be larger than these.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count >= limits::MAX_FRAME_EVENTS || self.records.len() >= limits::MAX_FRAME_BYTES
    }

    #[must_use]
    pub fn blobs(&self) -> &[BlobRef] {
        &self.blobs
    }

    /// Numbers the events and closes the frame. A large draft (two joined drafts, or one with a large event) is cut into several frames. A large event gets a separate frame.
    ///
    /// `first_run` is zero for events of no run.
    #[must_use]
    pub fn seal(
        self,
        thread: ThreadKey,
        run: Option<RunKey>,
        first: u64,
        first_run: u64,
        reader: &Arc<dyn ReadOriginal>,
    ) -> Vec<Arc<Frame>> {
        let mut frames = Vec::with_capacity(1);
        self.seal_into(&mut frames, (thread, run), (first, first_run), reader);
        frames
    }

    /// As [`Draft::seal`], but appends to existing frames. `of` is the thread and the run; `from` has the first thread number and run number. Returns the buffer, for [`Draft::reusing`].
    pub fn seal_into(
        self,
        frames: &mut Vec<Arc<Frame>>,
        of: (ThreadKey, Option<RunKey>),
        from: (u64, u64),
        reader: &Arc<dyn ReadOriginal>,
    ) -> Vec<u8> {
        let (thread, run) = of;
        let version = if self.is_outlined { OUTLINED_VERSION } else { FORMAT_VERSION };
        let mut events = self.events;
        let mut rest = self.records.as_slice();
        let (mut first, mut first_run) = (from.0, if run.is_some() { from.1 } else { 0 });
        while !rest.is_empty() {
            let (count, length) = frame_of(rest);
            let (records, behind) = rest.split_at(length);
            let header = Header { thread, run, first, last: first + count - 1, first_run };
            let frame = Frame::seal(version, header, records, Arc::clone(reader));
            // If a draft makes several frames, it is too large for a caller to read back at once, so its events are dropped.
            if let Some(events) = events.take_if(|events| events.len() as u64 == count) {
                frame.keep_events(events);
            }
            frames.push(Arc::new(frame));
            first += count;
            if run.is_some() {
                first_run += count;
            }
            rest = behind;
        }
        self.records
    }

    /// Appends the records of another draft.
    pub fn join(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        if other.is_empty() {
            return;
        }
        let offset = self.records.len();
        self.records.extend_from_slice(&other.records);
        self.count += other.count;
        self.blobs.extend(other.blobs);
        self.is_outlined |= other.is_outlined;
        self.events = self.events.take().zip(other.events).map(|(mut events, others)| {
            events.extend(others);
            events
        });
        self.open = other.open.map(|open| GrowingText { at: open.at + offset, ..open });
    }

    /// Extends the last record by this text, if it is of the same message and stays small enough.
    fn grow(&mut self, message: &MessageId, text: &str) -> bool {
        let Some(open) = &self.open else { return false };
        let start = open.at;
        let length = self.records.len() - start - LENGTH_BYTES + text.len();
        if open.message != *message || length > limits::INLINE_CONTENT_BYTES {
            return false;
        }
        self.records.extend_from_slice(text.as_bytes());
        self.write_length(start, length);
        self.events = None;
        true
    }

    fn write_length(&mut self, at: usize, length: usize) {
        // A record has at most MAX_ORIGINAL_BYTES, so its length always fits.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        if let Some(place) = self.records.get_mut(at..at + LENGTH_BYTES) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }
}

/// An event without a number yet.
fn unnumbered(at: Timestamp, body: &Body) -> Event {
    Event { number: 0, run: None, run_number: 0, at, body: body.clone(), original: None }
}

/// How many records from the front form one frame, and their bytes including lengths.
fn frame_of(records: &[u8]) -> (u64, usize) {
    let (mut count, mut at, mut content) = (0, 0, 0);
    while let Some(prefix) = records.get(at..).and_then(<[u8]>::first_chunk::<LENGTH_BYTES>) {
        let length = u32::from_le_bytes(*prefix) as usize;
        let is_full =
            count == limits::MAX_FRAME_EVENTS || content + length > limits::MAX_FRAME_BYTES;
        if count > 0 && is_full {
            break;
        }
        count += 1;
        content += length;
        at += LENGTH_BYTES + length;
    }
    (count as u64, at.min(records.len()))
}

/// The largest record of an event, in bytes. Originals and interrupts are stored unchanged and may be larger.
fn most_bytes(body: &Body, original: Option<&Original>) -> usize {
    match body {
        Body::Interrupt(InterruptEvent::Raised(_)) => limits::MAX_ORIGINAL_BYTES,
        _ if original.is_some() => limits::MAX_ORIGINAL_BYTES,
        _ => limits::MAX_EVENT_BYTES,
    }
}

fn too_large(body: &Body, length: usize, most: usize) -> Error {
    Error::new(
        Code::EventTooLarge,
        format!("the event '{}' has {length} bytes, {most} is the most", body.name(),),
    )
    .hint("send large content as a part of its own, which is then stored beside the log")
}
