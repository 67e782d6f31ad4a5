//! Frames: consecutive events of one run, or of no run, in one row.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::event::Event;
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{RunKey, ThreadKey, Timestamp, limits};

use super::body::{take_body, take_original};
use super::codec::{
    CHECKSUM_BYTES, Damage, DecodeResult, FieldReader, check_checksum, put_checksum, put_signed,
    put_varint,
};
use super::field::Field;

/// Bytes of the length before each record, little-endian: fixed, so that a growing record is patched in place.
pub(super) const LENGTH_BYTES: usize = 4;
/// The longest header with version byte: two keys, three numbers, a flag.
const MAX_HEADER_BYTES: usize = 1 + 5 * 10 + 1;

/// Consecutive events of exactly one run or of no run, as stored.
pub struct Frame {
    header: Header,
    bytes: Bytes,
    reader: Arc<dyn ReadOriginal>,
    events: OnceLock<Result<Vec<Event>>>,
}

/// The thread, run and numbers of a frame. They are in the row's columns and in the blob, so that a swapped row is detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) thread: ThreadKey,
    pub(super) run: Option<RunKey>,
    pub(super) first: u64,
    pub(super) last: u64,
    /// Zero if the frame belongs to no run.
    pub(super) first_run: u64,
}

/// The records of a frame, see [`Frame::raw`].
#[derive(Debug)]
pub struct RawRecords<'a> {
    frame: &'a Frame,
    input: FieldReader<'a>,
    /// The thread number of the next record.
    next: u64,
}

/// One event as it is stored.
#[derive(Clone, Debug)]
pub struct RawRecord<'a> {
    pub number: u64,
    /// Its number in the run. Zero if it belongs to no run.
    pub run_number: u64,
    pub at: Timestamp,
    pub original: Option<RawOriginal<'a>>,
    frame: &'a Frame,
    record: FieldReader<'a>,
}

/// A peer's original, with the ids in the event's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawOriginal<'a> {
    pub dialect: &'a str,
    pub version: u32,
    /// The message that it belongs to. For the start of a tool call, the message that triggered it.
    pub message: Option<&'a str>,
    /// The tool call that it belongs to.
    pub call: Option<&'a str>,
    /// The peer's bytes: a slice of the frame's, not a copy.
    pub bytes: Bytes,
}

// === impl Frame ===

impl Frame {
    /// Closes a frame around records that carry their lengths.
    pub(super) fn seal(
        version: u8,
        header: Header,
        records: &[u8],
        reader: Arc<dyn ReadOriginal>,
    ) -> Self {
        let mut out = Vec::with_capacity(MAX_HEADER_BYTES + records.len() + CHECKSUM_BYTES);
        out.push(version);
        header.put(&mut out);
        out.extend_from_slice(records);
        put_checksum(&mut out);
        Self { header, bytes: Bytes::from(out), reader, events: OnceLock::new() }
    }

    #[must_use]
    pub fn thread(&self) -> ThreadKey {
        self.header.thread
    }

    #[must_use]
    pub fn run(&self) -> Option<RunKey> {
        self.header.run
    }

    #[must_use]
    pub fn first(&self) -> u64 {
        self.header.first
    }

    #[must_use]
    pub fn last(&self) -> u64 {
        self.header.last
    }

    /// The first run number. Zero if the frame belongs to no run.
    #[must_use]
    pub fn first_run(&self) -> u64 {
        self.header.first_run
    }

    /// The last run number. Zero if the frame belongs to no run.
    #[must_use]
    pub fn last_run(&self) -> u64 {
        match self.header.run {
            Some(_) => self.header.first_run + (self.header.last - self.header.first),
            None => 0,
        }
    }

    /// The stored blob: version, header, length-prefixed records, CRC-32C.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether it holds a single event that is larger than [`limits::MAX_EVENT_BYTES`].
    #[must_use]
    pub fn is_large(&self) -> bool {
        const AROUND: usize = MAX_HEADER_BYTES + LENGTH_BYTES + CHECKSUM_BYTES;
        self.header.first == self.header.last && self.bytes.len() > limits::MAX_EVENT_BYTES + AROUND
    }

    /// The events, decoded once and shared. Fails with `thread_quarantined` if the bytes are damaged or from a newer version.
    pub fn events(&self) -> Result<&[Event]> {
        let events = self
            .events
            .get_or_init(|| self.decode().map_err(|damage| damaged(&self.header, damage)));
        match events {
            Ok(events) => Ok(events),
            Err(error) => Err(error.clone()),
        }
    }

    /// The same frame without its decoded events. Events that the copy decodes live as long as the copy.
    pub(crate) fn undecoded(&self) -> Self {
        Self {
            header: self.header,
            bytes: self.bytes.clone(),
            reader: Arc::clone(&self.reader),
            events: OnceLock::new(),
        }
    }

    /// Reads a stored frame and checks its version, its checksum and its header. Fails as [`Frame::events`].
    pub fn from_stored(
        thread: ThreadKey,
        run: Option<RunKey>,
        first: u64,
        last: u64,
        first_run: u64,
        bytes: Bytes,
        reader: &Arc<dyn ReadOriginal>,
    ) -> Result<Self> {
        let header = Header { thread, run, first, last, first_run };
        header.check(&bytes).map_err(|damage| damaged(&header, damage))?;
        Ok(Self { header, bytes, reader: Arc::clone(reader), events: OnceLock::new() })
    }

