use bytes::{Bytes, BytesMut};
use memchr::memchr;

use super::Oversize;

/// The default maximum length of a line, in bytes without its end.
pub const DEFAULT_MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A line that may be a message, without its end.
    Line(Bytes),
    /// A line that begins neither an object nor an array. Programs print such lines between their messages.
    Noise(Bytes),
    Oversize(Oversize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub lines: u64,
    pub blank: u64,
    pub noise: u64,
    pub oversize: u64,
    /// The bytes of the lines that were too long, including their ends.
    pub skipped_bytes: u64,
}

/// Finds lines in chunks of any size.
///
/// It accepts `\n` and `\r\n` as line ends. It skips blank lines, and byte order marks at the start of lines. It holds at most one
/// line: a line above the limit is reported at once and skipped up to its end. It never fails and never stops.
#[derive(Debug)]
pub struct Decoder {
    max_line_bytes: usize,
    buffer: BytesMut,
    /// The number of bytes at the start of the buffer that contain no newline.
    searched: usize,
    /// Whether the current line was too long. Its rest is dropped up to its end.
    is_skipping: bool,
    counts: Counts,
}

// === impl Decoder ===

impl Default for Decoder {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_LINE_BYTES)
    }
}

impl Decoder {
    /// Returns a decoder for lines of at most this many bytes, without their end.
    pub fn new(max_line_bytes: usize) -> Self {
        Self {
            max_line_bytes,
            buffer: BytesMut::new(),
            searched: 0,
            is_skipping: false,
            counts: Counts::default(),
        }
    }

    /// Sets the maximum length of the following lines, in bytes without their end.
    pub const fn set_max_line_bytes(&mut self, max_line_bytes: usize) {
        self.max_line_bytes = max_line_bytes;
    }

    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of buffered bytes: of an incomplete line, or of lines that were not taken yet.
    pub fn held_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Adds the next chunk. Take all lines with [`Decoder::next`] before the next chunk, so that the limit holds.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the buffer, to read the next chunk into its end without a copy. As with [`Decoder::push`], take all lines before the next chunk.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Returns the buffer like [`Decoder::buffer`], with room for a chunk of up to this many bytes. Reuses the room of the previous chunk
    /// while at least half of a chunk fits, so that a short line needs no allocation.
    pub fn buffer_for(&mut self, piece_bytes: usize) -> &mut BytesMut {
        if self.buffer.capacity() - self.buffer.len() < piece_bytes / 2 {
            self.buffer.reserve(piece_bytes);
        }
        &mut self.buffer
    }

    /// Returns the next line; `None` if it needs more chunks.
    #[expect(clippy::should_implement_trait, reason = "`None` is no end: pushing more goes on")]
    pub fn next(&mut self) -> Option<Frame> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(step) = memchr(b'\n', rest) else {
                self.searched = self.buffer.len();
                return self.too_long();
            };
            let line = self.buffer.split_to(self.searched + step + 1);
            self.searched = 0;
            if let Some(frame) = self.line(line) {
                return Some(frame);
            }
        }
    }

    /// Returns the last line if the stream ended without a line end. Later chunks count as a new stream.
    pub fn finish(&mut self) -> Option<Frame> {
        let line = std::mem::take(&mut self.buffer);
        self.searched = 0;
        self.line(line)
    }

    fn too_long(&mut self) -> Option<Frame> {
        if self.is_skipping {
            self.skip();
            return None;
        }
        // The byte above the limit may be the first of a line end.
        if self.buffer.len() <= self.max_line_bytes.saturating_add(1) {
            return None;
        }
        let oversize = Oversize::of(&self.buffer, self.max_line_bytes);
        self.counts.oversize += 1;
        self.is_skipping = true;
        self.skip();
        Some(Frame::Oversize(oversize))
    }

    fn skip(&mut self) {
        self.counts.skipped_bytes += self.buffer.len() as u64;
        // Frees the buffer of a long line; keeps the buffer of a chunk.
        if self.buffer.capacity() > super::HEAD_BYTES {
            self.buffer = BytesMut::new();
        } else {
            self.buffer.clear();
        }
        self.searched = 0;
    }

    fn line(&mut self, line: BytesMut) -> Option<Frame> {
        if std::mem::replace(&mut self.is_skipping, false) {
            self.counts.skipped_bytes += line.len() as u64;
            return None;
        }
        let with_end = line.len();
        let mut line = line.freeze();
        for end in [b'\n', b'\r'] {
            if line.last() == Some(&end) {
                line.truncate(line.len() - 1);
            }
        }
        if line.len() > self.max_line_bytes {
            self.counts.oversize += 1;
            self.counts.skipped_bytes += with_end as u64;
            return Some(Frame::Oversize(Oversize::of(&line, self.max_line_bytes)));
        }
        if line.starts_with(b"\xef\xbb\xbf") {
            line = line.slice(3..);
        }
        let kind = line.iter().find(|byte| !byte.is_ascii_whitespace());
        let (count, frame) = match kind {
            None => (&mut self.counts.blank, None),
            Some(b'{' | b'[') => (&mut self.counts.lines, Some(Frame::Line(line))),
            Some(_) => (&mut self.counts.noise, Some(Frame::Noise(line))),
        };
        *count += 1;
        frame
    }
}
