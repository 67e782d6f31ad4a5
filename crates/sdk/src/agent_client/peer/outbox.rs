//! The output queue. Any task adds lines, and one task writes them together. If nothing waits, the task that adds a line writes it.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use trilogue_wire::jsonrpc::Encoder;

use super::{CallFailure, PeerShared, lock};

/// The buffer capacity that is kept for the next lines, in bytes.
const KEPT_BYTES: usize = 256 * 1024;
/// How many bytes lines that cannot wait may add above the limit.
const SPARE_BYTES: usize = 1024 * 1024;
/// The longest line that the task that adds it writes itself, in bytes.
const AT_ONCE_BYTES: usize = 64 * 1024;

type Stream = Box<dyn AsyncWrite + Send + Unpin>;

#[derive(Debug)]
pub(super) struct Outbox {
    max_bytes: usize,
    state: Mutex<State>,
    /// Notified when there is output, or when writing must end.
    filled: Notify,
    /// Notified when all lines were taken, or when nothing can be written any more.
    drained: Notify,
}

#[derive(Default)]
struct State {
    lines: Waiting,
    /// The stream; `None` while a task writes, and after the end.
    to: Option<Stream>,
    /// Whether written bytes still need a flush.
    is_unflushed: bool,
    /// Whether the outbox is closing: it takes no more lines and writes the rest.
    is_closing: bool,
    /// Whether the other side has ended. Its open requests are still answered.
    is_draining: bool,
    /// Whether nothing can be written any more.
    is_ended: bool,
}

/// Complete lines plus raw bytes.
#[derive(Debug, Default)]
struct Waiting {
    lines: Encoder,
    raw: Vec<u8>,
}

// === impl Outbox ===

impl Outbox {
    pub(super) fn new(max_bytes: usize, to: Stream) -> Self {
        let state = Mutex::new(State { to: Some(to), ..State::default() });
        Self { max_bytes, state, filled: Notify::new(), drained: Notify::new() }
    }

    pub(super) async fn room(&self) -> Result<(), CallFailure> {
        loop {
            // Subscribe before the check, so that no wakeup is missed.
            let drained = self.drained.notified();
            if self.has_room()? {
                return Ok(());
            }
            drained.await;
        }
    }

    pub(super) fn has_room(&self) -> Result<bool, CallFailure> {
        let state = lock(&self.state);
        if state.is_ended || state.is_closing {
            return Err(CallFailure::Closed);
        }
        Ok(state.lines.len() < self.max_bytes)
    }

    /// Adds a line without a check for room.
    pub(super) fn push(&self, line: impl FnOnce(&mut Encoder) -> usize) -> Result<(), CallFailure> {
        self.add(|waiting| {
            line(waiting.lines());
        })
    }

    /// Adds a line like [`Self::push`]. If nothing else waits or is being written, writes it at once, without waking the writer task.
    pub(super) fn push_at_once(
        &self,
        line: impl FnOnce(&mut Encoder) -> usize,
    ) -> Result<(), CallFailure> {
        let (to, bytes) = {
            let mut state = lock(&self.state);
            if state.is_ended || state.is_closing {
                return Err(CallFailure::Closed);
            }
            let is_first = state.lines.len() == 0 && !state.is_unflushed;
            line(state.lines.lines());
            let is_short = state.lines.len() <= AT_ONCE_BYTES;
            // Some streams need a runtime.
            let may_write = is_first && is_short && Handle::try_current().is_ok();
            match state.to.take_if(|_| may_write) {
                Some(to) => (to, state.lines.take()),
                None => {
                    drop(state);
                    self.filled.notify_one();
                    return Ok(());
                }
            }
        };
        self.write_at_once(to, bytes);
        Ok(())
    }

    /// Writes as many bytes as the stream takes now. The writer task writes the rest.
    fn write_at_once(&self, mut to: Stream, mut bytes: Vec<u8>) {
        let Ok((written, is_flushed)) = write_now(&mut to, &bytes) else {
            drop(to);
            return self.end();
        };
        bytes.drain(..written);
        let mut state = lock(&self.state);
        if state.is_ended {
            // The writer task has ended without the stream, so it is closed here.
            drop(state);
            return drop(to);
        }
        state.is_unflushed = !is_flushed;
        state.lines.put_back(bytes);
        state.to = Some(to);
        let is_looked_at = !state.is_idle() || state.is_closing || state.is_draining;
        drop(state);
        self.drained.notify_waiters();
        if is_looked_at {
            self.filled.notify_one();
        }
    }

    /// Adds a line that cannot wait for room.
    pub(super) fn push_now(
        &self,
        line: impl FnOnce(&mut Encoder) -> usize,
    ) -> Result<(), CallFailure> {
        if lock(&self.state).lines.len() >= self.max_bytes.saturating_add(SPARE_BYTES) {
            return Err(CallFailure::TooMany);
        }
        self.push(line)
    }

