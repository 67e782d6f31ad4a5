//! The jobs that wait for the writer, and the jobs that share a transaction.

use smallvec::{SmallVec, smallvec};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc;
use trilogue_domain::limits;

use super::job::{Job, QueuedJob};

/// The most jobs of one transaction.
const MAX_JOBS: usize = 256;

/// Jobs of one transaction, usually one.
pub(super) type Jobs = SmallVec<[Job; 1]>;

/// The waiting jobs, in order.
#[derive(Debug)]
pub(super) struct JobQueue {
    jobs: mpsc::Receiver<QueuedJob>,
    /// The first waiting job, if the previous transaction had no room for it.
    first: Option<QueuedJob>,
}

/// The jobs of one transaction. More join it while it is written.
#[derive(Debug)]
pub(super) struct JobGroup {
    pub(super) jobs: Jobs,
    bytes: usize,
    /// The permits of jobs that are being written: these still count for the bound.
    rooms: Vec<OwnedSemaphorePermit>,
}

// === impl JobQueue ===

impl JobQueue {
    pub(super) fn new(jobs: mpsc::Receiver<QueuedJob>) -> Self {
        Self { jobs, first: None }
    }

    /// Waits for the next job. `None` once no more jobs can come.
    pub(super) fn wait(&mut self) -> Option<QueuedJob> {
        // The kept job was taken from the queue earlier, so it comes first.
        self.first.take().or_else(|| self.jobs.blocking_recv())
    }

    /// The next job, if one waits.
    pub(super) fn next(&mut self) -> Option<QueuedJob> {
        self.first.take().or_else(|| self.jobs.try_recv().ok())
    }

    /// Whether no job waits and no more can come.
    pub(super) fn has_ended(&self) -> bool {
        // In this order: a closed queue gets no further jobs, so it stays empty.
        self.first.is_none() && self.jobs.is_closed() && self.jobs.is_empty()
    }

    /// Moves the next job to a group, if one waits and the group has room for it.
    pub(super) fn join(&mut self, group: &mut JobGroup) -> bool {
        let Some(next) = self.next() else { return false };
        if group.admits(&next.job) {
            group.push(next);
            return true;
        }
        // It leads the next transaction. No job overtakes it, because the order of the queue is the order of the log.
        self.first = Some(next);
        false
    }

    /// Refuses further jobs. Waiting ones stay.
    pub(super) fn close(&mut self) {
        self.jobs.close();
    }
}

// === impl JobGroup ===

impl JobGroup {
    pub(super) fn of(first: QueuedJob) -> Self {
        let mut group = Self::from(Jobs::new());
        group.push(first);
        group
    }

    /// The jobs, and the permits that they hold until they are committed.
    pub(super) fn into_parts(self) -> (Jobs, Vec<OwnedSemaphorePermit>) {
        (self.jobs, self.rooms)
    }

    fn push(&mut self, queued: QueuedJob) {
        self.bytes += queued.job.bytes();
        self.rooms.extend(queued.room);
        self.jobs.push(queued.job);
    }

    fn admits(&self, job: &Job) -> bool {
        // A probe needs its own transaction, and a close comes after the commit.
        let shares = |job: &Job| !matches!(job, Job::Probe | Job::Close) && !job.is_alone();
        self.jobs.len() < MAX_JOBS
            && self.bytes + job.bytes() <= limits::MAX_BATCH_BYTES
            && shares(job)
            // The group is checked too: no job joins one that must be alone.
            && self.jobs.iter().all(shares)
    }
}

impl From<Jobs> for JobGroup {
    fn from(jobs: Jobs) -> Self {
        // A retried group has no permits: those of the first try stay held until all its jobs are finished.
        Self { bytes: jobs.iter().map(Job::bytes).sum(), jobs, rooms: Vec::new() }
    }
}

impl From<Job> for JobGroup {
    fn from(job: Job) -> Self {
        Self::from(Jobs::from(smallvec![job]))
    }
}
