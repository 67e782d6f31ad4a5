//! The writer: one thread, one connection, group commit.
//!
//! All waiting jobs go into one transaction; while it is synchronised to the disk, the next group gathers.
//! When a batch's statement fails, the transaction is rolled back, the jobs before the batch are committed without it, and those behind it follow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, MAIN_DB, PrepFlags, Statement};
use smallvec::{SmallVec, smallvec};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use trilogue_domain::error::Result;
use trilogue_domain::limits;

use super::apply;
use super::checkpoint::{BACKSTOP_PAGES, Checkpointer, NUDGE_PAGES};
use super::disk_space::DiskSpace;
use super::error::{Health, SqliteError, StoreState};
use super::file::FileLock;
use super::heads::Heads;
use super::inspect::Inspection;
use super::job::{ChangedThreads, Job, QueuedJob, WriteContext};
use super::wal_file::LogFile;
use super::{Context, blob, remove, row_cache};
use crate::port::Change;

const MAX_GROUP: usize = 256;
/// From this many replies on, a runtime task sends them, so that the writer can continue.
const BULK_REPLIES: usize = 2;

/// Jobs of one transaction, usually one.
type Jobs = SmallVec<[Job; 1]>;
type Outcomes = SmallVec<[Result<()>; 1]>;

/// The writer before its thread starts.
#[derive(Debug)]
pub(super) struct WriterThread {
    pub(super) conn: Connection,
    /// Given back when the connection is closed.
    pub(super) lock: FileLock,
    pub(super) context: Arc<Context>,
    pub(super) runtime: Handle,
    pub(super) beside: DiskUpkeep,
}

/// The background upkeep of the disk.
#[derive(Debug)]
pub(super) struct DiskUpkeep {
    pub(super) room: DiskSpace,
    pub(super) checkpointer: Checkpointer,
    pub(super) inspection: Inspection,
    /// Pages of the write-ahead log, counted by SQLite at every commit.
    pub(super) log_pages: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Writer<'c> {
    conn: &'c Connection,
    statements: WriterStatements<'c>,
    context: Arc<Context>,
    runtime: Handle,
    heads: Heads,
    blobs: blob::PendingBlobs,
    changed: ChangedThreads,
    beside: DiskUpkeep,
    wal_file: LogFile,
    /// Whether a removal may have left something to delete in parts.
    has_remains: bool,
    nudged_at: usize,
    stopped_at: usize,
}

#[derive(Debug, Default)]
struct WriterStatements<'c> {
    begin: Option<Statement<'c>>,
    commit: Option<Statement<'c>>,
    frame: apply::InsertFrame<'c>,
}

/// Ends writing when the writer panics: without it, writes would fail while the store says that it is well.
/// One is held wherever jobs are, and is dropped before them, so that their callers find the new state.
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
    pub(super) fn run(self, mut jobs: mpsc::Receiver<QueuedJob>) {
        // Bound first and so dropped last: the connection is always closed before the lock is free.
        let Self { lock, .. } = self;
        let _mark = PanicMark(Arc::clone(&self.context.health));
        let Self { conn, context, runtime, beside, .. } = self;
        let beside = {
            let mut writer = Writer {
                conn: &conn,
                statements: WriterStatements::default(),
                wal_file: LogFile::of(&context.path),
                context: Arc::clone(&context),
                runtime,
                heads: Heads::default(),
                blobs: blob::PendingBlobs::default(),
                changed: ChangedThreads::default(),
                beside,
                // The last life may have left some.
                has_remains: true,
                nudged_at: 0,
                stopped_at: 0,
            };
            writer.run(&mut jobs);
            writer.beside
        };
        jobs.close();
        context.readers.close();
        beside.checkpointer.end();
        beside.inspection.end();
        close(conn, &context);
        drop(lock);
        while let Ok(queued) = jobs.try_recv() {
            queued.job.reply(Err(crate::core::closed()));
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
        drop(conn.set_db_config(keep, true));
    }
    // The last connection moves the write-ahead log into the database and removes it.
    if let Err((_, error)) = conn.close() {
        tracing::warn!(%error, "the store was not closed cleanly; the next start recovers it");
    }
    context.health.worsen(StoreState::Closed, "");
}

