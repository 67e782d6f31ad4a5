//! What the agent has not read yet of its standard input.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::nonblocking::{self, Transfer, set_nonblocking};

/// The size from which the holder reads nothing more from its server, in bytes.
const FULL_BYTES: usize = 1024 * 1024;
/// The writes in a row before the other sides get their turn.
const MAX_WRITES: usize = 16;

/// The agent's standard input, with what is not written yet.
#[derive(Debug)]
pub(super) struct InputQueue {
    /// `None` after the end of the input, or if the agent has closed it. What is added then is dropped.
    pipe: Option<OwnedFd>,
    chunks: VecDeque<Vec<u8>>,
    /// The bytes of the first chunk that are written.
    written: usize,
    queued_bytes: usize,
    is_ending: bool,
}

// === impl InputQueue ===

impl InputQueue {
    pub(super) fn new(pipe: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&pipe)?;
        let (chunks, written, queued_bytes) = (VecDeque::new(), 0, 0);
        Ok(Self { pipe: Some(pipe), chunks, written, queued_bytes, is_ending: false })
    }

    /// Adds bytes. Does nothing after the end of the input.
    pub(super) fn push(&mut self, bytes: Vec<u8>) {
        if self.pipe.is_some() && !self.is_ending && !bytes.is_empty() {
            self.queued_bytes += bytes.len();
            self.chunks.push_back(bytes);
        }
    }

    /// Closes the pipe as soon as everything is written.
    pub(super) fn end(&mut self) {
        self.is_ending = true;
    }

    /// Whether the server has to wait.
    pub(super) fn is_full(&self) -> bool {
        self.queued_bytes > FULL_BYTES
    }

    /// Returns the pipe if there is something to write.
    pub(super) fn pending(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| !self.chunks.is_empty()).map(|pipe| pipe.as_fd())
    }

    /// Writes what the agent takes now.
    pub(super) fn write(&mut self) {
        for _ in 0..MAX_WRITES {
            let (Some(pipe), Some(chunk)) = (&self.pipe, self.chunks.front()) else { break };
            let rest = chunk.get(self.written..).unwrap_or_default();
            match nonblocking::write(pipe, rest) {
                Transfer::Bytes(bytes) => {
                    self.written += bytes;
                    self.queued_bytes -= bytes;
                    if bytes == rest.len() {
                        self.chunks.pop_front();
                        self.written = 0;
                    }
                }
                Transfer::Blocked => break,
                Transfer::Closed => self.close(),
            }
        }
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
            if self.is_ending {
                self.close();
            }
        }
    }

    /// Closes the pipe. What is not written is lost.
    pub(super) fn close(&mut self) {
        (self.pipe, self.chunks) = (None, VecDeque::new());
        (self.written, self.queued_bytes) = (0, 0);
    }
}
