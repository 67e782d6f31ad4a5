//! The task of a sampler: reads a run's log as it grows, folds it, and publishes the result.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, InterruptEvent};
use trilogue_domain::{Event, InterruptId, RunId, RunKey};
use trilogue_store::rows::RunRow;
use trilogue_store::{Read, Tail};

use super::inline::inlined;
use super::log_reader::LogReader;
use super::sample::{End, Sample, SampleDemand, SampleFold, SampleView, State};
use crate::core::log_ref::LogRef;

/// How much of the log is read at once, in bytes.
const READ_BYTES: usize = 256 * 1024;
/// The least time between two samples.
const PAUSE: Duration = Duration::from_millis(50);
/// A sample above this many bytes is kept longer.
const LARGE_BYTES: usize = 64 * 1024;
const LARGE_PAUSE: Duration = Duration::from_secs(1);
/// The least time between two checks that a run still exists while its thread changes without it.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

pub(super) struct SamplerTask {
    read: Arc<dyn Read>,
    thread: LogRef,
    run: RunKey,
    run_id: RunId,
    view: Arc<dyn SampleView>,
    wanted: Arc<SampleDemand>,
    states: watch::Sender<State>,
    tail: Tail,
    fold: Box<dyn SampleFold>,
    /// The run number of the last folded event.
    last: u64,
    next_at: Instant,
    /// The thread's last number when the sampling began, and until when the first sample can wait for it.
    began_at: (u64, Instant),
    /// Whether a sample was ever published.
    has_sampled: bool,
    /// The output right before the run's last end, if no sample had been taken until then.
    before_end: Option<Arc<Sample>>,
    /// The question that the run waits for, and the event that raised it.
    pending_question: Option<(InterruptId, u64)>,
    /// Whether everything that existed at the beginning was folded.
    caught_up: bool,
    has_ended: bool,
    /// The thread's number up to which the run is known to exist.
    exists_until: u64,
    /// When the run's existence was last checked.
    checked_at: Instant,
    /// When it is checked again, after the thread has changed without the run.
    recheck_at: Option<Instant>,
}

enum SamplingWake {
    Committed,
    LogGone,
    SampleDue,
    CheckDue,
    SamplesWanted,
    Unwatched,
}

// === impl SamplerTask ===

impl SamplerTask {
    pub(super) fn new(
        read: &Arc<dyn Read>,
        run: &RunRow,
        view: Arc<dyn SampleView>,
        wanted: Arc<SampleDemand>,
        states: watch::Sender<State>,
    ) -> Self {
        let now = Instant::now();
        Self {
            began_at: (u64::MAX, now + PAUSE),
            tail: read.tail(run.thread),
            read: Arc::clone(read),
            fold: view.begin(),
            run: run.key,
            run_id: run.id.clone(),
            thread: LogRef::from(run),
            view,
            wanted,
            states,
            last: 0,
            next_at: now,
            has_sampled: false,
            before_end: None,
            pending_question: None,
            caught_up: false,
            has_ended: false,
            exists_until: 0,
            checked_at: now,
            recheck_at: None,
        }
    }

    /// Runs until the run has ended or was removed, or no watcher is left.
    pub(super) async fn run(mut self) {
        // If the log cannot be read, the next read fails too and reports it.
        self.began_at.0 = self.read.last_number(self.thread.key).await.unwrap_or(0);
        loop {
            // Marked as seen before the log is read, so that no commit in between is missed.
            let committed = *self.tail.committed.borrow_and_update();
            match self.fold_next_page().await {
                Ok(true) => {
                    self.publish(false);
                    tokio::task::yield_now().await;
                    continue;
                }
                Ok(false) => {
                    self.publish(true);
                    // A thread that was removed before its tail was attached does not end the tail.
                    let in_doubt = committed > self.exists_until || self.last == 0;
                    self.recheck_at = in_doubt.then(|| self.checked_at + LOOK_PAUSE);
                }
                Err(error) => {
                    self.states.send_modify(|state| state.failed = Some(error));
                    return;
                }
            }
            if self.has_ended {
                return;
            }
            match self.wait().await {
                SamplingWake::Committed | SamplingWake::SampleDue | SamplingWake::SamplesWanted => {
                }
                SamplingWake::CheckDue => {
                    if !self.is_run_present().await {
                        return self.publish_removal();
                    }
                }
                SamplingWake::LogGone => return self.publish_removal(),
                SamplingWake::Unwatched => return,
            }
        }
    }

    /// Folds the next page of the log. Returns whether there was one.
    async fn fold_next_page(&mut self) -> Result<bool> {
        let (read, run) = (self.read.as_ref(), Some(self.run));
        let log = LogReader::new(read, self.thread.key, run).after(self.last);
        let Some(page) = log.pages_of(READ_BYTES).next().await? else { return Ok(false) };
        for event in page.events()? {
            self.take(event).await?;
        }
        Ok(true)
    }

