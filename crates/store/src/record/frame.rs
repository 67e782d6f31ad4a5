//! Frames: consecutive events of one run, or of no run, in one row.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::event::Event;
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{RunKey, ThreadKey, Timestamp};

use super::FORMAT_VERSION;
use super::body::take_body;
use super::codec::{
    CHECKSUM_BYTES, Damage, Decoded, Reader, check_checksum, put_checksum, put_signed, put_varint,
};
use super::field::Field;

/// Bytes of the length before each record, little-endian: fixed, so that a growing record is patched in place.
pub(super) const LENGTH_BYTES: usize = 4;
/// The longest header with version byte: two keys, three numbers, a flag.
const MAX_HEADER_BYTES: usize = 1 + 5 * 10 + 1;

/// Consecutive events of exactly one run or of no run, as they are stored.
pub struct Frame {
    header: Header,
    bytes: Bytes,
    reader: Arc<dyn ReadOriginal>,
    events: OnceLock<Result<Box<[Event]>>>,
}

/// Where a frame belongs. It stands in the row's columns and in the blob, so that a swapped row is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) thread: ThreadKey,
    pub(super) run: Option<RunKey>,
    pub(super) first: u64,
    pub(super) last: u64,
    /// Zero when it is of no run.
    pub(super) first_run: u64,
}

// === impl Frame ===

impl Frame {
    /// Closes a frame around records that carry their lengths.
    pub(super) fn seal(header: Header, records: &[u8], reader: Arc<dyn ReadOriginal>) -> Self {
        let mut out = Vec::with_capacity(MAX_HEADER_BYTES + records.len() + CHECKSUM_BYTES);
        out.push(FORMAT_VERSION);
        header.put(&mut out);
        out.extend_from_slice(records);
        put_checksum(&mut out);
        Self { header, bytes: Bytes::from(out), reader, events: OnceLock::new() }
    }

    /// The thread.
    #[must_use]
    pub fn thread(&self) -> ThreadKey {
        self.header.thread
    }

    /// The run, when it is of one.
    #[must_use]
    pub fn run(&self) -> Option<RunKey> {
        self.header.run
    }

    /// The first thread number.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.header.first
    }

    /// The last thread number.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.header.last
    }

    /// The first run number; zero when it is of no run.
    #[must_use]
    pub fn first_run(&self) -> u64 {
        self.header.first_run
    }

    /// The last run number; zero when it is of no run.
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

    /// The events, decoded once and shared.
    ///
    /// # Errors
    /// `thread_quarantined` when the bytes are damaged or from a newer version.
    pub fn events(&self) -> Result<&[Event]> {
        let events = self
            .events
            .get_or_init(|| self.decode().map_err(|damage| damaged(&self.header, damage)));
        match events {
            Ok(events) => Ok(events),
            Err(error) => Err(error.clone()),
        }
    }

    /// The same frame without its decoded events: those of the copy live as long as the copy.
    pub(crate) fn undecoded(&self) -> Self {
        Self {
            header: self.header,
            bytes: self.bytes.clone(),
            reader: Arc::clone(&self.reader),
            events: OnceLock::new(),
        }
    }

    /// Reads a stored frame and checks its version, its checksum and that it belongs where it was found.
    ///
    /// # Errors
    /// As [`Frame::events`].
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

    fn decode(&self) -> Decoded<Box<[Event]>> {
        // The checksum was checked when the frame was read, or has just been written.
        let end = self.bytes.len().saturating_sub(CHECKSUM_BYTES);
        let mut input = Reader::new(&self.bytes, 0, end);
        input.version()?;
        Header::take(&mut input)?;
        // Every record takes at least its length, so that a false count cannot cost more than the bytes themselves.
        let count = usize::try_from(self.header.last - self.header.first + 1).unwrap_or(usize::MAX);
        let mut events = Vec::with_capacity(count.min(end / LENGTH_BYTES));
        for number in self.header.first..=self.header.last {
            let length = u32::from_le_bytes(input.array()?) as usize;
            let mut record = input.part(length)?;
            let at = Timestamp::take(&mut record)?;
            let (body, original) = take_body(&mut record, &*self.reader)?;
            record.finish()?;
            let run_number = match self.header.run {
                Some(_) => self.header.first_run + (number - self.header.first),
                None => 0,
            };
            events.push(Event { number, run: self.header.run, run_number, at, body, original });
        }
        input.finish()?;
        Ok(events.into_boxed_slice())
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

// === impl Header ===

impl Header {
    /// Passes when the bytes are a frame of a version that is known, with this header.
    fn check(&self, bytes: &Bytes) -> Decoded<()> {
        let end = check_checksum(bytes)?;
        let mut input = Reader::new(bytes, 0, end);
        input.version()?;
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

    fn take(input: &mut Reader<'_>) -> Decoded<Self> {
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
