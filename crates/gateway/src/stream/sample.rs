//! The newest state of a run's output, folded once for everybody who watches it.
//!
//! A sample is no event: each replaces the one before. A sampler reads the run's log, folds it, and shows what there is at most every 50 ms; whoever comes late or reads slowly is given the newest and nothing else.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use trilogue_domain::content::BlobRef;
use trilogue_domain::lock;
use trilogue_domain::{Error, Event, InterruptId, RunKey};
use trilogue_store::Read;
use trilogue_store::rows::RunRow;

use super::sampling::Sampling;

/// How a face samples a run.
pub(crate) trait SampleView: Send + Sync + fmt::Debug {
    /// Dialect and mode: samples are shared under this name.
    fn name(&self) -> Cow<'static, str>;
    /// A fold at the beginning of a run.
    fn begin(&self) -> Box<dyn SampleFold>;
    fn event(&self, id: &str, data: &[u8]) -> Bytes;
    /// The data of the last event of a run that is gone.
    fn gone(&self) -> Bytes;
}

/// The state of a run's output.
pub(crate) trait SampleFold: Send + Sync + fmt::Debug {
    fn push(&mut self, event: &Event);
    /// Whether large content that the next event names should stand in that event, in place of its name.
    fn wants(&self, blob: &BlobRef) -> bool;
    /// Whether there is output that no snapshot has shown.
    fn has_news(&self) -> bool;
    /// The data of a sample: the output so far; `None` where there is nothing to show yet.
    fn snapshot(&mut self) -> Option<Bytes>;
    /// The data of the stream's last event, once the run has ended or waits.
    fn end(&self) -> Option<Bytes>;
    /// The question that the run waits with.
    fn asked(&self) -> Option<InterruptId>;
}

/// Every sampler that is watched.
#[derive(Debug, Default)]
pub(crate) struct Samplers(Mutex<HashMap<Key, Weak<Sampler>>>);

type Key = (RunKey, Cow<'static, str>);

/// A run that is sampled; its sampling ends with the last who watches.
#[derive(Debug)]
pub(crate) struct Sampler {
    states: watch::Receiver<State>,
    wanted: Arc<SampleDemand>,
}

/// What those who watch a run want of it.
#[derive(Debug, Default)]
pub(crate) struct SampleDemand {
    /// How many want samples.
    samples: AtomicUsize,
    /// How many want to know how far the log is folded.
    progress: AtomicUsize,
    /// Tells the sampling of the first who wants samples.
    pub(super) more: Notify,
}

#[derive(Debug)]
pub(crate) struct Watching {
    sampler: Arc<Sampler>,
    samples: bool,
    progress: bool,
    pub(crate) states: watch::Receiver<State>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The run number of the last event that was folded. No sample that is shown later has a smaller one.
    pub(crate) last: u64,
    /// Whether the end of the log was reached once.
    pub(crate) caught_up: bool,
    pub(crate) newest: Option<Arc<Sample>>,
    /// How a stream ends that has seen everything.
    pub(crate) end: Option<Arc<End>>,
    /// Why there will be nothing more.
    pub(crate) failed: Option<Error>,
}

#[derive(Debug)]
pub(crate) struct Sample {
    /// The last event that was folded in, as the run counts.
    pub(crate) number: u64,
    /// The wire event, with its id.
    pub(crate) bytes: Bytes,
}

#[derive(Debug)]
pub(crate) struct End {
    /// The event that brought it, as the run counts.
    pub(crate) number: u64,
    /// The wire event, with its id.
    pub(crate) bytes: Bytes,
    /// The question that it shows, where the run waits and may go on.
    pub(crate) asks: Option<InterruptId>,
}

// === impl Samplers ===

impl Samplers {
    /// Watches a run that the caller has looked up: its samples where `samples`, and how far the log is folded where `progress`.
    pub(crate) fn watch(
        &self,
        read: &Arc<dyn Read>,
        run: &RunRow,
        view: Arc<dyn SampleView>,
        samples: bool,
        progress: bool,
    ) -> Watching {
        let key = (run.key, view.name());
        let mut open = lock(&self.0);
        if let Some(sampler) = open.get(&key).and_then(Weak::upgrade)
            // One that has failed, or broke, is of no use to whoever comes later.
            && sampler.is_alive()
        {
            return Watching::new(sampler, samples, progress);
        }
        if open.len() > 64 && open.len().is_power_of_two() {
            open.retain(|_, sampler| sampler.strong_count() > 0);
        }
        let (sender, states) = watch::channel(State::default());
        let wanted = Arc::new(SampleDemand::default());
        let sampler = Arc::new(Sampler { states, wanted: Arc::clone(&wanted) });
        open.insert(key, Arc::downgrade(&sampler));
        let watching = Watching::new(sampler, samples, progress);
        let sampling = Sampling::new(read, run, view, wanted, sender);
        tokio::spawn(sampling.run());
        watching
    }
}

// === impl State ===

impl State {
    /// How a stream ends, as far as it can be told to somebody who looked the run up when it had this many events: a question from before may have its answer.
    pub(crate) fn end_at(&self, known: u64) -> Option<&Arc<End>> {
        self.end.as_ref().filter(|end| end.asks.is_none() || self.last >= known)
    }
}

// === impl Sampler ===

impl Sampler {
    fn is_alive(&self) -> bool {
        let state = self.states.borrow();
        let has_ended = state.end.as_ref().is_some_and(|end| end.asks.is_none());
        state.failed.is_none() && (has_ended || self.states.has_changed().is_ok())
    }
}

// === impl SampleDemand ===

impl SampleDemand {
    pub(super) fn samples(&self) -> bool {
        self.samples.load(Ordering::Acquire) > 0
    }

    pub(super) fn progress(&self) -> bool {
        self.progress.load(Ordering::Acquire) > 0
    }
}

// === impl Watching ===

impl Watching {
    fn new(sampler: Arc<Sampler>, samples: bool, progress: bool) -> Self {
        let wanted = &sampler.wanted;
        wanted.progress.fetch_add(usize::from(progress), Ordering::AcqRel);
        if samples && wanted.samples.fetch_add(1, Ordering::AcqRel) == 0 {
            wanted.more.notify_one();
        }
        let states = sampler.states.clone();
        Self { sampler, samples, progress, states }
    }

    #[cfg(test)]
    pub(super) fn wanted(&self) -> &Arc<SampleDemand> {
        &self.sampler.wanted
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let wanted = &self.sampler.wanted;
        wanted.samples.fetch_sub(usize::from(self.samples), Ordering::AcqRel);
        wanted.progress.fetch_sub(usize::from(self.progress), Ordering::AcqRel);
    }
}
