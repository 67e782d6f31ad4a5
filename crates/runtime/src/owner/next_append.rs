//! The next append, and the waiters for it.

use tokio::sync::oneshot;
use trilogue_domain::error::{Error, Result};
use trilogue_domain::{RunKey, limits};
use trilogue_store::rows::RunRow;
use trilogue_store::{Batch, Change};

use crate::services::Services;
use crate::state::ThreadState;
use crate::step::{Effect, Reply, Sections, Step};

/// An append is sent once it contains this many events.
const MAX_APPEND_EVENTS: usize = 2_048;
/// An append is sent once its events have this many bytes. The last event in it can be larger, and the append still stays within [`limits::MAX_BATCH_BYTES`].
const MAX_APPEND_BYTES: usize = limits::MAX_FRAME_BYTES;

/// The contents of the next append.
#[derive(Debug, Default)]
pub(super) struct NextAppend {
    pub(super) sections: Sections,
    pub(super) changes: Vec<Change>,
    pub(super) effects: Vec<Effect>,
    pub(super) acknowledgements: Vec<Acknowledgement>,
    pub(super) vital: bool,
    /// Whether it contains new work: then it cannot use the disk's reserve, even if it also ends other work.
    pub(super) new_work: bool,
    /// Whether it removes the thread.
    pub(super) erases: bool,
    pub(super) events: usize,
    pub(super) bytes: usize,
    /// Whether it can wait for the run's first output, because no caller was notified of anything in it.
    pub(super) may_wait: bool,
}

/// A receiver that is notified when an append is durable, or why it is not.
#[derive(Debug)]
pub(super) enum Acknowledgement {
    Run(oneshot::Sender<Result<RunRow>>, Box<RunRow>),
    Done(oneshot::Sender<Result<()>>),
    Reply(oneshot::Sender<Result<Reply>>, Reply),
    /// A refused command. The reason of the refusal may be part of the same append, so it holds only if that succeeds.
    Refused(oneshot::Sender<Result<Reply>>, Error),
    RunRefused(oneshot::Sender<Result<RunRow>>, Error),
    Settled(oneshot::Sender<Result<Option<RunRow>>>, Option<Box<RunRow>>),
    Ended(oneshot::Sender<Vec<RunRow>>, Vec<RunRow>),
}

// === impl NextAppend ===

impl NextAppend {
    pub(super) fn add(&mut self, step: Step) {
        for section in &step.sections {
            self.events += section.draft.len();
            self.bytes += section.draft.bytes();
        }
        self.sections.extend(step.sections);
        for change in step.changes {
            self.change(change);
        }
        self.erases |= step.effects.contains(&Effect::Gone);
        self.effects.extend(step.effects);
        self.vital |= step.vital;
        self.new_work |= step.new_work;
        self.may_wait = false;
    }

    /// Adds a row change. A row that is already in the append is written once, in its newest form.
    fn change(&mut self, change: Change) {
        /// Rows of one run are close together; looking back further costs more than it saves.
        const LOOK_BACK: usize = 8;
        let from = self.changes.len().saturating_sub(LOOK_BACK);
        for earlier in self.changes.iter_mut().skip(from).rev() {
            match (&*earlier, &change) {
                // A row that follows a removal must stay after it, or the removal would delete it.
                (Change::RemoveRun(_) | Change::RemoveThread, _) => break,
                (Change::Run(old), Change::Run(new)) if old.key == new.key => {
                    *earlier = change;
                    return;
                }
                (Change::Thread(old), Change::Thread(new)) if old.key == new.key => {
                    *earlier = change;
                    return;
                }
                _ => {}
            }
        }
        self.changes.push(change);
    }

    /// Builds the append. The state's numbers already include it; `committed` is the last durable one. `spare` becomes a buffer that the next draft can fill.
    pub(super) fn batch(
        &mut self,
        services: &Services,
        state: &ThreadState,
        committed: u64,
        spare: &mut Vec<u8>,
    ) -> Batch {
        const MAX_SPARE_BYTES: usize = 64 * 1024;
        let thread = state.thread.key;
        let mut frames = Vec::with_capacity(self.sections.len());
        let mut blobs = Vec::new();
        for section in std::mem::take(&mut self.sections) {
            blobs.extend_from_slice(section.draft.blobs());
            let (of, from) = ((thread, section.run), (section.first, section.first_run));
            let buffer = section.draft.seal_into(&mut frames, of, from, &services.originals);
            if buffer.capacity() > spare.capacity() && buffer.capacity() <= MAX_SPARE_BYTES {
                *spare = buffer;
            }
        }
        Batch {
            thread,
            epoch: state.thread.epoch,
            expected_last: committed,
            frames,
            changes: std::mem::take(&mut self.changes),
            blobs,
            vital: self.vital && !self.new_work,
        }
    }

    /// Whether it must be appended before further requests are taken.
    pub(super) fn is_full(&self) -> bool {
        self.events >= MAX_APPEND_EVENTS || self.bytes >= MAX_APPEND_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sections.is_empty() && self.changes.is_empty()
    }

    pub(super) fn starts(&self, run: RunKey) -> bool {
        self.effects
            .iter()
            .any(|effect| matches!(effect, Effect::Start { run: started, .. } if *started == run))
    }
}

// === impl Acknowledgement ===

impl Acknowledgement {
    pub(super) fn notify(self, outcome: Result<()>) {
        // The receiver may be gone.
        match self {
            Self::Run(reply, row) => drop(reply.send(outcome.map(|()| *row))),
            Self::Done(reply) => drop(reply.send(outcome)),
            Self::Reply(reply, value) => drop(reply.send(outcome.map(|()| value))),
            Self::Refused(reply, error) => drop(reply.send(outcome.and(Err(error)))),
            Self::RunRefused(reply, error) => drop(reply.send(outcome.and(Err(error)))),
            Self::Settled(reply, row) => drop(reply.send(outcome.map(|()| row.map(|row| *row)))),
            Self::Ended(reply, abandoned) => drop(reply.send(abandoned)),
        }
    }
}
