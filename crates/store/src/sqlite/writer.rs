//! The writer: one thread, one connection, group commit.
//!
//! All waiting jobs go into one transaction. Jobs that arrive while it is written join it; while it is synchronised to the disk, the next group gathers.
//! If a statement of a batch fails, the transaction is rolled back. The jobs before the batch are committed first, then the jobs after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, PrepFlags, Statement};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use trilogue_domain::error::Result;

use super::checkpoint::Checkpointer;
use super::commit_position::CommitPosition;
use super::commit_record::{CommitRecord, RecordFile, ThreadChange};
use super::disk_space::DiskSpace;
use super::error::{Health, SqliteError, StoreState};
use super::file::FileLock;
use super::heads::Heads;
use super::inspect::Inspection;
use super::job::{ChangedThreads, Job, QueuedJob, WriteContext};
use super::job_queue::{JobGroup, JobQueue, Jobs};
use super::log_upkeep::LogUpkeep;
use super::{Context, apply, blob, remove, row_cache};
use crate::port::{Batch, Change};

/// From this number of replies, a runtime task sends them, so that the writer can continue.
const BULK_REPLIES: usize = 2;

type Outcomes = SmallVec<[Result<()>; 1]>;

/// The writer before its thread starts.
#[derive(Debug)]
pub(super) struct WriterThread {
    pub(super) conn: Connection,
    /// Released after the connection is closed.
    pub(super) lock: FileLock,
    pub(super) context: Arc<Context>,
    pub(super) runtime: Handle,
    pub(super) upkeep: DiskUpkeep,
    pub(super) commits: CommitLog,
}

/// The position of the database in the order of its commits, and the record that the next start compares with it.
#[derive(Debug)]
pub(super) struct CommitLog {
    pub(super) position: CommitPosition,
    pub(super) record: CommitRecord,
}

/// The background upkeep of the disk.
#[derive(Debug)]
pub(super) struct DiskUpkeep {
    pub(super) room: DiskSpace,
    pub(super) checkpointer: Checkpointer,
    pub(super) inspection: Inspection,
    /// Pages of the write-ahead log, counted by SQLite at every commit.
    pub(super) log_pages: Arc<AtomicUsize>,
    pub(super) record_file: Arc<RecordFile>,
}

#[derive(Debug)]
struct Writer<'c> {
    conn: &'c Connection,
    statements: WriterStatements<'c>,
    context: Arc<Context>,
    runtime: Handle,
    heads: Heads,
    blobs: blob::PendingBlobs,
    threads: ChangedThreads,
    room: DiskSpace,
    log: LogUpkeep<'c>,
    commits: CommitLog,
    /// Whether removals may have left rows that must still be deleted in parts.
    has_remains: bool,
}

#[derive(Debug, Default)]
struct WriterStatements<'c> {
    begin: Option<Statement<'c>>,
    commit: Option<Statement<'c>>,
    frame: apply::InsertFrame<'c>,
}

/// Makes the store read-only if the writer panics: otherwise writes would fail while the store reports that it is healthy.
/// Code that holds jobs also holds a mark, and drops it before the jobs, so that their callers find the new state.
struct PanicMark(Arc<Health>);

enum CommitOutcome {
    /// It is durable, with an outcome for each of its jobs.
    Done(Outcomes),
    /// It was rolled back because of this job alone.
    Culprit(usize, SqliteError),
    /// It was rolled back, and no job is to blame.
    Failed(SqliteError),
}

// === impl WriterThread ===

