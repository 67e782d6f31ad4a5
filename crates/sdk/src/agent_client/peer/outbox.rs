//! What is to be written: lines are added by anybody and written together by one task.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use trilogue_wire::jsonrpc::Encoder;

use super::{Failed, Shared, lock};

/// How much room is kept for the next lines, in bytes.
const KEPT_BYTES: usize = 256 * 1024;

/// Lines on their way out.
#[derive(Debug)]
pub(super) struct Outbox {
    max_bytes: usize,
    state: Mutex<State>,
    /// Woken when there is something to write, or to end.
    filled: Notify,
    /// Woken when everything was taken or nothing can be written any more.
    drained: Notify,
}

#[derive(Debug, Default)]
struct State {
    lines: Waiting,
    is_writing: bool,
    /// Nothing more is added; what is there is written.
    is_closing: bool,
    /// The other side says nothing any more; what it asked before is still answered.
    is_draining: bool,
    /// Nothing can be written any more.
    is_ended: bool,
}

/// Lines, and bytes that are none.
#[derive(Debug, Default)]
struct Waiting {
    lines: Encoder,
    raw: Vec<u8>,
}

// === impl Outbox ===

impl Outbox {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, state: Mutex::default(), filled: Notify::new(), drained: Notify::new() }
    }

    /// Returns when there is room.
    pub(super) async fn room(&self) -> Result<(), Failed> {
        loop {
            let drained = self.drained.notified();
            {
                let state = lock(&self.state);
                if state.is_ended || state.is_closing {
                    return Err(Failed::Closed);
                }
                if state.lines.len() < self.max_bytes {
                    return Ok(());
                }
            }
            drained.await;
        }
    }

    /// Adds a line whether there is room or not.
    pub(super) fn push(&self, line: impl FnOnce(&mut Encoder) -> usize) -> Result<(), Failed> {
        self.add(|waiting| {
            line(waiting.lines());
        })
    }

    /// Adds bytes as they are.
    pub(super) fn push_raw(&self, bytes: &[u8]) -> Result<(), Failed> {
        self.add(|waiting| waiting.raw().extend_from_slice(bytes))
    }

    fn add(&self, add: impl FnOnce(&mut Waiting)) -> Result<(), Failed> {
        let mut state = lock(&self.state);
        if state.is_ended || state.is_closing {
            return Err(Failed::Closed);
        }
        add(&mut state.lines);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    pub(super) fn close(&self) {
        lock(&self.state).is_closing = true;
        self.filled.notify_one();
        self.drained.notify_waiters();
    }

    /// Ends when nothing is asked any more.
    pub(super) fn drain(&self) {
        lock(&self.state).is_draining = true;
        self.wake();
    }

    /// Has the writer look again.
    pub(super) fn wake(&self) {
        self.filled.notify_one();
    }

    pub(super) fn end(&self) {
        lock(&self.state).is_ended = true;
        self.filled.notify_one();
        self.drained.notify_waiters();
    }

    /// Returns when nothing waits to be written.
    pub(super) async fn flushed(&self) {
        loop {
            let drained = self.drained.notified();
            {
                let state = lock(&self.state);
                if state.is_ended || (state.lines.len() == 0 && !state.is_writing) {
                    return;
                }
            }
            drained.await;
        }
    }

    /// The next bytes to write; `None` when there will be none. `is_asked` says whether something is still to be answered.
    async fn next(&self, is_asked: impl Fn() -> bool) -> Option<Vec<u8>> {
        loop {
            {
                let mut state = lock(&self.state);
                state.is_writing = false;
                if state.is_ended {
                    return None;
                }
                if state.lines.len() > 0 {
                    state.is_writing = true;
                    return Some(state.lines.take());
                }
                if state.is_closing || (state.is_draining && !is_asked()) {
                    return None;
                }
            }
            self.drained.notify_waiters();
            self.filled.notified().await;
        }
    }

    /// Gives the room of written bytes back.
    fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut state = lock(&self.state);
        if bytes.capacity() <= KEPT_BYTES && state.lines.raw.capacity() == 0 {
            state.lines.raw = bytes;
        }
        drop(state);
        self.drained.notify_waiters();
    }
}

// === impl Waiting ===

impl Waiting {
    fn len(&self) -> usize {
        self.raw.len() + self.lines.len()
    }

    fn lines(&mut self) -> &mut Encoder {
        &mut self.lines
    }

    /// The bytes at the end.
    fn raw(&mut self) -> &mut Vec<u8> {
        self.raw.extend_from_slice(self.lines.as_bytes());
        self.lines.clear();
        &mut self.raw
    }

    fn take(&mut self) -> Vec<u8> {
        if self.raw.is_empty() {
            return self.lines.take();
        }
        std::mem::take(self.raw())
    }
}

/// Writes what comes until there will be nothing more, then closes the stream.
pub(super) async fn write<W: AsyncWrite + Send + Unpin>(shared: Arc<Shared>, mut to: W) {
    while let Some(bytes) = shared.outbox.next(|| !lock(&shared.requests).is_empty()).await {
        let written = async {
            to.write_all(&bytes).await?;
            to.flush().await
        };
        let written = tokio::select! {
            biased;
            written = written => written,
            () = shared.aborted.cancelled() => break,
        };
        if written.is_err() {
            break;
        }
        shared.outbox.give_back(bytes);
    }
    shared.outbox.end();
    // A stream that cannot be closed is gone.
    drop(to.shutdown().await);
}
