//! One client's position on a stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use trilogue_domain::error::Result;
use trilogue_domain::{Error, RunId};
use trilogue_store::rows::RunRow;
use trilogue_wire::native::Gap;

use super::cursor::Cursor;
use super::feed::{Feed, RenderedFrame};
use super::view::View;
use super::{OpenStream, StreamSource, Streams, stopping, stream_reply};
use crate::access::authenticator::Caller;
use crate::core::log_ref::LogRef;
use crate::core::not_found::{no_run, no_thread};
use crate::http::reply::Reply;

/// The most that a stream still sends while the server is stopping, apart from its last frame, in bytes.
const FAREWELL_BYTES: usize = 1024 * 1024;

/// One client's position on a stream. The client pulls pieces, so the stream needs no queue.
struct Reader {
    open: OpenStream,
    feed: Arc<Feed>,
    committed: watch::Receiver<u64>,
    cursor: Cursor,
    last_frame: Option<Arc<RenderedFrame>>,
    has_started: bool,
    /// Whether we have checked if more events can follow.
    has_checked_end: bool,
    is_done: bool,
    /// Whether this stream has shown a question.
    has_shown_question: bool,
    /// Whether the stream's run had ended at the last check.
    run_ended: bool,
}

enum LogWake {
    Committed,
    LogGone,
    Tick,
    Stopping,
}

/// Opens a stream of a thread, or of a run, that the caller has looked up.
/// Errors: `overloaded` if there are too many, `shutting_down`, `invalid_cursor` if the position is beyond the log, and those of reading the store.
pub(crate) async fn open(
    streams: &Arc<Streams>,
    caller: &Caller,
    thread: LogRef,
    run: Option<&RunRow>,
    view: Arc<dyn View>,
    cursor: Cursor,
) -> Result<Reply> {
    let mut open = OpenStream::begin(streams, caller, Duration::MAX)?;
    let feed = streams.feeds.open(&streams.read, thread, run, view);
    let committed = feed.committed();
    // A tail learns its log's end later than its readers can come: only the store knows what is beyond it.
    if run.is_some() || cursor.number > *committed.borrow() {
        cursor.check(streams.read.as_ref(), feed.thread.key, run).await?;
    }
    open.attend(feed.thread.key);
    let reader = Reader {
        committed,
        cursor,
        last_frame: None,
        has_started: false,
        has_checked_end: false,
        is_done: false,
        has_shown_question: false,
        run_ended: run.is_some_and(|run| run.status.is_terminal()),
        feed,
        open,
    };
    let content_type = reader.feed.view.content_type();
    Ok(stream_reply(content_type, reader))
}

// === impl Reader ===

impl StreamSource for Reader {
    async fn next(&mut self) -> Option<Bytes> {
        while !self.is_done {
            if let Err(error) = self.open.check().await {
                return Some(self.end_with(&error));
            }
            match self.next_frame().await {
                Ok(Some(chunk)) => {
                    let bytes = self.take(&chunk);
                    if !bytes.is_empty() {
                        return Some(bytes);
                    }
                    continue;
                }
                Ok(None) if self.run_ended || self.is_answer_next() => return None,
                Ok(None) if !std::mem::replace(&mut self.has_checked_end, true) => {
                    // A thread that was removed before its tail was attached does not end the tail, so check that it exists.
                    if let Err(error) = self.check_exists().await {
                        return Some(self.end_with(&error));
                    }
                    continue;
                }
                Ok(None) => {}
                Err(error) => return Some(self.end_with(&error)),
            }
            match self.wait().await {
                LogWake::Committed => {}
                LogWake::LogGone => return Some(self.end_with(&self.not_found_error())),
                LogWake::Stopping => return Some(self.drain_and_close().await),
                LogWake::Tick => {
                    if let Some(piece) = self.tick().await {
                        return Some(piece);
                    }
                }
            }
        }
        None
    }

    fn open(&mut self) -> &mut OpenStream {
        &mut self.open
    }
}