    pub(super) fn push_raw(&self, bytes: &[u8]) -> Result<(), CallFailure> {
        self.add(|waiting| waiting.raw().extend_from_slice(bytes))
    }

    fn add(&self, add: impl FnOnce(&mut Waiting)) -> Result<(), CallFailure> {
        let mut state = lock(&self.state);
        if state.is_ended || state.is_closing {
            return Err(CallFailure::Closed);
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

    /// Ends the output after the last open request is answered.
    pub(super) fn drain(&self) {
        lock(&self.state).is_draining = true;
        self.wake();
    }

    /// Wakes the writer task to check the state again.
    pub(super) fn wake(&self) {
        self.filled.notify_one();
    }

    pub(super) fn end(&self) {
        lock(&self.state).is_ended = true;
        self.filled.notify_one();
        self.drained.notify_waiters();
    }

    pub(super) async fn wait_for_flush(&self) {
        loop {
            let drained = self.drained.notified();
            {
                let state = lock(&self.state);
                if state.is_ended || state.is_idle() {
                    return;
                }
            }
            drained.await;
        }
    }

    /// Returns the stream and the next bytes for it; no bytes at the end of the output. `is_asked` returns whether requests are still open.
    async fn next(&self, is_asked: impl Fn() -> bool) -> (Option<Stream>, Option<Vec<u8>>) {
        loop {
            {
                let mut state = lock(&self.state);
                if state.is_ended {
                    return (state.to.take(), None);
                }
                let is_over = state.is_closing || (state.is_draining && !is_asked());
                let has_some = state.lines.len() > 0 || state.is_unflushed;
                // Without the stream, another task is writing and notifies us afterwards.
                if (has_some || is_over)
                    && let Some(to) = state.to.take()
                {
                    let bytes = has_some.then(|| state.lines.take());
                    drop(state);
                    // Waiting writers get the room now, even if the write takes long.
                    self.drained.notify_waiters();
                    return (Some(to), bytes);
                }
            }
            self.drained.notify_waiters();
            self.filled.notified().await;
        }
    }

    /// Returns the stream and the buffer of the written bytes.
    fn give_back(&self, to: Stream, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut state = lock(&self.state);
        state.lines.put_back(bytes);
        state.to = Some(to);
        state.is_unflushed = false;
        drop(state);
        self.drained.notify_waiters();
    }
}

// === impl State ===

impl State {
    fn is_idle(&self) -> bool {
        self.lines.len() == 0 && !self.is_unflushed && self.to.is_some()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("lines", &self.lines)
            .field("is_ended", &self.is_ended)
            .finish_non_exhaustive()
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

    fn raw(&mut self) -> &mut Vec<u8> {
        self.raw.extend_from_slice(self.lines.as_bytes());
        self.lines.clear();
        &mut self.raw
    }

    /// Puts bytes before all others. Keeps their buffer for the next bytes.
    fn put_back(&mut self, mut bytes: Vec<u8>) {
        if bytes.is_empty() && (bytes.capacity() > KEPT_BYTES || self.raw.capacity() > 0) {
            return;
        }
        bytes.extend_from_slice(&self.raw);
        self.raw = bytes;
    }

    fn take(&mut self) -> Vec<u8> {
        if self.raw.is_empty() {
            return self.lines.take();
        }
        std::mem::take(self.raw())
    }
}

/// Writes without waiting. Returns how many bytes the stream has taken, and whether it flushed them.
fn write_now(to: &mut Stream, bytes: &[u8]) -> std::io::Result<(usize, bool)> {
    let mut context = Context::from_waker(Waker::noop());
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match Pin::new(&mut *to).poll_write(&mut context, rest) {
            Poll::Ready(Ok(0)) | Poll::Pending => return Ok((written, false)),
            Poll::Ready(Ok(count)) => written += count,
            Poll::Ready(Err(error)) => return Err(error),
        }
    }
    match Pin::new(to).poll_flush(&mut context) {
        Poll::Ready(flushed) => flushed.map(|()| (written, true)),
        Poll::Pending => Ok((written, false)),
    }
}

/// Writes the output until it ends, then closes the stream.
pub(super) async fn write(shared: Arc<PeerShared>) {
    let mut last = None;
    while let (Some(mut to), bytes) = shared.outbox.next(|| lock(&shared.requests).len() > 0).await
    {
        let Some(bytes) = bytes else {
            last = Some(to);
            break;
        };
        let written = async {
            to.write_all(&bytes).await?;
            to.flush().await
        };
        let written = tokio::select! {
            biased;
            written = written => written.is_ok(),
            () = shared.aborted.cancelled() => false,
        };
        if !written {
            last = Some(to);
            break;
        }
        shared.outbox.give_back(to, bytes);
    }
    shared.outbox.end();
    if let Some(mut to) = last {
        // If the stream cannot be closed, it is already gone.
        drop(to.shutdown().await);
    }
}