    /// Reads a frame that comes without columns, and checks its version and its checksum. `None` if the bytes are not a valid frame.
    pub(crate) fn from_bytes(bytes: Bytes, reader: &Arc<dyn ReadOriginal>) -> Option<Self> {
        let end = check_checksum(&bytes).ok()?;
        let mut input = FieldReader::new(&bytes, 0, end);
        input.frame_version().ok()?;
        let header = Header::take(&mut input).ok()?;
        header.check(&bytes).ok()?;
        Some(Self { header, bytes, reader: Arc::clone(reader), events: OnceLock::new() })
    }

    /// The stored records, one event each. An original can be forwarded without decoding. Fails as [`Frame::events`].
    pub fn raw(&self) -> Result<RawRecords<'_>> {
        let input = self.records().map_err(|damage| damaged(&self.header, damage))?;
        Ok(RawRecords { frame: self, input, next: self.header.first })
    }

    fn records(&self) -> DecodeResult<FieldReader<'_>> {
        // The checksum was checked when the frame was read, or the frame was just written.
        let end = self.bytes.len().saturating_sub(CHECKSUM_BYTES);
        let mut input = FieldReader::new(&self.bytes, 0, end);
        input.frame_version()?;
        Header::take(&mut input)?;
        Ok(input)
    }

    fn run_number(&self, number: u64) -> u64 {
        match self.header.run {
            Some(_) => self.header.first_run + (number - self.header.first),
            None => 0,
        }
    }

    /// Stores the already decoded events of its records, so that they are not decoded again.
    pub(super) fn keep_events(&self, mut events: Vec<Event>) {
        for (event, number) in events.iter_mut().zip(self.header.first..) {
            (event.number, event.run) = (number, self.header.run);
            event.run_number = self.run_number(number);
        }
        // A frame that was just sealed has no decoded events yet.
        drop(self.events.set(Ok(events)));
    }

    fn decode(&self) -> DecodeResult<Vec<Event>> {
        let mut input = self.records()?;
        // Every record takes at least its length, so a wrong count cannot cost more than the remaining bytes.
        let count = usize::try_from(self.header.last - self.header.first + 1).unwrap_or(usize::MAX);
        let mut events = Vec::with_capacity(count.min(self.bytes.len() / LENGTH_BYTES));
        for number in self.header.first..=self.header.last {
            let record = take_record(&mut input)?;
            events.push(self.event(number, record)?);
        }
        input.finish()?;
        Ok(events)
    }

    fn event(&self, number: u64, mut record: FieldReader<'_>) -> DecodeResult<Event> {
        let at = Timestamp::take(&mut record)?;
        let (body, original) = take_body(&mut record, &*self.reader)?;
        record.finish()?;
        let run_number = self.run_number(number);
        Ok(Event { number, run: self.header.run, run_number, at, body, original })
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("header", &self.header)
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

fn take_record<'a>(input: &mut FieldReader<'a>) -> DecodeResult<FieldReader<'a>> {
    let length = u32::from_le_bytes(input.array()?) as usize;
    input.part(length)
}

// === impl RawRecords ===

impl<'a> RawRecords<'a> {
    fn take(&mut self) -> DecodeResult<RawRecord<'a>> {
        let (number, frame) = (self.next, self.frame);
        let record = take_record(&mut self.input)?;
        let mut head = record.clone();
        let at = Timestamp::take(&mut head)?;
        let original = take_original(&mut head)?;
        let run_number = frame.run_number(number);
        Ok(RawRecord { number, run_number, at, original, frame, record })
    }
}

impl<'a> Iterator for RawRecords<'a> {
    type Item = Result<RawRecord<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next > self.frame.header.last {
            return None;
        }
        let record = self.take().map_err(|damage| damaged(&self.frame.header, damage));
        // Nothing after damage can be read.
        self.next = if record.is_ok() { self.next + 1 } else { u64::MAX };
        Some(record)
    }
}

// === impl RawRecord ===

impl RawRecord<'_> {
    /// The event, decoded only for this caller. Fails as [`Frame::events`].
    pub fn event(&self) -> Result<Event> {
        let event = self.frame.event(self.number, self.record.clone());
        event.map_err(|damage| damaged(&self.frame.header, damage))
    }
}

// === impl Header ===

impl Header {
    /// Checks that the bytes are a frame of a known version with this header.
    fn check(&self, bytes: &Bytes) -> DecodeResult<()> {
        let end = check_checksum(bytes)?;
        let mut input = FieldReader::new(bytes, 0, end);
        input.frame_version()?;
        if Self::take(&mut input)? != *self {
            return Err(Damage("it belongs elsewhere"));
        }
        if self.first == 0 || self.last < self.first || self.run.is_some() != (self.first_run > 0) {
            return Err(Damage("its numbers make no sense"));
        }
        let count = self.last - self.first;
        if self.last == u64::MAX || self.first_run.checked_add(count).is_none() {
            return Err(Damage("its numbers make no sense"));
        }
        Ok(())
    }
}

impl Field for Header {
    fn put(&self, out: &mut Vec<u8>) {
        put_signed(out, self.thread.0);
        self.run.put(out);
        put_varint(out, self.first);
        put_varint(out, self.last - self.first);
        put_varint(out, self.first_run);
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        let (thread, run, first) = (Field::take(input)?, Field::take(input)?, u64::take(input)?);
        let last = first.checked_add(input.varint()?).ok_or(Damage("its numbers make no sense"))?;
        Ok(Self { thread, run, first, last, first_run: Field::take(input)? })
    }
}

fn damaged(header: &Header, damage: Damage) -> Error {
    Error::new(
        Code::ThreadQuarantined,
        format!(
            "the stored frame of thread {} at {} cannot be read: {}",
            header.thread, header.first, damage.0
        ),
    )
    .hint("restore the store from a backup, or erase this thread; other threads are not affected")
}

#[cfg(test)]
mod tests;
