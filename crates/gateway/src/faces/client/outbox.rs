//! What waits to be taken by a client.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use trilogue_domain::lock;

/// Lines shorter than this together are put into one write, in bytes.
const WRITE_BYTES: usize = 64 * 1024;
/// How long a batch that is in no hurry waits for one that is, at most.
const LINGER: Duration = Duration::from_millis(50);

/// What waits to be taken by a client: batches of whole lines, in the order in which they came.
///
/// Whoever adds a batch waits while there is no room, so that no client makes it grow.
#[derive(Debug)]
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    /// Woken when a batch has come, or none comes any more.
    came: Notify,
    /// Woken when batches were taken.
    taken: Notify,
    max_messages: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    batches: Vec<Batch>,
    messages: usize,
    bytes: usize,
    is_closed: bool,
    /// Whether what waits is written now.
    is_due: bool,
    /// Whether the writer has a clock running for what is in no hurry.
    is_timed: bool,
}

/// What the writer does next.
enum Next {
    Write(Vec<Batch>),
    /// Nothing, until more comes.
    Wait,
    /// Nothing, until more comes or what waits has done so for long enough.
    Time,
    End,
}

/// Whole lines that go out together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The lines, each with its end.
    pub(super) lines: Vec<u8>,
    /// How many of them are messages.
    pub(super) messages: usize,
}

// === impl Outbox ===

impl Outbox {
    pub(super) fn new(max_messages: usize, max_bytes: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            came: Notify::new(),
            taken: Notify::new(),
            max_messages: max_messages.max(1),
            max_bytes: max_bytes.max(1),
        }
    }

    /// Adds a batch, when there is room. One that is larger than the outbox waits until it is empty. After the end nothing is added.
    pub(super) async fn push(&self, batch: Batch) {
        self.add(batch, true).await;
    }

    /// The same for a batch that is in no hurry: it goes out with the next one, or a little later. So whoever takes it is not woken for it alone.
    pub(super) async fn push_lazily(&self, batch: Batch) {
        self.add(batch, false).await;
    }

    async fn add(&self, batch: Batch, is_due: bool) {
        if batch.lines.is_empty() {
            return;
        }
        let mut batch = Some(batch);
        loop {
            let taken = self.taken.notified();
            tokio::pin!(taken);
            // Who is woken while it looks does not sleep.
            taken.as_mut().enable();
            if self.try_push(&mut batch, is_due) {
                return;
            }
            taken.await;
        }
    }

    fn try_push(&self, batch: &mut Option<Batch>, is_due: bool) -> bool {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return true;
        }
        let Some(size) = batch.as_ref().map(|batch| (batch.messages, batch.lines.len())) else {
            return true;
        };
        let fits = waiting.messages.saturating_add(size.0) <= self.max_messages
            && waiting.bytes.saturating_add(size.1) <= self.max_bytes;
        let has_room = fits || waiting.batches.is_empty();
        if has_room {
            waiting.messages += size.0;
            waiting.bytes += size.1;
            waiting.batches.extend(batch.take());
        }
        // Whoever waits for room does not wait for the clock too.
        waiting.is_due |= is_due || !has_room;
        let is_looked_at = waiting.is_due || !waiting.is_timed;
        drop(waiting);
        if is_looked_at {
            self.came.notify_one();
        }
        has_room
    }

    /// Takes no more batches; what waits still goes out.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.came.notify_one();
        self.taken.notify_waiters();
    }

    /// Writes what comes until the end, or until the client takes nothing any more.
    ///
    /// # Errors
    /// What writing fails with.
    pub(super) async fn write_to<W: AsyncWrite + Unpin>(
        &self,
        mut to: W,
        dropped: &CancellationToken,
    ) -> std::io::Result<()> {
        let mut together = Vec::new();
        let mut clock = pin!(sleep(LINGER));
        let mut is_timed = false;
        loop {
            let batches = match self.next() {
                Next::End => return to.flush().await,
                Next::Write(batches) => batches,
                next => {
                    if matches!(next, Next::Time) {
                        clock.as_mut().reset(Instant::now() + LINGER);
                        is_timed = true;
                    }
                    tokio::select! {
                        () = self.came.notified() => {}
                        () = clock.as_mut(), if is_timed => {
                            is_timed = false;
                            self.hurry();
                        }
                        () = dropped.cancelled() => return Ok(()),
                    }
                    continue;
                }
            };
            let writing = write_all(&mut to, &batches, &mut together);
            tokio::select! {
                written = writing => written?,
                () = dropped.cancelled() => return Ok(()),
            }
        }
    }

    fn next(&self) -> Next {
        let mut waiting = self.lock();
        if waiting.batches.is_empty() {
            return if waiting.is_closed { Next::End } else { Next::Wait };
        }
        if !waiting.is_due && !waiting.is_closed {
            let is_timed = std::mem::replace(&mut waiting.is_timed, true);
            return if is_timed { Next::Wait } else { Next::Time };
        }
        let batches = std::mem::take(&mut waiting.batches);
        (waiting.messages, waiting.bytes, waiting.is_due) = (0, 0, false);
        drop(waiting);
        self.taken.notify_waiters();
        Next::Write(batches)
    }

    /// The clock has run out. It runs on while lines come often, so that it is set a few times a second and not for each of them.
    fn hurry(&self) {
        let mut waiting = self.lock();
        waiting.is_timed = false;
        waiting.is_due |= !waiting.batches.is_empty();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }
}

/// Writes batches in few writes: a large one as it is, small ones put together.
async fn write_all<W: AsyncWrite + Unpin>(
    to: &mut W,
    batches: &[Batch],
    together: &mut Vec<u8>,
) -> std::io::Result<()> {
    for (index, batch) in batches.iter().enumerate() {
        let is_last = index + 1 == batches.len();
        if together.is_empty() && (is_last || batch.lines.len() >= WRITE_BYTES) {
            to.write_all(&batch.lines).await?;
            continue;
        }
        together.extend_from_slice(&batch.lines);
        if is_last || together.len() >= WRITE_BYTES {
            to.write_all(together).await?;
            together.clear();
        }
    }
    to.flush().await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::AsyncReadExt;
    use tokio::time::timeout;

    use super::*;

    fn batch(text: &str) -> Batch {
        Batch { lines: text.as_bytes().to_vec(), messages: 1 }
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
        outbox.write_to(&mut out, &CancellationToken::new()).await.unwrap();
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
            tokio::spawn(async move { outbox.write_to(theirs, &CancellationToken::new()).await })
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
    async fn what_is_in_no_hurry_goes_with_the_next_or_after_a_while() {
        const LIMIT: Duration = Duration::from_secs(60);
        let outbox = Arc::new(Outbox::new(10, 1000));
        let (mut ours, theirs) = tokio::io::duplex(64);
        let writer = {
            let outbox = Arc::clone(&outbox);
            tokio::spawn(async move { outbox.write_to(theirs, &CancellationToken::new()).await })
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
    async fn who_waits_for_room_does_not_wait_for_what_is_in_no_hurry() {
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
        outbox.write_to(&mut out, &CancellationToken::new()).await.unwrap();
        second.await.unwrap();
        assert_eq!(out, b"one\n");
    }

    #[tokio::test]
    async fn a_batch_larger_than_the_outbox_goes_when_it_is_empty() {
        let outbox = Outbox::new(10, 4);
        outbox.push(batch("much too large\n")).await;
        outbox.close();
        let mut out = Vec::new();
        outbox.write_to(&mut out, &CancellationToken::new()).await.unwrap();
        assert_eq!(out, b"much too large\n");
    }
}
