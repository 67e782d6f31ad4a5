//! What carries a client's messages: the interface of transports, and streams of lines.

use std::io;

use bytes::{Buf, Bytes};
use memchr::{memchr, memchr2_iter};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use trilogue_wire::jsonrpc::Decoder;

use super::outbox::Batch;

/// How much one read takes from a stream, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// Batches are joined until one write has this many bytes.
const WRITE_BYTES: usize = 64 * 1024;

/// The source of a client's messages.
pub(crate) trait MessageSource: Send {
    /// Adds what arrives next to the decoder. Returns `false` if nothing more can arrive. A call can be dropped without a loss.
    fn receive(&mut self, decoder: &mut Decoder) -> impl Future<Output = io::Result<bool>> + Send;
}

/// The destination of a client's lines.
pub(crate) trait LineSink: Send {
    /// Sends these batches. A dropped call can leave half a line, so nothing is sent after it.
    fn send(&mut self, batches: Vec<Batch>) -> impl Future<Output = io::Result<()>> + Send;

    /// Completes after it has sent what shows that the connection works. Never, if the transport needs no such message. A call can be dropped.
    fn keep_alive(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        std::future::pending()
    }
}

/// Reads lines from a stream.
#[derive(Debug)]
pub(crate) struct LineReader<R>(pub(crate) R);

/// Writes lines to a stream.
#[derive(Debug)]
pub(crate) struct LineWriter<W> {
    stream: W,
    /// The buffer in which small batches are joined.
    joined: Vec<u8>,
}

/// The lines of a batch, without their ends.
pub(crate) struct Lines(pub(crate) Bytes);

/// Adds a whole message as one line. It may contain line breaks between its JSON tokens.
pub(crate) fn push_message(decoder: &mut Decoder, message: &[u8]) {
    let mut rest = 0;
    for at in memchr2_iter(b'\n', b'\r', message) {
        decoder.push(message.get(rest..at).unwrap_or_default());
        decoder.push(b" ");
        rest = at + 1;
    }
    decoder.push(message.get(rest..).unwrap_or_default());
    decoder.push(b"\n");
}

// === impl Lines ===

impl Iterator for Lines {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.0.is_empty() {
            return None;
        }
        let end = memchr(b'\n', &self.0).unwrap_or(self.0.len());
        let line = self.0.split_to(end);
        self.0.advance(self.0.len().min(1));
        Some(line)
    }
}

// === impl LineReader ===

impl<R: AsyncRead + Unpin + Send> MessageSource for LineReader<R> {
    async fn receive(&mut self, decoder: &mut Decoder) -> io::Result<bool> {
        Ok(self.0.read_buf(decoder.buffer_for(READ_BYTES)).await? > 0)
    }
}

// === impl LineWriter ===

impl<W> LineWriter<W> {
    pub(crate) const fn new(stream: W) -> Self {
        Self { stream, joined: Vec::new() }
    }
}

impl<W: AsyncWrite + Unpin + Send> LineSink for LineWriter<W> {
    /// Writes large batches directly, and joins small ones.
    async fn send(&mut self, batches: Vec<Batch>) -> io::Result<()> {
        let Self { stream, joined } = self;
        for (index, batch) in batches.iter().enumerate() {
            let is_last = index + 1 == batches.len();
            if joined.is_empty() && (is_last || batch.lines.len() >= WRITE_BYTES) {
                stream.write_all(&batch.lines).await?;
                continue;
            }
            joined.extend_from_slice(&batch.lines);
            if is_last || joined.len() >= WRITE_BYTES {
                stream.write_all(joined).await?;
                joined.clear();
            }
        }
        stream.flush().await
    }
}
