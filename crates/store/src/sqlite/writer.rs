//! The writer: one thread, one connection, group commit.
//!
//! Whatever waits goes into one transaction; while it is synchronised to the disk, the next group gathers.
//! A batch whose statement fails is known by it: the transaction is rolled back, what came before is committed without it, and what comes behind follows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, MAIN_DB};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use trilogue_domain::error::{Error, Result};
use trilogue_domain::limits;

use super::apply;
use super::checkpoint::{BACKSTOP_PAGES, Checkpointer, NUDGE_PAGES};
use super::fault::{Fail, State};
use super::file::Lock;
use super::heads::Heads;
use super::inspect::Inspection;
use super::job::{Desk, Job};
use super::room::Room;
use super::{Context, blob};
use crate::port::Change;

/// The most jobs of one transaction.
const MAX_GROUP: usize = 256;
/// From this many replies on they are handed to the runtime at once, so that the writer goes on.
const BULK_REPLIES: usize = 2;

/// The writer's own things.
#[derive(Debug)]
pub(super) struct Writer {
    conn: Connection,
    context: Arc<Context>,
    runtime: Handle,
    heads: Heads,
    blobs: blob::Pending,
    room: Room,
    checkpointer: Checkpointer,
    inspection: Inspection,
    /// Pages of the write-ahead log, counted by SQLite at every commit.
    log_pages: Arc<AtomicUsize>,
    nudged_at: usize,
    stopped_at: usize,
    /// Given back when the connection is closed.
    lock: Lock,
}

/// How a transaction went.
enum Attempt {
    /// It is durable, with an outcome for each of its jobs.
    Done(Vec<Result<()>>),
    /// It was rolled back because of this job alone.
    Culprit(usize, Fail),
    /// It was rolled back, and no job is to blame.
    Failed(Fail),
}

// === impl Writer ===

