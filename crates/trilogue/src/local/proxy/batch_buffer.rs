//! Lines of the server whose batch is not complete.

use bytes::Bytes;

#[derive(Debug)]
pub(super) struct BatchBuffer {
    lines: Vec<BufferedLine>,
    bytes: usize,
    max_bytes: usize,
    interrupt: Option<(String, String)>,
}

#[derive(Debug)]
pub(super) struct BufferedLine {
    /// The line, without its end.
    pub(super) line: Bytes,
    /// If it is a request about an interrupt: the request's id as JSON, and the interrupt's id.
    pub(super) question: Option<(String, String)>,
}

// === impl BatchBuffer ===

impl BatchBuffer {
    /// The server ends a batch with the line that makes it long, so a batch holds at most two lines of the greatest length.
    pub(super) const fn new(max_line_bytes: usize) -> Self {
        let max_bytes = max_line_bytes.saturating_mul(2);
        Self { lines: Vec::new(), bytes: 0, max_bytes, interrupt: None }
    }

    pub(super) fn clear(&mut self) {
        *self = Self { max_bytes: self.max_bytes, ..Self::new(0) };
    }

    /// Adds a line. Returns `false` if the batch is too large.
    pub(super) fn add(&mut self, line: Bytes) -> bool {
        self.bytes += line.len();
        self.lines.push(BufferedLine { line, question: self.interrupt.take() });
        self.bytes <= self.max_bytes
    }

    pub(super) fn announce(&mut self, request: String, interrupt: String) {
        self.interrupt = Some((request, interrupt));
    }

    pub(super) fn take(&mut self) -> Vec<BufferedLine> {
        self.bytes = 0;
        std::mem::take(&mut self.lines)
    }
}
