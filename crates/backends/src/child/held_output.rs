//! The output of a held child, without the requests that an earlier server has answered.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::unix::OwnedReadHalf;
use trilogue_sandbox::holder::{FrameReader, HolderFrame, ServerFrame};
use trilogue_wire::agent_client::splice;

use super::holder::{BUFFER_BYTES, HolderLink, next};
use super::sent_labels::SentLabels;

/// The requests of an agent that can be carried out twice: they ask, or have the same effect again.
const REPEATABLE: [&str; 4] =
    ["session/request_permission", "elicitation/create", "fs/read_text_file", "fs/write_text_file"];
const INTERNAL_ERROR: i32 = -32_603;
const LOST_REQUEST: &str =
    "the server was restarted before it had answered; the request may have been carried out";

/// Passes the output of a child on.
pub(super) struct HeldOutput {
    pub(super) stream: OwnedReadHalf,
    pub(super) frames: FrameReader,
    /// The output before this offset is left out.
    pub(super) from: u64,
    /// The end of the output that earlier servers may have got.
    pub(super) seen_to: u64,
    /// The offset of the next byte.
    pub(super) position: u64,
    /// The requests that were answered before are left out too.
    pub(super) sent: SentLabels,
    pub(super) link: HolderLink,
    /// A line without its end, while requests are looked for.
    pub(super) line: Vec<u8>,
    pub(super) output: DuplexStream,
    pub(super) errors: DuplexStream,
}

// === impl HeldOutput ===

impl HeldOutput {
    /// Reads to the end. `None` if the connection ends before the child.
    pub(super) async fn read(mut self) -> Option<ExitStatus> {
        let mut bytes = vec![0; BUFFER_BYTES];
        loop {
            while let Some(frame) = next(&mut self.frames).ok()? {
                match frame {
                    HolderFrame::Output { offset, bytes } => self.take(offset, bytes).await,
                    // Without a reader, they are lost.
                    HolderFrame::Errors(bytes) => drop(self.errors.write_all(&bytes).await),
                    HolderFrame::OutputEnd { .. } => {
                        self.pass().await;
                        drop(self.output.shutdown().await);
                    }
                    HolderFrame::Exit { status } => return Some(ExitStatus::from_raw(status)),
                    HolderFrame::State { .. } => return None,
                }
            }
            match self.stream.read(&mut bytes).await {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.frames.push(bytes.get(..count).unwrap_or_default()),
            }
        }
    }

    async fn take(&mut self, offset: u64, mut bytes: Vec<u8>) {
        let before = usize::try_from(self.from.saturating_sub(offset)).unwrap_or(usize::MAX);
        if before >= bytes.len() {
            return;
        }
        bytes.drain(..before);
        self.line.append(&mut bytes);
        while self.position < self.seen_to
            && let Some(end) = memchr::memchr(b'\n', &self.line)
        {
            let rest = self.line.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.line, rest);
            self.position += line.len() as u64;
            if self.is_done(&line).await {
                // A blank line is skipped, and later offsets stay right.
                line.fill(b' ');
                line.pop();
                line.push(b'\n');
            }
            self.write(&line).await;
        }
        if self.position >= self.seen_to {
            self.pass().await;
        }
    }

    /// Whether a line of a previous server's time needs nothing more: it is a request that was answered, or one that may have been carried out and is refused now. Such a request is never carried out twice.
    async fn is_done(&mut self, line: &[u8]) -> bool {
        let Some((id, method)) = request_of(line) else { return false };
        if self.sent.take_answer(&id) {
            return true;
        }
        // An earlier server has not got the whole line.
        if self.position > self.seen_to || REPEATABLE.contains(&&*method) {
            return false;
        }
        let error = json!({ "code": INTERNAL_ERROR, "message": LOST_REQUEST });
        let response = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n");
        let label = SentLabels::label(response.as_bytes());
        self.link.send(&ServerFrame::Input { label, bytes: response.into_bytes() }).await;
        true
    }

    /// Passes on what waits.
    async fn pass(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.write(&line).await;
    }

    async fn write(&mut self, bytes: &[u8]) {
        // The connection of the agent may be closed. The rest is read all the same, up to the exit.
        drop(self.output.write_all(bytes).await);
    }
}

/// The id and the method of a request in a line, the id as JSON.
fn request_of(line: &[u8]) -> Option<(String, String)> {
    let text = str::from_utf8(line).ok()?.trim();
    let method = splice::get_text(text, &["method"])?.into_owned();
    Some((splice::get(text, &["id"])?.to_owned(), method))
}
