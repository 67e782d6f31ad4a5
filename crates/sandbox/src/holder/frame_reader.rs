//! Splits the bytes of a connection into frames.

use std::fmt;

use super::frame::{
    Decode, HEADER_BYTES, HolderFrame, InvalidFrame, MAX_PAYLOAD_BYTES, ServerFrame,
};

/// The capacity that a reader keeps while it has no bytes.
const KEPT_CAPACITY_BYTES: usize = 64 * 1024;

/// Splits the bytes of a connection into frames.
pub struct FrameReader {
    bytes: Vec<u8>,
    /// Where the next frame begins in `bytes`.
    start: usize,
    max_payload_bytes: usize,
    /// The first error. The rest of the connection has no meaning after it.
    failure: Option<InvalidFrame>,
}

// === impl FrameReader ===

impl FrameReader {
    /// Returns a reader without bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(MAX_PAYLOAD_BYTES)
    }

    /// Returns a reader that refuses payloads above a smaller limit.
    #[must_use]
    pub fn with_limit(max_payload_bytes: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, max_payload_bytes, failure: None }
    }

    /// Allows payloads of every size that the frames allow.
    pub fn lift_limit(&mut self) {
        self.max_payload_bytes = MAX_PAYLOAD_BYTES;
    }

    /// Adds bytes of the connection.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        // Each byte is moved at most once for each byte that was taken, so the cost is linear.
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend(bytes);
    }

    /// Returns the next frame of a server, or `None` if it is not complete yet.
    pub fn next_server_frame(&mut self) -> Result<Option<ServerFrame>, InvalidFrame> {
        self.next()
    }

    /// Returns the next frame of a holder, or `None` if it is not complete yet.
    pub fn next_holder_frame(&mut self) -> Result<Option<HolderFrame>, InvalidFrame> {
        self.next()
    }

    fn next<F: Decode>(&mut self) -> Result<Option<F>, InvalidFrame> {
        match self.failure {
            Some(failure) => Err(failure),
            None => self.take().inspect_err(|failure| {
                self.failure = Some(*failure);
                (self.bytes, self.start) = (Vec::new(), 0);
            }),
        }
    }

    fn take<F: Decode>(&mut self) -> Result<Option<F>, InvalidFrame> {
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        // An unknown kind fails with its first byte: the payload may never come.
        let Some(kind) = rest.first().copied() else { return Ok(None) };
        if !F::KINDS.contains(&kind) {
            return Err(InvalidFrame::UnknownKind(kind));
        }
        let Some((header, _)) = rest.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [_, length @ ..] = *header;
        let length = u32::from_le_bytes(length);
        let payload = usize::try_from(length).unwrap_or(usize::MAX);
        if payload > self.max_payload_bytes {
            return Err(InvalidFrame::TooLarge(length));
        }
        let end = self.start + HEADER_BYTES + payload;
        if self.bytes.len() < end {
            // With room for the whole frame and one more read, a large one does not grow by copies.
            if payload > KEPT_CAPACITY_BYTES {
                self.bytes.reserve_exact(end - self.bytes.len() + KEPT_CAPACITY_BYTES);
            }
            return Ok(None);
        }
        let payload = self.take_payload(self.start + HEADER_BYTES, end);
        F::decode(kind, payload).map(Some).ok_or(InvalidFrame::Payload(kind))
    }

    /// Takes the bytes of a complete frame.
    fn take_payload(&mut self, start: usize, end: usize) -> Vec<u8> {
        let rest = self.bytes.len() - end;
        // A large payload keeps its allocation, and the shorter rest moves.
        if end - start > KEPT_CAPACITY_BYTES.max(rest) {
            let rest = self.bytes.split_off(end);
            let mut payload = std::mem::replace(&mut self.bytes, rest);
            payload.drain(..start);
            self.start = 0;
            return payload;
        }
        let payload = self.bytes.get(start..end).unwrap_or_default().to_vec();
        self.start = end;
        if rest == 0 {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_CAPACITY_BYTES);
            self.start = 0;
        }
        payload
    }
}

impl Default for FrameReader {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FrameReader {
    /// Leaves out the bytes, which can contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReader").field("failure", &self.failure).finish_non_exhaustive()
    }
}
