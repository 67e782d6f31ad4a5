//! Frames: consecutive events of one run, or of no run, in one row.

use std::sync::Arc;

use bytes::Bytes;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, Event, Original};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{RunKey, ThreadKey, Timestamp};

/// Events that are not yet numbered, in their persisted form. A run's task fills it.
#[derive(Debug, Default)]
pub struct Draft {
    _todo: (),
}

/// Consecutive events of exactly one run or of no run, as they are stored.
#[derive(Debug)]
pub struct Frame {
    _todo: (),
}

impl Draft {
    /// Adds an event. Text deltas of one message without an original are merged into one record.
    ///
    /// # Errors
    /// `event_too_large` when the record is larger than [`trilogue_domain::limits::MAX_EVENT_BYTES`]; the draft is unchanged then.
    pub fn push(
        &mut self,
        _at: Timestamp,
        _body: &Body,
        _original: Option<&Original>,
    ) -> Result<()> {
        unimplemented!()
    }
    /// How many records it holds.
    pub fn len(&self) -> usize {
        unimplemented!()
    }
    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether another event must wait: 256 events or 1 MiB.
    pub fn is_full(&self) -> bool {
        unimplemented!()
    }
    /// The blobs that its events name.
    pub fn blobs(&self) -> &[BlobRef] {
        unimplemented!()
    }
    /// Numbers the events and closes the frame. Oversize drafts (two drafts joined) are cut into several frames.
    pub fn seal(
        self,
        _thread: ThreadKey,
        _run: Option<RunKey>,
        _first: u64,
        _first_run: u64,
        _reader: &Arc<dyn ReadOriginal>,
    ) -> Vec<Arc<Frame>> {
        unimplemented!()
    }
    /// Appends the records of another draft behind its own.
    pub fn join(&mut self, _other: Draft) {
        unimplemented!()
    }
}

impl Frame {
    /// The thread.
    pub fn thread(&self) -> ThreadKey {
        unimplemented!()
    }
    /// The run, when it is of one.
    pub fn run(&self) -> Option<RunKey> {
        unimplemented!()
    }
    /// The first thread number.
    pub fn first(&self) -> u64 {
        unimplemented!()
    }
    /// The last thread number.
    pub fn last(&self) -> u64 {
        unimplemented!()
    }
    /// The first run number; zero when it is of no run.
    pub fn first_run(&self) -> u64 {
        unimplemented!()
    }
    /// The last run number; zero when it is of no run.
    pub fn last_run(&self) -> u64 {
        unimplemented!()
    }
    /// The stored blob: version, length-prefixed records, CRC-32C.
    pub fn bytes(&self) -> &Bytes {
        unimplemented!()
    }
    /// The events, decoded once and shared.
    ///
    /// # Errors
    /// `thread_quarantined` when the bytes are damaged or from a newer version.
    pub fn events(&self) -> Result<&[Event]> {
        unimplemented!()
    }
    /// Reads a stored frame and checks its checksum.
    ///
    /// # Errors
    /// As [`Frame::events`].
    pub fn from_stored(
        _thread: ThreadKey,
        _run: Option<RunKey>,
        _first: u64,
        _last: u64,
        _first_run: u64,
        _bytes: Bytes,
        _reader: &Arc<dyn ReadOriginal>,
    ) -> Result<Self> {
        unimplemented!()
    }
}
