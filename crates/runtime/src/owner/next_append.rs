//! The next append, and the waiters for it.

use tokio::sync::oneshot;
use trilogue_domain::error::{Error, Result};
use trilogue_domain::{RunKey, limits};
use trilogue_store::rows::RunRow;
use trilogue_store::{Batch, Change};

use crate::services::Services;
use crate::state::ThreadState;
use crate::step::{Effect, Reply, Section, Sections, Step};

/// An append is sent once it contains this many events.
const MAX_APPEND_EVENTS: usize = 2_048;
/// An append is sent once its events have this many bytes. The last event in it can be larger, and the append still stays within [`limits::MAX_BATCH_BYTES`].
const MAX_APPEND_BYTES: usize = limits::MAX_FRAME_BYTES;

/// Events of one run that follow each other share a frame up to this many bytes: a short run is one frame. Beyond that, copying them together costs more than a separate frame.
const MAX_JOINED_BYTES: usize = 64 * 1024;

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
        for section in step.sections {
            self.events += section.draft.len();
            self.bytes += section.draft.bytes();
            self.add_section(section);
        }
        for change in step.changes {
            self.change(change);
        }
        self.erases |= step.effects.contains(&Effect::Gone);
        self.effects.extend(step.effects);
        self.vital |= step.vital;
        self.new_work |= step.new_work;
        self.may_wait = false;
    }

    /// Adds events. They join the previous events of the same run if they continue them and both are small.
    fn add_section(&mut self, section: Section) {
        if let Some(previous) = self.sections.last_mut()
            && previous.run == section.run
            && previous.next() == section.first
            && previous.draft.bytes() + section.draft.bytes() <= MAX_JOINED_BYTES
        {
            previous.draft.join(section.draft);
        } else {
            self.sections.push(section);
        }
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

    /// A copy of its changes and effects, without those who wait for it.
    pub(super) fn changes_alone(&self) -> Self {
        Self {
            sections: self.sections.clone(),
            changes: self.changes.clone(),
            effects: self.effects.clone(),
            acknowledgements: Vec::new(),
            ..*self
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trilogue_domain::event::MessageEvent;
    use trilogue_domain::{Body, RunKey, Timestamp};
    use trilogue_store::Draft;

    use super::{MAX_JOINED_BYTES, NextAppend};
    use crate::step::{Section, Step};

    /// A section of one event with a text of this many bytes. Its two first numbers are the same.
    fn section(run: Option<i64>, first: u64, bytes: usize) -> Section {
        let mut draft = Draft::default();
        let body = Body::Message(MessageEvent::Thought {
            message: None,
            text: Arc::from("t".repeat(bytes)),
        });
        draft.push(Timestamp::from_micros(1), &body, None).unwrap();
        Section { run: run.map(RunKey), first, first_run: run.map_or(0, |_| first), draft }
    }

    /// Adds the sections in separate steps. Returns the first number and the number of events of each section of the append.
    fn sections(added: impl IntoIterator<Item = Section>) -> Vec<(u64, usize)> {
        let mut append = NextAppend::default();
        for section in added {
            append.add(Step { sections: [section].into_iter().collect(), ..Step::default() });
        }
        append.sections.iter().map(|section| (section.first, section.draft.len())).collect()
    }

    #[test]
    fn consecutive_events_of_one_run_share_a_section() {
        assert_eq!(sections((1..=3).map(|number| section(Some(7), number, 10))), [(1, 3)]);
        assert_eq!(sections((1..=3).map(|number| section(None, number, 10))), [(1, 3)]);
    }

    #[test]
    fn events_of_another_run_or_behind_a_gap_begin_a_section() {
        let of_two_runs = [(7, 1), (8, 2), (7, 3)];
        let of_two_runs = of_two_runs.map(|(run, number)| section(Some(run), number, 10));
        assert_eq!(sections(of_two_runs), [(1, 1), (2, 1), (3, 1)]);
        assert_eq!(sections([section(Some(7), 1, 10), section(None, 2, 10)]), [(1, 1), (2, 1)]);
        assert_eq!(sections([section(Some(7), 1, 10), section(Some(7), 3, 10)]), [(1, 1), (3, 1)]);
    }

    #[test]
    fn a_section_that_is_joined_stays_small() {
        let half = MAX_JOINED_BYTES / 2;
        let too_large = (1..=3).map(|number| section(Some(7), number, half));
        assert_eq!(sections(too_large), [(1, 1), (2, 1), (3, 1)]);
        let fitting = (1..=4).map(|number| section(Some(7), number, half - 100));
        assert_eq!(sections(fitting), [(1, 2), (3, 2)]);
    }
}