impl WriterThread {
    /// Runs jobs until every sender is dropped or one sends [`Job::Close`].
    pub(super) fn run(self, jobs: mpsc::Receiver<QueuedJob>) {
        // Bound first and so dropped last: waiting callers then see the state that a panic sets.
        let mut queue = JobQueue::new(jobs);
        // Bound next: the connection is always closed before the lock is released.
        let Self { lock, .. } = self;
        let _mark = PanicMark(Arc::clone(&self.context.health));
        let Self { conn, context, runtime, upkeep: beside, commits, .. } = self;
        let DiskUpkeep { room, checkpointer, inspection, log_pages, record_file } = beside;
        {
            let mut writer = Writer {
                conn: &conn,
                statements: WriterStatements::default(),
                log: LogUpkeep::new(&conn, &context, checkpointer, log_pages, record_file),
                commits,
                context: Arc::clone(&context),
                runtime,
                heads: Heads::new(context.keys.newest_thread()),
                blobs: blob::PendingBlobs::default(),
                threads: ChangedThreads::default(),
                room,
                // The last life may have left some.
                has_remains: true,
            };
            writer.run(&mut queue);
            // Close the queue first: a job that arrived later would wait for a writer that has ended.
            queue.close();
            // The other connections close before the writer's: SQLite moves the log only when the last one closes.
            context.readers.close();
            writer.log.end();
            inspection.end();
        }
        close(conn, &context);
        // Only now may another process open the store: its connections are closed.
        drop(lock);
        // Refuse jobs that arrived after the close, so that no caller waits for ever.
        while let Some(queued) = queue.next() {
            queued.job.reply(Err(crate::core::closed_error()));
        }
    }
}

// === impl PanicMark ===

impl Drop for PanicMark {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.worsen(StoreState::ReadOnly, "its writer failed; the server's log says how");
        }
    }
}

fn close(conn: Connection, context: &Context) {
    if context.health.state() >= StoreState::ReadOnly {
        // A log that could not be synchronised must not be moved into the database either.
        let keep = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        // Only an SQLite without this option refuses it, and the bundled one has it.
        drop(conn.set_db_config(keep, true));
    }
    // Closing the last connection moves the write-ahead log into the database and removes it.
    if let Err((_, error)) = conn.close() {
        tracing::warn!(%error, "the store was not closed cleanly; the next start recovers it");
    }
    context.health.worsen(StoreState::Closed, "");
}

// === impl Writer ===

