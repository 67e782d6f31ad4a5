//! Lines of the server that may not be passed on yet.

use bytes::Bytes;

/// The batch that is being received.
#[derive(Debug)]
pub(super) struct Held {
    entries: Vec<Entry>,
    bytes: usize,
    /// The most bytes of a batch.
    max_bytes: usize,
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
    /// Nothing yet. The server ends a batch with the line that makes it long; two of the longest there may be.
    pub(super) const fn new(max_line_bytes: usize) -> Self {
        let max_bytes = max_line_bytes.saturating_mul(2);
        Self { entries: Vec::new(), bytes: 0, max_bytes, interrupt: None }
    }

    /// Forgets what was not complete.
    pub(super) fn clear(&mut self) {
        *self = Self { max_bytes: self.max_bytes, ..Self::new(0) };
    }

    /// Adds a line. `false` where the batch is too large to be one.
    pub(super) fn add(&mut self, line: Bytes) -> bool {
        self.bytes += line.len();
        self.entries.push(Entry { line, question: self.interrupt.take() });
        self.bytes <= self.max_bytes
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
