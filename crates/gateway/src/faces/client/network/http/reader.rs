//! One stream of a connection, as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use trilogue_domain::error::Result;

use super::super::admission::{CONNECTION_ID, ClientCall};
use super::connection::HttpConnection;
use super::routing::StreamKey;
use crate::http::reply::Reply;
use crate::stream::{OpenStream, StreamSource, stream_reply};

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
/// A comment: it shows that the stream works.
const HEARTBEAT: Bytes = Bytes::from_static(b":\n\n");

struct StreamReader {
    open: OpenStream,
    connection: Arc<HttpConnection>,
    stream: StreamKey,
    /// The number of this reader.
    reader: u64,
}

/// Opens a stream after the message with number `after`, or after the last message that was sent.
/// Errors: those of [`OpenStream::begin`] and of [`HttpConnection::attach`].
pub(super) fn open(
    call: &ClientCall,
    connection: Arc<HttpConnection>,
    stream: StreamKey,
    after: Option<u64>,
) -> Result<Reply> {
    let streams = &call.state.streams;
    let open = OpenStream::begin(streams, &call.caller, Duration::MAX)?;
    let reader = connection.attach(&stream, after)?;
    let id = connection.id.clone();
    let source = StreamReader { open, connection, stream, reader };
    Ok(stream_reply(EVENT_STREAM, source).header_text(CONNECTION_ID, &id))
}

// === impl StreamReader ===

impl StreamSource for StreamReader {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // A revoked token ends the stream; the next request tells the client why.
            self.open.check().await.ok()?;
            let changed = match self.connection.take(&self.stream, self.reader)? {
                Ok(events) => return Some(events),
                Err(changed) => changed,
            };
            tokio::select! {
                () = changed.notified() => {}
                () = self.open.next_tick() => {
                    if self.open.tick().await.ok()? {
                        return Some(HEARTBEAT);
                    }
                }
            }
        }
    }

    fn open(&mut self) -> &mut OpenStream {
        &mut self.open
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.connection.detach(&self.stream, self.reader);
    }
}
