//! The newest state of a run's output, folded once for all of its watchers.
//!
//! A sample is not an event: each replaces the one before. A sampler reads the run's log, folds it, and publishes a sample at most every 50 ms; a late or slow watcher gets only the newest.

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

use super::sampling::SamplerTask;

/// A face's view of a run as samples.
pub(crate) trait SampleView: Send + Sync + fmt::Debug {
    /// Returns dialect and mode: samples are shared under this name.
    fn name(&self) -> Cow<'static, str>;
    /// Returns a fold at the beginning of a run.
    fn begin(&self) -> Box<dyn SampleFold>;
    fn event(&self, id: &str, data: &[u8]) -> Bytes;
    /// Returns the data of the last event of a removed run.
    fn removed_run_data(&self) -> Bytes;
}

/// The state of a run's output.
pub(crate) trait SampleFold: Send + Sync + fmt::Debug {
    fn push(&mut self, event: &Event);
    /// Whether large content that the next event refers to must be inlined in that event.
    fn wants(&self, blob: &BlobRef) -> bool;
    /// Whether there is output that no snapshot has contained.
    fn has_news(&self) -> bool;
    /// Returns the data of a sample: the output so far; `None` if there is nothing to show yet.
    fn snapshot(&mut self) -> Option<Bytes>;
    /// Returns the data of the stream's last event, once the run has ended or waits.
    fn end(&self) -> Option<Bytes>;
    /// Returns the question that the run waits for.
    fn pending_interrupt(&self) -> Option<InterruptId>;
}

/// All samplers with a watcher.
#[derive(Debug, Default)]
pub(crate) struct Samplers(Mutex<HashMap<Key, Weak<Sampler>>>);

type Key = (RunKey, Cow<'static, str>);

/// A run that is being sampled; sampling ends with its last watcher.
#[derive(Debug)]
pub(crate) struct Sampler {
    states: watch::Receiver<State>,
    wanted: Arc<SampleDemand>,
}

/// What the watchers of a run need.
#[derive(Debug, Default)]
pub(crate) struct SampleDemand {
    /// How many need samples.
    samples: AtomicUsize,
    /// How many need to know how far the log is folded.
    progress: AtomicUsize,
    /// Notified by the first watcher that needs samples.
    pub(super) more: Notify,
}

#[derive(Debug)]
pub(crate) struct SampleSubscription {
    sampler: Arc<Sampler>,
    samples: bool,
    progress: bool,
    pub(crate) states: watch::Receiver<State>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The run number of the last folded event. No later sample has a smaller one.
    pub(crate) last: u64,
    /// Whether the sampling has reached the end of the log once.
    pub(crate) caught_up: bool,
    pub(crate) newest: Option<Arc<Sample>>,
    /// The end of a stream that has everything.
    pub(crate) end: Option<Arc<End>>,
    /// Why no further sample will come.
    pub(crate) failed: Option<Error>,
}

#[derive(Debug)]
pub(crate) struct Sample {
    /// The run number of the last folded event.
    pub(crate) number: u64,
    /// The wire event, with its id.
    pub(crate) bytes: Bytes,
}

#[derive(Debug)]
pub(crate) struct End {
    /// The run number of the event that caused it.
    pub(crate) number: u64,
    /// The wire event, with its id.
    pub(crate) bytes: Bytes,
    /// The question that it shows, if the run waits and can resume.
    pub(crate) interrupt: Option<InterruptId>,
}

// === impl Samplers ===

impl Samplers {
    /// Watches a run that the caller has looked up: its samples if `samples`, and how far the log is folded if `progress`.
    pub(crate) fn watch(
        &self,
        read: &Arc<dyn Read>,
        run: &RunRow,
        view: Arc<dyn SampleView>,
        samples: bool,
        progress: bool,
    ) -> SampleSubscription {
        let key = (run.key, view.name());
        let mut open = lock(&self.0);
        if let Some(sampler) = open.get(&key).and_then(Weak::upgrade)
            // A new watcher cannot use a failed or broken sampler.
            && sampler.is_alive()
        {
            return SampleSubscription::new(sampler, samples, progress);
        }
        if open.len() > 64 && open.len().is_power_of_two() {
            open.retain(|_, sampler| sampler.strong_count() > 0);
        }
        let (sender, states) = watch::channel(State::default());
        let wanted = Arc::new(SampleDemand::default());
        let sampler = Arc::new(Sampler { states, wanted: Arc::clone(&wanted) });
        open.insert(key, Arc::downgrade(&sampler));
        let watching = SampleSubscription::new(sampler, samples, progress);
        let sampling = SamplerTask::new(read, run, view, wanted, sender);
        tokio::spawn(sampling.run());
        watching
    }
}

// === impl State ===

impl State {
    /// Returns the end of the stream for a reader that looked the run up when it had `known` events: an earlier question may already have its answer.
    pub(crate) fn end_at(&self, known: u64) -> Option<&Arc<End>> {
        self.end.as_ref().filter(|end| end.interrupt.is_none() || self.last >= known)
    }
}

// === impl Sampler ===

impl Sampler {
    fn is_alive(&self) -> bool {
        let state = self.states.borrow();
        let has_ended = state.end.as_ref().is_some_and(|end| end.interrupt.is_none());
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

// === impl SampleSubscription ===

impl SampleSubscription {
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

impl Drop for SampleSubscription {
    fn drop(&mut self) {
        let wanted = &self.sampler.wanted;
        wanted.samples.fetch_sub(usize::from(self.samples), Ordering::AcqRel);
        wanted.progress.fetch_sub(usize::from(self.progress), Ordering::AcqRel);
    }
}
