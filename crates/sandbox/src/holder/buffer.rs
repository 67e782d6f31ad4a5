//! The output that a holder keeps for its server.

use std::collections::VecDeque;

/// The size up to which small outputs share a chunk, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// The agent's standard output from `kept_from` to `end`. Offsets count from its first byte.
///
/// It is a list of chunks, so that it returns memory when it shrinks.
#[derive(Debug)]
pub(super) struct OutputBuffer {
    chunks: VecDeque<OutputChunk>,
    kept_from: u64,
    end: u64,
    max_bytes: u64,
}

#[derive(Debug)]
struct OutputChunk {
    offset: u64,
    bytes: Vec<u8>,
}

/// The last part of the agent's standard error that no server has received.
#[derive(Debug, Default)]
pub(super) struct ErrorTail(VecDeque<u8>);

// === impl OutputBuffer ===

impl OutputBuffer {
    pub(super) fn new(max_bytes: u64) -> Self {
        // Without room, the agent could never write.
        Self { chunks: VecDeque::new(), kept_from: 0, end: 0, max_bytes: max_bytes.max(1) }
    }

    pub(super) fn kept_from(&self) -> u64 {
        self.kept_from
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns how many bytes may be added. Output that was sent to an attached server counts as room: it may be dropped.
    pub(super) fn room(&self, sent: Option<u64>) -> u64 {
        let needed_from = sent.unwrap_or_default().max(self.kept_from);
        self.max_bytes.saturating_sub(self.end.saturating_sub(needed_from))
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        match self.chunks.back_mut() {
            Some(last) if last.bytes.len() + bytes.len() <= CHUNK_BYTES => last.bytes.extend(bytes),
            _ => self.chunks.push_back(OutputChunk { offset: self.end, bytes: bytes.to_vec() }),
        }
        self.end += bytes.len() as u64;
    }

    /// Returns the part that begins at an offset, up to the end of a chunk. Empty at the end of the output.
    pub(super) fn part_at(&self, offset: u64) -> &[u8] {
        let index = self.chunks.partition_point(|chunk| chunk.end() <= offset);
        let Some(chunk) = self.chunks.get(index) else { return &[] };
        let skipped = usize::try_from(offset.saturating_sub(chunk.offset)).unwrap_or(usize::MAX);
        chunk.bytes.get(skipped..).unwrap_or_default()
    }

    /// Drops the output before an offset.
    pub(super) fn drop_before(&mut self, offset: u64) {
        self.kept_from = offset.clamp(self.kept_from, self.end);
        while self.chunks.front().is_some_and(|chunk| chunk.end() <= self.kept_from) {
            self.chunks.pop_front();
        }
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        }
    }

    /// Drops the oldest output above the limit, but only output before `sent`.
    pub(super) fn trim(&mut self, sent: u64) {
        let limit = self.end.saturating_sub(self.max_bytes);
        self.drop_before(limit.min(sent));
    }
}

impl OutputChunk {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

// === impl ErrorTail ===

impl ErrorTail {
    /// Adds bytes, and drops the oldest above a limit.
    pub(super) fn push(&mut self, bytes: &[u8], max_bytes: usize) {
        self.0.extend(bytes);
        self.truncate(max_bytes);
    }

    /// Drops the oldest bytes above a limit.
    pub(super) fn truncate(&mut self, max_bytes: usize) {
        self.0.drain(..self.0.len().saturating_sub(max_bytes));
    }

    /// Removes the oldest bytes, and returns them.
    pub(super) fn take(&mut self, max_bytes: usize) -> Vec<u8> {
        let part = self.0.drain(..self.0.len().min(max_bytes)).collect();
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(buffer: &OutputBuffer) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut offset = buffer.kept_from();
        while offset < buffer.end() {
            let part = buffer.part_at(offset);
            bytes.extend(part);
            offset += part.len() as u64;
        }
        bytes
    }

    #[test]
    fn output_is_dropped_within_a_chunk() {
        let mut buffer = OutputBuffer::new(100);
        buffer.push(b"hello ");
        buffer.push(b"world");
        buffer.drop_before(8);
        assert_eq!((buffer.kept_from(), buffer.end()), (8, 11));
        assert_eq!(buffer.part_at(8), b"rld");
        assert_eq!(buffer.part_at(10), b"d");
        assert_eq!(buffer.part_at(11), b"");
        // It never moves back, or beyond the end.
        buffer.drop_before(3);
        assert_eq!(buffer.kept_from(), 8);
        buffer.drop_before(99);
        assert_eq!((buffer.kept_from(), buffer.end()), (11, 11));
    }

    #[test]
    fn chunks_keep_the_order_of_the_output() {
        let mut buffer = OutputBuffer::new(u64::MAX);
        let parts = [70_000, 10, 65_500, 100, 1, 64_000].map(|length| vec![length as u8; length]);
        parts.iter().for_each(|part| buffer.push(part));
        assert_eq!(all(&buffer), parts.concat());
        buffer.drop_before(70_005);
        assert_eq!(all(&buffer), parts.concat()[70_005..]);
    }

    #[test]
    fn the_memory_of_dropped_output_is_returned() {
        let mut buffer = OutputBuffer::new(u64::MAX);
        (0..100).for_each(|_| buffer.push(&[0; CHUNK_BYTES]));
        assert_eq!(buffer.chunks.len(), 100);
        buffer.drop_before(99 * CHUNK_BYTES as u64);
        assert_eq!(buffer.chunks.len(), 1);
        buffer.drop_before(buffer.end());
        assert_eq!(buffer.chunks.capacity(), 0);
    }

    #[test]
    fn only_sent_output_makes_room() {
        let mut buffer = OutputBuffer::new(10);
        buffer.push(&[1; 8]);
        assert_eq!(buffer.room(None), 2);
        assert_eq!(buffer.room(Some(0)), 2);
        assert_eq!(buffer.room(Some(5)), 7);
        buffer.push(&[2; 7]);
        assert_eq!((buffer.room(None), buffer.room(Some(5))), (0, 0));
        buffer.trim(3);
        assert_eq!(buffer.kept_from(), 3);
        buffer.trim(15);
        assert_eq!((buffer.kept_from(), buffer.end()), (5, 15));
        assert_eq!(buffer.room(None), 0);
    }

    #[test]
    fn the_newest_errors_are_kept() {
        let mut errors = ErrorTail::default();
        errors.push(b"abc", 4);
        errors.push(b"def", 4);
        assert_eq!(errors.take(1), b"c");
        errors.truncate(2);
        assert_eq!(errors.take(9), b"ef");
        assert_eq!(errors.take(9), b"");
    }
}