impl Reader {
    async fn next_frame(&self) -> Result<Option<Arc<RenderedFrame>>> {
        self.feed.next_frame(&self.open.streams, self.cursor, self.last_frame.as_ref()).await
    }

    /// Whether this stream has shown a question for which the run still waits, in a view whose streams end there. A stream that begins after the question continues.
    fn is_answer_next(&self) -> bool {
        self.has_shown_question && self.last_frame.as_ref().is_some_and(|chunk| chunk.waits)
    }

    /// Returns the part of a frame that this client does not have, and records the questions in it as shown.
    fn take(&mut self, chunk: &Arc<RenderedFrame>) -> Bytes {
        let mut bytes = chunk.after(self.cursor);
        let asked = self.cursor.whole();
        if !std::mem::replace(&mut self.has_started, true) && chunk.first > asked + 1 {
            let mut gap = self.feed.view.gap(&Gap { after: asked, first: chunk.first });
            gap.extend_from_slice(&bytes);
            bytes = Bytes::from(gap);
        }
        for (cursor, run, interrupt) in &chunk.shown {
            if *cursor > self.cursor {
                self.open.streams.runtime.record_shown_question(
                    &self.open.caller.principal.id,
                    run,
                    interrupt,
                );
                self.has_shown_question = true;
            }
        }
        self.cursor = Cursor::after(chunk.last);
        self.last_frame = Some(Arc::clone(chunk));
        self.is_done |= chunk.ends;
        bytes
    }

    async fn wait(&mut self) -> LogWake {
        let streams = Arc::clone(&self.open.streams);
        tokio::select! {
            changed = self.committed.changed() => match changed {
                Ok(()) => LogWake::Committed,
                Err(_) => LogWake::LogGone,
            },
            () = streams.lifecycle.streams_ended() => LogWake::Stopping,
            () = self.open.next_tick() => LogWake::Tick,
        }
    }

    /// Returns the events of the shutdown itself, and then the reason for the end.
    async fn drain_and_close(&mut self) -> Bytes {
        let mut bytes = Vec::new();
        while !self.is_done
            && bytes.len() < FAREWELL_BYTES
            && let Ok(Some(chunk)) = self.next_frame().await
        {
            bytes.extend_from_slice(&self.take(&chunk));
        }
        if !self.is_done {
            bytes.extend_from_slice(&self.end_with(&stopping()));
        }
        Bytes::from(bytes)
    }

    /// Returns a heartbeat, or the end of a stream whose token was revoked or whose log was removed.
    async fn tick(&mut self) -> Option<Bytes> {
        let checked = match self.open.tick().await {
            Ok(false) => return None,
            Ok(true) => self.check_exists().await,
            Err(error) => Err(error),
        };
        Some(match checked {
            Ok(()) => self.feed.view.heartbeat(),
            Err(error) => self.end_with(&error),
        })
    }

    /// Checks that thread and run still exist. Records whether the run has ended.
    async fn check_exists(&mut self) -> Result<()> {
        let scope = self.feed.thread.scope();
        match self.feed.run.as_ref().map(|(_, id)| id) {
            None => {
                let found = self.open.streams.read.thread(&scope, &self.feed.thread.id).await?;
                found
                    .filter(|row| row.key == self.feed.thread.key)
                    .ok_or_else(|| self.not_found_error())?;
            }
            Some(id) => {
                let row = self
                    .open
                    .streams
                    .read
                    .run(&scope, id)
                    .await?
                    .ok_or_else(|| self.not_found_error())?;
                self.run_ended = row.status.is_terminal();
            }
        }
        Ok(())
    }

    fn not_found_error(&self) -> Error {
        match self.feed.run.as_ref().map(|(_, id)| RunId::as_str(id)) {
            Some(run) => no_run(run),
            None => no_thread(self.feed.thread.id.as_str()),
        }
    }

    /// Returns the last piece of a stream that ends before its log.
    fn end_with(&mut self, error: &Error) -> Bytes {
        self.is_done = true;
        Bytes::from(self.feed.view.error(error))
    }
}
