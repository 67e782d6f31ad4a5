//! Lines that wait to be written to a client.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use trilogue_domain::{Principal, lock};

use super::transport::LineSink;
use crate::http::receive::{BodyBudget, HeldBytes};

/// The longest time that a lazy batch waits for the next batch.
const LINGER: Duration = Duration::from_millis(50);

/// Batches of whole lines that wait to be written, in order.
///
/// `push` waits while the outbox is full, so that a slow client cannot make it grow.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<OutboxState>,
    /// Notified when a batch was added or the outbox was closed.
    added: Notify,
    /// Notified when batches were taken.
    taken: Notify,
    max_messages: usize,
    max_bytes: usize,
    budget: Option<OutboxBudget>,
}

/// The budget in which batches count until the client has read them.
#[derive(Debug)]
pub(crate) struct OutboxBudget {
    pub(crate) budget: Arc<BodyBudget>,
    pub(crate) principal: Arc<Principal>,
    /// Ends the connection when the budget is spent.
    pub(crate) closed: CancellationToken,
}

#[derive(Debug, Default)]
struct OutboxState {
    batches: Vec<Batch>,
    messages: usize,
    bytes: usize,
    is_closed: bool,
    /// Whether the budget had no room for a batch.
    is_over_budget: bool,
    /// Whether the batches must be written now.
    is_due: bool,
    /// Whether the writer's timer for lazy batches is running.
    is_timed: bool,
}

/// What the writer does next.
enum WriterStep {
    Write(Vec<Batch>),
    /// Wait for a batch.
    Wait,
    /// Start the timer, and wait for it or a batch.
    StartTimer,
    End,
}

/// Whole lines that one write can join with others.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The lines, each with its line end.
    pub(crate) lines: Vec<u8>,
    /// How many of them are messages.
    pub(crate) messages: usize,
    /// Their part of the budget, if they count in one.
    pub(crate) held: Option<HeldBytes>,
}

// === impl Outbox ===