// === impl Writer ===

impl Writer<'_> {
    fn run(&mut self, jobs: &mut mpsc::Receiver<QueuedJob>) {
        let mut inbox = Vec::with_capacity(MAX_GROUP);
        let mut is_open = true;
        while is_open && self.receive(jobs, &mut inbox) {
            let (mut group, mut bytes) = (Jobs::with_capacity(inbox.len()), 0);
            // Until they are committed: what is being written takes room too.
            let mut rooms = Vec::new();
            for QueuedJob { job, room } in inbox.drain(..) {
                rooms.extend(room);
                match job {
                    Job::Close => is_open = false,
                    Job::Probe => self.probe(),
                    _ => {
                        let is_full = bytes + job.bytes() > limits::MAX_BATCH_BYTES;
                        if !group.is_empty() && (is_full || job.is_alone()) {
                            self.commit(std::mem::take(&mut group));
                            bytes = 0;
                        }
                        bytes += job.bytes();
                        let is_alone = job.is_alone();
                        group.push(job);
                        if is_alone {
                            self.commit(std::mem::take(&mut group));
                            bytes = 0;
                        }
                    }
                }
            }
            if !group.is_empty() {
                self.commit(group);
            }
            if self.has_remains {
                self.sweep();
            }
        }
    }

    /// Takes waiting jobs, and waits for some unless there is a removal to go on with. `false` when none will come.
    fn receive(&self, jobs: &mut mpsc::Receiver<QueuedJob>, inbox: &mut Vec<QueuedJob>) -> bool {
        if !self.has_remains {
            return jobs.blocking_recv_many(inbox, MAX_GROUP) > 0;
        }
        while inbox.len() < MAX_GROUP {
            match jobs.try_recv() {
                Ok(job) => inbox.push(job),
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => return !inbox.is_empty(),
            }
        }
        true
    }

    /// Deletes one part of what large removals have left, in a transaction of its own: waiting jobs come between the parts.
    fn sweep(&mut self) {
        if self.context.health.state() >= StoreState::ReadOnly {
            self.has_remains = false;
            return;
        }
        let swept = self.sweep_part();
        self.has_remains = match swept {
            Ok(has_more) => has_more,
            Err(fail) => {
                self.rollback();
                // A full disk is met by the next append, which names it; the next removal or start goes on here.
                if !fail.is_full() {
                    self.context.health.settle(fail);
                }
                false
            }
        };
        self.maintain_log();
    }

    fn sweep_part(&mut self) -> Result<bool, SqliteError> {
        if !remove::has_remains(self.conn)? {
            return Ok(false);
        }
        prepared(&mut self.statements.begin, self.conn, "BEGIN IMMEDIATE")?;
        remove::sweep(self.conn, &self.blobs)?;
        prepared(&mut self.statements.commit, self.conn, "COMMIT")?;
        let has_more = remove::has_remains(self.conn)?;
        if !has_more {
            self.beside.checkpointer.erase();
        }
        Ok(has_more)
    }

    /// Commits these jobs, in as few transactions as their failures allow.
    fn commit(&mut self, mut jobs: Jobs) {
        if self.context.health.state() == StoreState::Full && self.context.health.may_probe() {
            self.probe_space();
        }
        while !jobs.is_empty() {
            match self.attempt(&mut jobs) {
                CommitOutcome::Done(outcomes) => return self.finish(jobs, outcomes),
                CommitOutcome::Culprit(index, fail) => {
                    let behind = jobs.drain(index + 1..).collect();
                    let culprit = jobs.pop();
                    let error = self.context.health.settle(fail);
                    if let Some(culprit) = culprit {
                        culprit.reply(Err(error));
                    }
                    self.commit(jobs);
                    jobs = behind;
                }
                CommitOutcome::Failed(fail) if fail.is_full() => {
                    return self.handle_full_disk(jobs);
                }
                CommitOutcome::Failed(fail) => {
                    let error = self.context.health.settle(fail);
                    return jobs.into_iter().for_each(|job| job.reply(Err(error.clone())));
                }
            }
        }
    }

    fn attempt(&mut self, jobs: &mut [Job]) -> CommitOutcome {
        let _mark = PanicMark(Arc::clone(&self.context.health));
        if let Err(fail) = prepared(&mut self.statements.begin, self.conn, "BEGIN IMMEDIATE") {
            return CommitOutcome::Failed(fail);
        }
        let mut outcomes = Outcomes::with_capacity(jobs.len());
        for (index, job) in jobs.iter_mut().enumerate() {
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
        self.hide(jobs, &outcomes);
        match prepared(&mut self.statements.commit, self.conn, "COMMIT") {
            Ok(()) => {
                self.heads.commit();
                self.blobs.commit();
                CommitOutcome::Done(outcomes)
            }
            Err(fail) => {
                self.rollback();
                CommitOutcome::Failed(fail)
            }
        }
    }

    fn apply(&mut self, job: &mut Job) -> Result<Result<()>, SqliteError> {
        if let Err(error) = self.context.health.check_write(job.is_vital()) {
            return Ok(Err(error));
        }
        let Self { conn, statements, context, heads, blobs, changed, .. } = self;
        match job {
            Job::Append(append) => {
                match apply::check_head(conn, context, heads, &append.batch) {
                    Ok(()) => {}
                    Err(SqliteError::Sql(error)) => return Err(SqliteError::Sql(error)),
                    Err(fail) => return Ok(Err(context.health.settle(fail))),
                }
                apply::batch(conn, &mut statements.frame, heads, blobs, &append.batch)?;
            }
            Job::Work(work) => {
                work.run(&mut WriteContext { conn, context, heads, blobs, changed })?
            }
            Job::Probe | Job::Close => {}
        }
        Ok(Ok(()))
    }

    /// Hides cached rows that the transaction changes: from the commit until they are published, the cache is older than the database.
    fn hide(&self, jobs: &[Job], outcomes: &[Result<()>]) {
        let appended = jobs.iter().zip(outcomes).filter_map(|(job, outcome)| match job {
            Job::Append(append) if outcome.is_ok() && row_cache::touches(&append.batch) => {
                Some(append.batch.thread)
            }
            _ => None,
        });
        self.context.hot.hide(appended.chain(self.changed.threads.iter().copied()));
    }

    fn rollback(&mut self) {
        self.heads.rollback();
        self.blobs.rollback();
        // Some failures have ended the transaction already.
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            self.context.health.settle(error.into());
        }
        self.context.hot.show();
    }

    /// Publishes durable changes, then replies.
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
        // Last, and also after a rollback: rows that are not cached are looked up.
        let removes = std::mem::take(&mut self.changed.removes);
        for thread in self.changed.threads.drain(..) {
            self.context.hot.forget(thread);
            if removes {
                self.context.tails.removed(thread, 0);
            }
        }
        if removes {
            self.has_remains = true;
            self.beside.checkpointer.erase();
        }
        self.context.hot.show();
        self.context.commits.fetch_add(1, Ordering::Relaxed);
        self.context.frames.fetch_add(frames as u64, Ordering::Relaxed);
        if jobs.len() < BULK_REPLIES {
            reply_all(jobs, outcomes);
        } else {
            self.runtime.spawn(async move { reply_all(jobs, outcomes) });
        }
        self.maintain_log();
    }

    fn publish(&self, batch: &crate::port::Batch) {
        let context = &self.context;
        context.hot.committed(batch);
        let last = batch.frames.last().map_or(batch.expected_last, |frame| frame.last());
        if batch.changes.iter().any(|change| matches!(change, Change::RemoveRun(_))) {
            // Readers never see frames of a batch that also removed their run.
            context.tails.removed(batch.thread, last);
        } else if !batch.frames.is_empty() {
            context.tails.committed(batch.thread, last, &batch.frames);
        }
        for change in &batch.changes {
            match change {
                Change::Offer(_) => context.offered.wake(),
                Change::RemoveRun(_) => self.beside.checkpointer.erase(),
                Change::RemoveThread => {
                    context.tails.ended(batch.thread);
                    context.health.quarantine.remove(batch.thread);
                    self.beside.checkpointer.erase();
                }
                _ => {}
            }
        }
    }

    /// Keeps the write-ahead log short: the checkpointer does most, this does the rest.
    fn maintain_log(&mut self) {
        if self.context.health.state() >= StoreState::ReadOnly {
            // A log that could not be synchronised must not be moved into the database.
            return;
        }
        let pages = self.beside.log_pages.load(Ordering::Relaxed);
        if pages < self.nudged_at {
            (self.nudged_at, self.stopped_at) = (0, 0);
        }
        if self.beside.checkpointer.is_nearly_done() {
            self.checkpoint(CheckpointMode::PASSIVE);
        } else if pages >= BACKSTOP_PAGES && pages >= self.stopped_at + NUDGE_PAGES {
            self.stopped_at = pages;
            self.checkpoint(CheckpointMode::PASSIVE);
        } else if pages >= self.nudged_at + NUDGE_PAGES {
            self.nudged_at = pages;
            self.beside.checkpointer.nudge();
        }
        if self.context.health.state() == StoreState::Healthy
            && let Err(error) = self.wal_file.grow_ahead(pages)
        {
            tracing::debug!(%error, "the log's file was not lengthened ahead");
        }
    }

    fn checkpoint(&self, mode: CheckpointMode) {
        if self.context.health.state() >= StoreState::ReadOnly {
            return;
        }
        match self.conn.wal_checkpoint_v2(Some(MAIN_DB), mode) {
            Ok(_) => {}
            Err(error) if super::checkpoint::is_harmless(&error) => {}
            Err(error) => drop(self.context.health.settle(error.into())),
        }
    }

    /// Handles a full disk: releases the reserve and runs the vital jobs.
    fn handle_full_disk(&mut self, jobs: Jobs) {
        self.context.health.worsen(StoreState::Full, "");
        if let Err(fail) = self.beside.room.release(self.conn) {
            self.context.health.settle(fail);
        }
        self.checkpoint(CheckpointMode::TRUNCATE);
        let full = self.context.health.error(StoreState::Full);
        let refuse = |job: Job| job.reply(full.clone().map_or(Ok(()), Err));
        let (mut vital, others): (Jobs, Jobs) = jobs.into_iter().partition(Job::is_vital);
        others.into_iter().for_each(refuse);
        match self.attempt(&mut vital) {
            CommitOutcome::Done(outcomes) => self.finish(vital, outcomes),
            CommitOutcome::Failed(fail) if !fail.is_full() => {
                let error = self.context.health.settle(fail);
                vital.into_iter().for_each(|job| job.reply(Err(error.clone())));
            }
            // One by one: a small job may fit where all together do not.
            _ => {
                for job in vital {
                    self.commit_alone(job);
                }
            }
        }
    }

    fn commit_alone(&mut self, job: Job) {
        let mut jobs: Jobs = smallvec![job];
        match self.attempt(&mut jobs) {
            CommitOutcome::Done(outcomes) => self.finish(jobs, outcomes),
            CommitOutcome::Culprit(_, fail) | CommitOutcome::Failed(fail) => {
                let error = self.context.health.settle(fail);
                jobs.into_iter().for_each(|job| job.reply(Err(error.clone())));
            }
        }
    }

    fn probe(&mut self) {
        if self.context.health.state() == StoreState::Full && self.context.health.may_probe() {
            self.probe_space();
        }
    }

    fn probe_space(&mut self) {
        match self.beside.room.restore(self.conn) {
            Ok(true) => self.context.health.recover(),
            Ok(false) => {}
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
