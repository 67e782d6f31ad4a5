//! Lines of the server that may not be passed on yet.

use bytes::Bytes;

/// The most bytes of a batch.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The batch that is being received.
#[derive(Debug, Default)]
pub(super) struct Held {
    entries: Vec<Entry>,
    bytes: usize,
    interrupt: Option<(String, String)>,
}

/// A line, and what it asks about.
#[derive(Debug)]
pub(super) struct Entry {
    /// The line, without its end.
    pub(super) line: Bytes,
    /// The id of the request that it is, as JSON, and of the interrupt that it asks about.
    pub(super) question: Option<(String, String)>,
}

// === impl Held ===

impl Held {
    /// Adds a line. `false` where the batch is too large to be one.
    pub(super) fn add(&mut self, line: Bytes) -> bool {
        self.bytes += line.len();
        self.entries.push(Entry { line, question: self.interrupt.take() });
        self.bytes <= MAX_BYTES
    }

    /// The next line asks about an interrupt.
    pub(super) fn announce(&mut self, request: String, interrupt: String) {
        self.interrupt = Some((request, interrupt));
    }

    /// The batch is complete.
    pub(super) fn take(&mut self) -> Vec<Entry> {
        self.bytes = 0;
        std::mem::take(&mut self.entries)
    }
}