impl Outbox {
    pub(crate) fn new(max_messages: usize, max_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            added: Notify::new(),
            taken: Notify::new(),
            max_messages: max_messages.max(1),
            max_bytes: max_bytes.max(1),
            budget: None,
        }
    }

    /// Counts the batches in this budget, also those that wait for room.
    pub(crate) fn with_budget(self, budget: OutboxBudget) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// Whether the outbox was closed because the budget had no room for a batch.
    pub(crate) fn is_over_budget(&self) -> bool {
        self.lock().is_over_budget
    }

    /// Adds a batch when there is room. A batch that is larger than the outbox waits until the outbox is empty. After `close`, batches are dropped.
    pub(crate) async fn push(&self, batch: Batch) {
        self.add(batch, true).await;
    }

    /// Adds a batch that is written with the next one or after [`LINGER`], so that it does not wake the reader alone.
    pub(crate) async fn push_lazily(&self, batch: Batch) {
        self.add(batch, false).await;
    }

    async fn add(&self, batch: Batch, is_due: bool) {
        if batch.lines.is_empty() {
            return;
        }
        let mut batch = self.count(batch);
        loop {
            let taken = self.taken.notified();
            tokio::pin!(taken);
            // Register before the check, so that no notification is missed.
            taken.as_mut().enable();
            if self.try_push(&mut batch, is_due) {
                return;
            }
            taken.await;
        }
    }

    /// Returns the batch with its part of the budget. Without room for it the connection ends: a batch that waits takes memory too.
    fn count(&self, mut batch: Batch) -> Option<Batch> {
        let Some(OutboxBudget { budget, principal, closed }) = &self.budget else {
            return Some(batch);
        };
        match HeldBytes::of_waiting(budget, principal, batch.lines.len()) {
            Ok(held) => {
                batch.held = Some(held);
                Some(batch)
            }
            Err(spent) => {
                tracing::debug!(%spent, "a client that leaves messages unread is disconnected");
                self.lock().is_over_budget = true;
                self.close();
                closed.cancel();
                None
            }
        }
    }

    fn try_push(&self, batch: &mut Option<Batch>, is_due: bool) -> bool {
        let mut state = self.lock();
        if state.is_closed {
            return true;
        }
        let Some(size) = batch.as_ref().map(|batch| (batch.messages, batch.lines.len())) else {
            return true;
        };
        let fits = state.messages.saturating_add(size.0) <= self.max_messages
            && state.bytes.saturating_add(size.1) <= self.max_bytes;
        let has_room = fits || state.batches.is_empty();
        if has_room {
            state.messages += size.0;
            state.bytes += size.1;
            state.batches.extend(batch.take());
        }
        // A batch that waits for room must not wait for the timer too.
        state.is_due |= is_due || !has_room;
        let must_notify = state.is_due || !state.is_timed;
        // The writer takes this lock as soon as it is notified.
        drop(state);
        if must_notify {
            // The permit stays while the writer is busy, so that it does not miss the batch.
            self.added.notify_one();
        }
        has_room
    }

    /// Drops further batches. Those that wait are still written.
    pub(crate) fn close(&self) {
        // Before the notifications: the writer and the senders check it when they wake.
        self.lock().is_closed = true;
        self.added.notify_one();
        self.taken.notify_waiters();
    }

    /// Sends batches until the outbox is closed or sending fails.
    pub(crate) async fn send_to(
        &self,
        sink: &mut impl LineSink,
        dropped: &CancellationToken,
    ) -> std::io::Result<()> {
        let mut timer = pin!(sleep(LINGER));
        let mut is_timed = false;
        loop {
            let batches = match self.next() {
                WriterStep::End => return Ok(()),
                WriterStep::Write(batches) => batches,
                next => {
                    if matches!(next, WriterStep::StartTimer) {
                        timer.as_mut().reset(Instant::now() + LINGER);
                        is_timed = true;
                    }
                    tokio::select! {
                        () = self.added.notified() => {}
                        () = timer.as_mut(), if is_timed => {
                            is_timed = false;
                            self.timer_fired();
                        }
                        kept = sink.keep_alive() => kept?,
                        () = dropped.cancelled() => return Ok(()),
                    }
                    continue;
                }
            };
            tokio::select! {
                sent = sink.send(batches) => sent?,
                () = dropped.cancelled() => return Ok(()),
            }
        }
    }

    fn next(&self) -> WriterStep {
        let mut state = self.lock();
        if state.batches.is_empty() {
            return if state.is_closed { WriterStep::End } else { WriterStep::Wait };
        }
        if !state.is_due && !state.is_closed {
            let is_timed = std::mem::replace(&mut state.is_timed, true);
            return if is_timed { WriterStep::Wait } else { WriterStep::StartTimer };
        }
        let batches = std::mem::take(&mut state.batches);
        // The room is free now, not after the write: new batches gather while these are written.
        (state.messages, state.bytes, state.is_due) = (0, 0, false);
        // The waiting senders take this lock as soon as they are notified.
        drop(state);
        self.taken.notify_waiters();
        WriterStep::Write(batches)
    }

    /// The timer keeps running while batches come often, so that it is set a few times a second and not for each batch.
    fn timer_fired(&self) {
        let mut state = self.lock();
        state.is_timed = false;
        state.is_due |= !state.batches.is_empty();
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        lock(&self.state)
    }
}

// === impl Batch ===

impl Batch {
    pub(crate) fn new(lines: Vec<u8>, messages: usize) -> Self {
        Self { lines, messages, held: None }
    }

