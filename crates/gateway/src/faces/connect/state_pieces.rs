//! Streams a long state message by message: memory holds the messages of one run.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::{Stream, stream};
use trilogue_domain::CheckpointKey;
use trilogue_domain::error::Result;
use trilogue_mapping::connect::{self as mapping, Links};
use trilogue_runtime::{ConversationReader, Runtime, StateReader};
use trilogue_store::rows::ThreadRow;

/// A piece of a response ends after the message that takes it over this many bytes.
const PIECE_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct StatePieces {
    runtime: Runtime,
    thread: ThreadRow,
    at: Option<CheckpointKey>,
    links: Links,
    /// JSON parts; the messages go between each two parts.
    parts: VecDeque<Vec<u8>>,
    /// The reader of the messages that are being written.
    reader: Option<ConversationReader>,
    has_written: bool,
}

// === impl StatePieces ===

impl StatePieces {
    pub(super) fn new(
        runtime: Runtime,
        thread: ThreadRow,
        at: Option<CheckpointKey>,
        links: Links,
        parts: Vec<Vec<u8>>,
    ) -> Self {
        let parts = parts.into();
        Self { runtime, thread, at, links, parts, reader: None, has_written: false }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Result<Bytes>> + Send {
        stream::try_unfold(self, |mut pieces| async move {
            Ok(pieces.next().await?.map(|piece| (piece, pieces)))
        })
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        let mut out = Vec::new();
        while out.len() < PIECE_BYTES {
            if let Some(reader) = &mut self.reader {
                match reader.next().await? {
                    Some(message) => {
                        if self.has_written {
                            out.push(b',');
                        }
                        self.has_written = true;
                        out.extend(mapping::message_json(&message, &self.links));
                    }
                    None => self.reader = None,
                }
                continue;
            }
            let Some(part) = self.parts.pop_front() else { break };
            out.extend(part);
            if !self.parts.is_empty() {
                self.reader = self.open().await?;
                self.has_written = false;
            }
        }
        Ok((!out.is_empty()).then(|| Bytes::from(out)))
    }

    /// Opens the messages. Returns `None` if a client has set a state at the checkpoint meanwhile: then the messages are not shown.
    async fn open(&self) -> Result<Option<ConversationReader>> {
        Ok(match self.runtime.read_state(&self.thread, self.at).await? {
            StateReader::Messages(reader) => Some(reader),
            StateReader::Value(_) => None,
        })
    }
}