impl Writer<'_> {
    fn run(&mut self, queue: &mut JobQueue) {
        loop {
            // While a removal is unfinished, the writer does not wait for jobs: it continues the removal.
            let next = if self.has_remains { queue.next() } else { queue.wait() };
            match next {
                Some(QueuedJob { job: Job::Close, .. }) => return,
                Some(QueuedJob { job: Job::Probe, .. }) => self.probe(),
                Some(first) => self.commit(first, queue),
                None if !self.has_remains || queue.has_ended() => return,
                None => {}
            }
            if self.has_remains {
                self.sweep();
            }
        }
    }

    /// Deletes one part of what large removals have left, in a separate transaction, so that waiting jobs run between the parts.
    fn sweep(&mut self) {
        if self.context.health.state() >= StoreState::ReadOnly {
            self.has_remains = false;
            return;
        }
        // One part per call bounds the time that a waiting job loses to the removal.
        let swept = self.sweep_part();
        self.has_remains = match swept {
            Ok(has_more) => has_more,
            Err(fail) => {
                self.rollback();
                // The next append finds the full disk and reports it. The next removal or start continues the sweep.
                if !fail.is_full() {
                    self.context.health.settle(fail);
                }
                false
            }
        };
        self.log.maintain();
    }

    fn sweep_part(&mut self) -> Result<bool, SqliteError> {
        if !remove::has_remains(self.conn)? {
            return Ok(false);
        }
        prepared(&mut self.statements.begin, self.conn, "BEGIN IMMEDIATE")?;
        let ended = remove::sweep(self.conn, &self.blobs)?;
        let position = self.commits.position.count(self.conn)?;
        prepared(&mut self.statements.commit, self.conn, "COMMIT")?;
        self.commits.position = position;
        // After the commit, because an entry claims that its commit is durable.
        self.commits.record.note(position, self.log.pages(), std::iter::empty());
        // Only after the commit: until then readers could still find rows of the thread.
        ended.into_iter().for_each(|thread| self.context.health.hidden.forget(thread));
        let has_more = remove::has_remains(self.conn)?;
        // The log still has the deleted pages. It is emptied once, after the last part.
        if !has_more {
            self.log.erase();
        }
        Ok(has_more)
    }

    /// Commits a job together with all waiting jobs that fit, in as few transactions as their failures allow.
    fn commit(&mut self, first: QueuedJob, queue: &mut JobQueue) {
        if self.context.health.state() == StoreState::Full && self.context.health.may_probe() {
            self.probe_space();
        }
        let mut group = JobGroup::of(first);
        let outcome = self.attempt(&mut group, Some(queue));
        self.conclude(group, outcome);
    }

    /// Commits jobs again after another job of their group failed.
    fn retry(&mut self, jobs: Jobs) {
        if jobs.is_empty() {
            return;
        }
        let mut group = JobGroup::from(jobs);
        let outcome = self.attempt(&mut group, None);
        self.conclude(group, outcome);
    }

    fn conclude(&mut self, group: JobGroup, outcome: CommitOutcome) {
        // The permits stay held until the jobs are finished: jobs that are being written still count for the bound of the queue.
        let (mut jobs, _rooms) = group.into_parts();
        match outcome {
            CommitOutcome::Done(outcomes) => self.finish(jobs, outcomes),
            CommitOutcome::Culprit(index, fail) => {
                let mut behind: Jobs = jobs.drain(index..).collect();
                if jobs.is_empty() {
                    let error = self.context.health.settle(fail);
                    // Only durable jobs precede the culprit, so its failure is final.
                    behind.remove(0).reply(Err(error));
                }
                // The culprit may contradict a job before it that readers do not see yet and that may never be stored. So commit the jobs before it first.
                self.retry(jobs);
                self.retry(behind);
            }
            CommitOutcome::Failed(fail) if fail.is_full() => self.handle_full_disk(jobs),
            // Never retried: after a failed commit, it is unknown what the disk has.
            CommitOutcome::Failed(fail) => {
                let error = self.context.health.settle(fail);
                jobs.into_iter().for_each(|job| job.reply(Err(error.clone())));
            }
        }
    }

    /// Writes a group in one transaction. Queued jobs that arrive meanwhile join it: one more job costs less than a separate commit.
    fn attempt(&mut self, group: &mut JobGroup, mut queue: Option<&mut JobQueue>) -> CommitOutcome {
        let _mark = PanicMark(Arc::clone(&self.context.health));
        // Takes the write lock at once: a deferred transaction could fail halfway when it upgrades its lock.
        if let Err(fail) = prepared(&mut self.statements.begin, self.conn, "BEGIN IMMEDIATE") {
            return CommitOutcome::Failed(fail);
        }
        let mut outcomes = Outcomes::new();
        // Refused jobs change nothing. A group of only such jobs keeps the position and is not recorded.
        let changes_before = self.conn.total_changes();
        // A try that was rolled back may have left its frame's id, which must not count for this one.
        self.statements.frame.take_newest();
        loop {
            let index = outcomes.len();
            let Some(job) = group.jobs.get_mut(index) else {
                // Take more jobs only after all earlier ones are applied: the order of the queue is the order of the log.
                if queue.as_mut().is_some_and(|queue| queue.join(group)) {
                    continue;
                }
                break;
            };
            match self.apply(job) {
                Ok(outcome) => outcomes.push(outcome),
                Err(fail) => {
                    self.rollback();
                    return if fail.blames_batch() {
                        CommitOutcome::Culprit(index, fail)
                    } else {
                        CommitOutcome::Failed(fail)
                    };
                }
            }
        }
        let has_changes = self.conn.total_changes() != changes_before;
        // Counted inside the transaction, so that count and rows agree after a crash.
        let position = match self.next_position(has_changes, &group.jobs) {
            Ok(position) => position,
            Err(fail) => {
                self.rollback();
                return CommitOutcome::Failed(fail);
            }
        };
        // Hide before the commit: from the commit on, a reader of the database could see newer rows than the cache has.
        self.hide(&group.jobs, &outcomes);
        match prepared(&mut self.statements.commit, self.conn, "COMMIT") {
            Ok(()) => {
                // Readers may use the heads from here: they are durable.
                self.heads.commit(&self.context.heads);
                self.blobs.commit();
                if has_changes {
                    self.record(position, &group.jobs, &outcomes);
                }
                CommitOutcome::Done(outcomes)
            }
            Err(fail) => {
                self.rollback();
                CommitOutcome::Failed(fail)
            }
        }
    }

    /// The position after the current transaction. A transaction without a new frame, or with a removal, is counted.
    fn next_position(
        &mut self,
        has_changes: bool,
        jobs: &[Job],
    ) -> Result<CommitPosition, SqliteError> {
        let newest = self.statements.frame.take_newest();
        let position = self.commits.position;
        if !has_changes {
            return Ok(position);
        }
        let ChangedThreads { removes, removed, .. } = &self.threads;
        let is_removal = |job: &Job| matches!(job, Job::Append(append) if append.batch.removes());
        match newest.filter(|_| !removes && removed.is_empty() && !jobs.iter().any(is_removal)) {
            Some(frame) => Ok(CommitPosition { frame, ..position }),
            None => position.count(self.conn),
        }
    }

    /// Records a durable commit. This happens before any caller or reader learns of the commit.
    fn record(&mut self, position: CommitPosition, jobs: &[Job], outcomes: &[Result<()>]) {
        let appended = jobs.iter().zip(outcomes).filter_map(|(job, outcome)| match job {
            Job::Append(append) if outcome.is_ok() && !append.batch.removes_thread() => {
                Some(ThreadChange::of_batch(&append.batch))
            }
            _ => None,
        });
        let removed = self.threads.removed.iter().map(|thread| ThreadChange::removal(*thread));
        self.commits.position = position;
        self.commits.record.note(position, self.log.pages(), appended.chain(removed));
    }

    fn apply(&mut self, job: &mut Job) -> Result<Result<()>, SqliteError> {
        // Checked again here: the state may have become worse while the job waited in the queue.
        if let Err(error) = self.context.health.check_write(job.is_vital()) {
            return Ok(Err(error));
        }
        let Self { conn, statements, context, heads, blobs, threads, .. } = self;
        let mut writer = WriteContext { conn, context, heads, blobs, threads };
        match job {
            Job::Append(append) => {
                let is_new = match apply::check_head(&writer, &append.batch) {
                    Ok(is_new) => is_new,
                    // A failed statement says nothing about this append, so the whole group is rolled back.
                    Err(SqliteError::Sql(error)) => return Err(SqliteError::Sql(error)),
                    // Nothing of the append was written, so the rest of its group continues.
                    Err(fail) => return Ok(Err(writer.context.health.settle(fail))),
                };
                // Frames before rows: a removal in the same batch also deletes the frames of its run.
                statements.frame.all(conn, &append.batch.frames)?;
                apply::batch(&mut writer, &append.batch, is_new)?;
            }
            Job::Work(work) => work.run(&mut writer)?,
            Job::Probe | Job::Close => {}
        }
        Ok(Ok(()))
    }

    /// Hides the rows that the transaction changes: between the commit and their publication, cached rows are older than the database. Threads that are removed in parts are hidden permanently.
    fn hide(&self, jobs: &[Job], outcomes: &[Result<()>]) {
        let appended = jobs.iter().zip(outcomes).filter_map(|(job, outcome)| match job {
            Job::Append(append) if outcome.is_ok() && row_cache::touches(&append.batch) => {
                Some(append.batch.thread)
            }
            _ => None,
        });
        let ChangedThreads { changed, removed, hidden, .. } = &self.threads;
        self.context.hot.hide(appended.chain(changed.iter().chain(removed).copied()));
        hidden.iter().for_each(|thread| self.context.health.hidden.hide(*thread));
    }

    fn rollback(&mut self) {
        self.heads.rollback();
        self.blobs.rollback();
        // Some failures have already ended the transaction.
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            self.context.health.settle(error.into());
        }
        // The removal did not happen, so its threads must be visible again.
        let ChangedThreads { hidden, .. } = std::mem::take(&mut self.threads);
        hidden.iter().for_each(|thread| self.context.health.hidden.forget(*thread));
        self.context.hot.show();
    }

    /// Publishes durable changes, then sends the replies.
    fn finish(&mut self, jobs: Jobs, outcomes: Outcomes) {
        let _mark = PanicMark(Arc::clone(&self.context.health));
        let mut frames = 0;
        for (job, outcome) in jobs.iter().zip(&outcomes) {
            if let (Job::Append(append), Ok(())) = (job, outcome) {
                frames += append.batch.frames.len();
                self.publish(&append.batch);
                self.has_remains |= append.batch.removes();
            }
        }
        self.publish_threads();
        // Only after all changes are cached: until then, readers get hidden rows from the database.
        self.context.hot.show();
        self.context.commits.fetch_add(1, Ordering::Relaxed);
        self.context.frames.fetch_add(frames as u64, Ordering::Relaxed);
        // Replies come last: a caller that has its reply finds its change in the cache, in the tails and on disk.
        if jobs.len() < BULK_REPLIES {
            reply_all(jobs, outcomes);
        } else {
            self.runtime.spawn(async move { reply_all(jobs, outcomes) });
        }
        // After the replies, so that their callers do not wait for a checkpoint.
        self.log.maintain();
    }

    fn publish(&self, batch: &Batch) {
        let context = &self.context;
        context.hot.committed(batch);
        let last = batch.frames.last().map_or(batch.expected_last, |frame| frame.last());
        if batch.changes.iter().any(|change| matches!(change, Change::RemoveRun(_))) {
            // Readers never see frames of a batch that also removed their run.
            context.tails.forget_frames(batch.thread, last);
        } else if !batch.frames.is_empty() {
            context.tails.publish_commit(batch.thread, last, &batch.frames);
        }
        for change in &batch.changes {
            match change {
                Change::Offer(_) => context.offered.wake(),
                Change::RemoveRun(_) => self.log.erase(),
                _ => {}
            }
        }
    }

    fn publish_threads(&mut self) {
        let ChangedThreads { removes, changed, removed, .. } = std::mem::take(&mut self.threads);
        self.has_remains |= !removed.is_empty();
        if removes || !removed.is_empty() {
            self.log.erase();
        }
        let Context { hot, tails, health, .. } = self.context.as_ref();
        changed.iter().chain(&removed).for_each(|thread| hot.forget(*thread));
        for thread in removed {
            tails.remove_thread(thread);
            health.quarantine.remove(thread);
        }
    }

    /// Handles a full disk: releases the reserve, then commits the vital jobs and refuses the others.
    fn handle_full_disk(&mut self, jobs: Jobs) {
        // First, because `send` and `apply` refuse by this state the jobs that need space.
        self.context.health.worsen(StoreState::Full, "");
        if let Err(fail) = self.room.release(self.conn) {
            self.context.health.settle(fail);
        }
        // Emptying the log gives its bytes back to the disk, which may already be enough.
        self.log.checkpoint(CheckpointMode::TRUNCATE);
        let full = self.context.health.error(StoreState::Full);
        let refuse = |job: Job| job.reply(full.clone().map_or(Ok(()), Err));
        let (vital, others): (Jobs, Jobs) = jobs.into_iter().partition(Job::is_vital);
        others.into_iter().for_each(refuse);
        let mut group = JobGroup::from(vital);
        match self.attempt(&mut group, None) {
            // Try them one by one: a small job may fit although all together do not.
            CommitOutcome::Culprit(..) => self.commit_each(group),
            CommitOutcome::Failed(fail) if fail.is_full() => self.commit_each(group),
            outcome => self.conclude(group, outcome),
        }
    }

    fn commit_each(&mut self, group: JobGroup) {
        for job in group.into_parts().0 {
            let mut alone = JobGroup::from(job);
            match self.attempt(&mut alone, None) {
                CommitOutcome::Done(outcomes) => self.finish(alone.into_parts().0, outcomes),
                CommitOutcome::Culprit(_, fail) | CommitOutcome::Failed(fail) => {
                    let error = self.context.health.settle(fail);
                    let jobs = alone.into_parts().0;
                    jobs.into_iter().for_each(|job| job.reply(Err(error.clone())));
                }
            }
        }
    }

    fn probe(&mut self) {
        if self.context.health.state() == StoreState::Full && self.context.health.may_probe() {
            self.probe_space();
        }
    }

    fn probe_space(&mut self) {
        match self.room.restore(self.conn) {
            Ok(true) => self.context.health.recover(),
            Ok(false) => {}
            Err(SqliteError::Refused(error)) => self.room.log_failure(&error),
            // No caller waits for a probe, and `settle` has noted the failure.
            Err(fail) => drop(self.context.health.settle(fail)),
        }
    }
}

/// Executes a statement that stays prepared.
fn prepared<'c>(
    kept: &mut Option<Statement<'c>>,
    conn: &'c Connection,
    sql: &str,
) -> Result<(), SqliteError> {
    let statement = match kept.take() {
        Some(statement) => statement,
        None => conn.prepare_with_flags(sql, PrepFlags::SQLITE_PREPARE_PERSISTENT)?,
    };
    kept.insert(statement).execute([])?;
    Ok(())
}

fn reply_all(jobs: Jobs, outcomes: Outcomes) {
    for (job, outcome) in jobs.into_iter().zip(outcomes) {
        job.reply(outcome);
    }
}