    /// Returns the lines, which count in the budget until their last part is dropped.
    pub(crate) fn into_lines(self) -> Bytes {
        let lines = Bytes::from(self.lines);
        match self.held {
            Some(held) => held.count(lines),
            None => lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWrite};
    use tokio::time::timeout;

    use super::super::transport::LineWriter;
    use super::*;

    async fn send_to(
        outbox: &Outbox,
        stream: impl AsyncWrite + Unpin + Send,
    ) -> std::io::Result<()> {
        outbox.send_to(&mut LineWriter::new(stream), &CancellationToken::new()).await
    }

    fn batch(text: &str) -> Batch {
        Batch::new(text.as_bytes().to_vec(), 1)
    }

    #[tokio::test]
    async fn batches_keep_their_order_and_the_end_comes_after_them() {
        let outbox = Outbox::new(10, 1000);
        for text in ["one\n", "two\n", "three\n"] {
            outbox.push(batch(text)).await;
        }
        outbox.close();
        outbox.push(batch("late\n")).await;
        let mut out = Vec::new();
        send_to(&outbox, &mut out).await.unwrap();
        assert_eq!(out, b"one\ntwo\nthree\n");
    }

    #[tokio::test]
    async fn a_full_outbox_makes_its_writers_wait() {
        let outbox = Arc::new(Outbox::new(1, 1000));
        outbox.push(batch("one\n")).await;
        let second = {
            let outbox = Arc::clone(&outbox);
            tokio::spawn(async move { outbox.push(batch("two\n")).await })
        };
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        let (mut ours, theirs) = tokio::io::duplex(64);
        let writer = {
            let outbox = Arc::clone(&outbox);
            tokio::spawn(async move { send_to(&outbox, theirs).await })
        };
        let mut read = [0; 8];
        tokio::time::timeout(Duration::from_secs(10), ours.read_exact(&mut read))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&read, b"one\ntwo\n");
        second.await.unwrap();
        outbox.close();
        writer.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_lazy_batch_goes_with_the_next_or_after_a_while() {
        const LIMIT: Duration = Duration::from_secs(60);
        let outbox = Arc::new(Outbox::new(10, 1000));
        let (mut ours, theirs) = tokio::io::duplex(64);
        let writer = {
            let outbox = Arc::clone(&outbox);
            tokio::spawn(async move { send_to(&outbox, theirs).await })
        };
        let mut read = [0; 16];
        for _ in 0..3 {
            outbox.push_lazily(batch("one\n")).await;
            outbox.push(batch("two\n")).await;
            assert_eq!(timeout(LIMIT, ours.read(&mut read)).await.unwrap().unwrap(), 8);
            assert_eq!(&read[..8], b"one\ntwo\n");
        }
        for _ in 0..2 {
            outbox.push_lazily(batch("three\n")).await;
            assert_eq!(timeout(LIMIT, ours.read(&mut read)).await.unwrap().unwrap(), 6);
        }
        outbox.push_lazily(batch("last\n")).await;
        outbox.close();
        assert_eq!(timeout(LIMIT, ours.read(&mut read)).await.unwrap().unwrap(), 5);
        writer.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_batch_that_waits_for_room_makes_a_lazy_one_due() {
        let outbox = Arc::new(Outbox::new(1, 1000));
        outbox.push_lazily(batch("one\n")).await;
        assert!(!outbox.lock().is_due);
        let second = {
            let outbox = Arc::clone(&outbox);
            tokio::spawn(async move { outbox.push_lazily(batch("two\n")).await })
        };
        while !outbox.lock().is_due {
            tokio::task::yield_now().await;
        }
        assert!(!second.is_finished());
        outbox.close();
        let mut out = Vec::new();
        send_to(&outbox, &mut out).await.unwrap();
        second.await.unwrap();
        assert_eq!(out, b"one\n");
    }

    #[tokio::test]
    async fn a_batch_larger_than_the_outbox_goes_when_it_is_empty() {
        let outbox = Outbox::new(10, 4);
        outbox.push(batch("much too large\n")).await;
        outbox.close();
        let mut out = Vec::new();
        send_to(&outbox, &mut out).await.unwrap();
        assert_eq!(out, b"much too large\n");
    }
}