impl Writer {
    pub(super) fn new(
        conn: Connection,
        lock: Lock,
        context: Arc<Context>,
        runtime: Handle,
        room: Room,
        checkpointer: Checkpointer,
        inspection: Inspection,
    ) -> Result<Self, Fail> {
        let log_pages = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&log_pages);
        conn_hook(conn, counter).map(|conn| Self {
            conn,
            context,
            runtime,
            heads: Heads::default(),
            blobs: blob::Pending::default(),
            room,
            checkpointer,
            inspection,
            log_pages,
            nudged_at: 0,
            stopped_at: 0,
            lock,
        })
    }

    /// Does what comes until everybody who could send is gone, or one says so.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut inbox = Vec::with_capacity(MAX_GROUP);
        let mut is_open = true;
        while is_open && jobs.blocking_recv_many(&mut inbox, MAX_GROUP) > 0 {
            let (mut group, mut bytes) = (Vec::with_capacity(inbox.len()), 0);
            let mut received = 0;
            for job in inbox.drain(..) {
                received += job.permits() as usize;
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
            self.context.release(received);
        }
        self.end(jobs);
    }

    fn end(self, mut jobs: mpsc::Receiver<Job>) {
        jobs.close();
        self.context.readers.close();
        self.checkpointer.end();
        self.inspection.end();
        if self.context.health.state() as u8 >= State::ReadOnly as u8 {
            // What could not be synchronised must not be moved into the database either.
            let keep = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            drop(self.conn.set_db_config(keep, true));
        }
        // The last connection moves the write-ahead log into the database and removes it.
        if let Err((_, error)) = self.conn.close() {
            tracing::warn!(%error, "the store was not closed cleanly; the next start recovers it");
        }
        self.context.health.worsen(State::Closed, "");
        drop(self.lock);
        while let Ok(job) = jobs.try_recv() {
            job.reply(Err(super::connection::closed()));
        }
    }

    /// Commits these jobs, in as few transactions as their failures allow.
    fn commit(&mut self, mut jobs: Vec<Job>) {
        if self.context.health.state() == State::Full && self.context.health.may_probe() {
            self.look_for_room();
        }
        while !jobs.is_empty() {
            match self.attempt(&mut jobs) {
                Attempt::Done(outcomes) => return self.finish(jobs, outcomes),
                Attempt::Culprit(index, fail) => {
                    let behind = jobs.split_off(index + 1);
                    let culprit = jobs.pop();
                    let error = self.context.health.settle(fail);
                    if let Some(culprit) = culprit {
                        culprit.reply(Err(error));
                    }
                    self.commit(jobs);
                    jobs = behind;
                }
                Attempt::Failed(fail) if fail.is_full() => return self.without_room(jobs),
                Attempt::Failed(fail) => {
                    let error = self.context.health.settle(fail);
                    return jobs.into_iter().for_each(|job| job.reply(Err(error.clone())));
                }
            }
        }
    }

    fn attempt(&mut self, jobs: &mut [Job]) -> Attempt {
        if let Err(error) = self.execute("BEGIN IMMEDIATE") {
            return Attempt::Failed(error);
        }
        let mut outcomes = Vec::with_capacity(jobs.len());
        for (index, job) in jobs.iter_mut().enumerate() {
            match self.apply(job) {
                Ok(outcome) => outcomes.push(outcome),
                Err(fail) => {
                    self.rollback();
                    return if fail.blames_batch() {
                        Attempt::Culprit(index, fail)
                    } else {
                        Attempt::Failed(fail)
                    };
                }
            }
        }
        match self.execute("COMMIT") {
            Ok(()) => {
                self.heads.commit();
                self.blobs.commit();
                Attempt::Done(outcomes)
            }
            Err(fail) => {
                self.rollback();
                Attempt::Failed(fail)
            }
        }
    }

    /// Applies one job. What is refused before its first statement is an outcome, not a failure of the transaction.
    fn apply(&mut self, job: &mut Job) -> Result<Result<()>, Fail> {
        if let Err(error) = self.context.health.check_write(job.is_vital()) {
            return Ok(Err(error));
        }
        let Self { conn, context, heads, blobs, .. } = self;
        match job {
            Job::Append(append) => {
                match apply::check_head(conn, context, heads, &append.batch) {
                    Ok(()) => {}
                    Err(Fail::Sql(error)) => return Err(Fail::Sql(error)),
                    Err(fail) => return Ok(Err(context.health.settle(fail))),
                }
                apply::batch(conn, heads, blobs, &append.batch)?;
            }
            Job::Work(work) => work.run(&mut Desk { conn, context, heads, blobs })?,
            Job::Probe | Job::Close => {}
        }
        Ok(Ok(()))
    }

    fn rollback(&mut self) {
        self.heads.rollback();
        self.blobs.rollback();
        // Some failures have ended the transaction already.
        if !self.conn.is_autocommit()
            && let Err(fail) = self.execute("ROLLBACK")
        {
            self.context.health.settle(fail);
        }
    }

    /// Makes what is durable visible, then tells everybody.
    fn finish(&mut self, jobs: Vec<Job>, outcomes: Vec<Result<()>>) {
        let mut frames = 0;
        for (job, outcome) in jobs.iter().zip(&outcomes) {
            if let (Job::Append(append), Ok(())) = (job, outcome) {
                frames += append.batch.frames.len();
                self.publish(&append.batch);
            }
        }
        self.context.commits.fetch_add(1, Ordering::Relaxed);
        self.context.frames.fetch_add(frames as u64, Ordering::Relaxed);
        if jobs.len() < BULK_REPLIES {
            reply_all(jobs, outcomes);
        } else {
            self.runtime.spawn(async move { reply_all(jobs, outcomes) });
        }
        self.care_for_log();
    }

    fn publish(&self, batch: &crate::port::Batch) {
        let context = &self.context;
        if let Some(last) = batch.frames.last() {
            context.tails.committed(batch.thread, last.last(), &batch.frames);
        }
        for change in &batch.changes {
            match change {
                Change::Offer(_) => context.offered.wake(),
                Change::RemoveRun(_) => {
                    context.tails.removed(batch.thread);
                    self.checkpointer.erase();
                }
                Change::RemoveThread => {
                    context.tails.removed(batch.thread);
                    context.health.forget(batch.thread);
                    self.checkpointer.erase();
                }
                _ => {}
            }
        }
    }

    /// Keeps the write-ahead log short: by the checkpointer beside, and here only when that one does not keep up.
    fn care_for_log(&mut self) {
        let pages = self.log_pages.load(Ordering::Relaxed);
        if pages < self.nudged_at {
            (self.nudged_at, self.stopped_at) = (0, 0);
        }
        if pages >= BACKSTOP_PAGES && pages >= self.stopped_at + NUDGE_PAGES {
            self.stopped_at = pages;
            self.checkpoint(CheckpointMode::PASSIVE);
        } else if pages >= self.nudged_at + NUDGE_PAGES {
            self.nudged_at = pages;
            self.checkpointer.nudge();
        }
    }

    fn checkpoint(&self, mode: CheckpointMode) {
        match self.conn.wal_checkpoint_v2(Some(MAIN_DB), mode) {
            Ok(_) => {}
            Err(error) if super::checkpoint::is_harmless(&error) => {}
            Err(error) => drop(self.context.health.settle(error.into())),
        }
    }

    /// The disk is full: gives the reserve up, and does what makes room or ends something.
    fn without_room(&mut self, jobs: Vec<Job>) {
        self.context.health.worsen(State::Full, "");
        if let Err(fail) = self.room.give_up(&self.conn) {
            self.context.health.settle(fail);
        }
        self.checkpoint(CheckpointMode::TRUNCATE);
        let full = self.context.health.error(State::Full);
        let refuse = |job: Job| job.reply(full.clone().map_or(Ok(()), Err));
        let (mut vital, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(Job::is_vital);
        others.into_iter().for_each(refuse);
        match self.attempt(&mut vital) {
            Attempt::Done(outcomes) => self.finish(vital, outcomes),
            Attempt::Failed(fail) if !fail.is_full() => {
                let error = self.context.health.settle(fail);
                vital.into_iter().for_each(|job| job.reply(Err(error.clone())));
            }
            // One by one: a small one may fit where all together do not.
            _ => {
                for job in vital {
                    self.commit_alone(job);
                }
            }
        }
    }

    fn commit_alone(&mut self, job: Job) {
        let mut jobs = vec![job];
        match self.attempt(&mut jobs) {
            Attempt::Done(outcomes) => self.finish(jobs, outcomes),
            Attempt::Culprit(_, fail) | Attempt::Failed(fail) => {
                let error = self.context.health.settle(fail);
                jobs.into_iter().for_each(|job| job.reply(Err(error.clone())));
            }
        }
    }

    fn probe(&mut self) {
        if self.context.health.state() == State::Full && self.context.health.may_probe() {
            self.look_for_room();
        }
    }

    fn look_for_room(&mut self) {
        match self.room.take_back(&self.conn) {
            Ok(true) => self.context.health.recovered(),
            Ok(false) => {}
            Err(fail) => drop(self.context.health.settle(fail)),
        }
    }

    fn execute(&self, sql: &str) -> Result<(), Fail> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

fn conn_hook(mut conn: Connection, pages: Arc<AtomicUsize>) -> Result<Connection, Fail> {
    conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, count: i32| {
        pages.store(usize::try_from(count).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }))?;
    Ok(conn)
}

fn reply_all(jobs: Vec<Job>, outcomes: Vec<Result<(), Error>>) {
    for (job, outcome) in jobs.into_iter().zip(outcomes) {
        job.reply(outcome);
    }
}