    async fn take(&mut self, event: &Event) -> Result<()> {
        let may_end = event.body.is_run_end()
            || matches!(event.body, Body::Interrupt(InterruptEvent::Raised(_)));
        if may_end && !self.has_sampled && self.wanted.samples() && self.fold.has_news() {
            // Watchers receive the agent's output before they receive the end.
            self.before_end = self.sample();
        }
        let wants = |blob: &_| self.fold.wants(blob);
        let event = inlined(&self.read, self.thread.key, event, wants).await?;
        self.fold.push(&event);
        self.last = event.run_number;
        self.exists_until = event.number;
        self.caught_up |= event.number >= self.began_at.0;
        self.has_ended |= event.body.is_run_end();
        if matches!(event.body, Body::Interrupt(_) | Body::Run(_)) {
            let asks = self.fold.pending_interrupt();
            if asks.as_ref() != self.pending_question.as_ref().map(|(id, _)| id) {
                self.pending_question = asks.map(|id| (id, self.last));
            }
        }
        Ok(())
    }

    fn sample(&mut self) -> Option<Arc<Sample>> {
        let data = self.fold.snapshot()?;
        let bytes = self.view.event(&format!("{}.v", self.last), &data);
        let pause = if bytes.len() > LARGE_BYTES { LARGE_PAUSE } else { PAUSE };
        self.next_at = Instant::now() + pause;
        Some(Arc::new(Sample { number: self.last, bytes }))
    }

    /// Publishes the present state, in the middle of the log or at its end.
    fn publish(&mut self, at_end: bool) {
        let end = if at_end || self.has_ended { self.new_end() } else { None };
        let now = Instant::now();
        // A question that is still to be shown comes with its own number, so no sample that includes it is published before.
        let hidden = !at_end && !self.has_ended && self.pending_question.is_some();
        let is_due = !hidden && now >= self.next_at && (at_end || now >= self.began_at.1);
        let newest = if end.as_ref().is_some_and(Option::is_some) {
            // The end contains everything; if there was output, at least one sample comes before it.
            self.before_end.take().filter(|_| !self.has_sampled)
        } else if is_due && self.may_sample() {
            self.before_end = None;
            self.sample()
        } else {
            None
        };
        self.has_sampled |= newest.is_some();
        self.caught_up |= at_end;
        let caught_up = self.caught_up;
        let last = if hidden { self.states.borrow().last } else { self.last };
        // A reader that looked up a waiting run needs to know whether it still waits.
        let progress = self.wanted.progress() || self.pending_question.is_some();
        self.states.send_if_modified(|state| {
            let mut is_news = newest.is_some() || end.is_some() || state.caught_up != caught_up;
            is_news |= progress && state.last != last;
            state.last = last;
            state.caught_up = caught_up;
            if newest.is_some() {
                state.newest = newest;
            }
            if let Some(end) = end {
                state.end = end;
            }
            is_news
        });
    }

    fn may_sample(&self) -> bool {
        let has_news = self.fold.has_news() || self.before_end.is_some();
        has_news && !self.has_ended && self.wanted.samples()
    }

    /// Returns the changed end state, or `None` if it is unchanged. `Some(None)`: the published end is not valid any more.
    fn new_end(&self) -> Option<Option<Arc<End>>> {
        let shown =
            self.states.borrow().end.as_ref().map(|end| (end.number, end.interrupt.clone()));
        let now = if self.has_ended {
            Some((self.last, None))
        } else {
            self.pending_question.clone().map(|(id, number)| (number, Some(id)))
        };
        if shown == now {
            return None;
        }
        Some(now.and_then(|(number, asks)| {
            let data = self.fold.end()?;
            let bytes = self.view.event(&number.to_string(), &data);
            Some(Arc::new(End { number, bytes, interrupt: asks }))
        }))
    }

    async fn wait(&mut self) -> SamplingWake {
        let next_sample = self.may_sample().then_some(self.next_at);
        let next_look = self.recheck_at;
        tokio::select! {
            () = self.states.closed() => SamplingWake::Unwatched,
            changed = self.tail.committed.changed() => match changed {
                Ok(()) => SamplingWake::Committed,
                Err(_) => SamplingWake::LogGone,
            },
            () = until(next_sample), if next_sample.is_some() => SamplingWake::SampleDue,
            () = until(next_look), if next_look.is_some() => SamplingWake::CheckDue,
            () = self.wanted.more.notified() => SamplingWake::SamplesWanted,
        }
    }

    /// Whether the run still exists. If the read fails, assumes so: the watchers check themselves too.
    async fn is_run_present(&mut self) -> bool {
        self.checked_at = Instant::now();
        self.exists_until = *self.tail.committed.borrow();
        match self.read.run(&self.thread.scope(), &self.run_id).await {
            Ok(found) => found.is_some_and(|row| row.key == self.run),
            Err(_) => true,
        }
    }

    fn publish_removal(&self) {
        let number = self.last + 1;
        let data: Bytes = self.view.removed_run_data();
        let bytes = self.view.event(&number.to_string(), &data);
        let end = Arc::new(End { number, bytes, interrupt: None });
        self.states.send_modify(|state| state.end = Some(end));
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "sampling_tests.rs"]
mod tests;
