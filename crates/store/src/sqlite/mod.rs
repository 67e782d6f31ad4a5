//! The SQLite engine: one file, one writer thread, several readers, write-ahead log.
//!
//! | file | purpose |
//! |---|---|
//! | `schema`, `search`, `thread_agents` | the tables, their migrations, the search rows |
//! | `open`, `connection`, `writer`, `job`, `job_queue` | opening, connections, the writer's thread and its queue |
//! | `apply`, `heads`, `blob` | the statements of the writer's transactions |
//! | `remove`, `thread_removal` | removing runs and threads |
//! | `checkpoint`, `log_upkeep`, `wal_file`, `disk_space`, `error`, `file` | the write-ahead log, the disk, failures, the files |
//! | `commit_position`, `commit_record`, `log_scan`, `log_loss`, `known_losses` | finding acknowledged commits that a damaged log lost |
//! | `inspect` | detecting damage in SQLite's own structures |
//! | `row`, `frames`, `lookups`, `access_path`, `listing`, `thread_listing`, `short_id` | look-ups on the readers' connections |
//! | `row_cache` | look-ups without a connection |
//! | `append`, `read`, `housekeeping`, `retention`, `queue`, `tokens`, `configuration`, `admin` | the ports |
//! | `backup`, `verify`, `export`, `import`, `scan` | backup, restore, verification, copies to and from another engine |
//!
//! Steps that this engine and PostgreSQL have in common are in [`crate::sql`].
//!
//! # Invariants
//! - Only the writer's connection changes the database.
//! - No read transaction is open across an `await`, except that of an export.
//! - A string that a user chose reaches SQL as a bound parameter only.

mod access_path;
mod admin;
mod append;
mod apply;
mod backup;
mod blob;
mod checkpoint;
mod commit_position;
mod commit_record;
mod configuration;
mod connection;
mod disk_space;
mod error;
mod export;
mod file;
mod frames;
mod heads;
mod housekeeping;
mod import;
mod inspect;
mod job;
mod job_queue;
mod known_losses;
mod listing;
mod log_loss;
mod log_scan;
mod log_upkeep;
mod lookups;
mod open;
mod queue;
mod read;
mod remove;
mod retention;
mod row;
mod row_cache;
mod scan;
mod schema;
mod search;
mod short_id;
#[cfg(test)]
mod tests;
mod thread_agents;
mod thread_listing;
mod thread_removal;
mod tokens;
mod verify;
mod wal_file;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{Semaphore, mpsc, oneshot};
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Error, Result};
use trilogue_domain::port::ReadOriginal;

pub use self::import::copy_draft;
pub(crate) use self::import::import;
pub use backup::{RestoreOptions, create_preparation_folder, restore, settle_draft};
pub(crate) use export::StoreSnapshot;
pub use verify::{VerifyReport, verify};

use self::checkpoint::InheritedLog;
use self::connection::Readers;
use self::error::{Health, SqliteError, StoreState, lock};
use self::heads::DurableHeads;
use self::job::{Job, QueuedJob, WorkKind, WriteContext, task};
use self::known_losses::KnownLosses;
use self::retention::RetentionBacklog;
use self::row::run_to_end;
use self::row_cache::RowCache;
use crate::core::batch::PERMIT_BYTES;
use crate::core::queue::QueueSignal;
use crate::core::sign_in::SignInLinks;
use crate::core::tail::{SharedReads, Tails};
use crate::core::{closed_error, task_error};
use crate::options::Durability;
use crate::port::Range;
use crate::record::Frame;

#[derive(Debug)]
pub struct SqliteStore {
    context: Arc<Context>,
    jobs: Mutex<Option<mpsc::Sender<QueuedJob>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    flights: SharedReads<(ThreadKey, Range, u64), Vec<Arc<Frame>>>,
}

#[derive(Debug)]
struct Context {
    path: PathBuf,
    reader: Arc<dyn ReadOriginal>,
    durability: Durability,
    health: Arc<Health>,
    readers: Readers,
    tails: Arc<Tails>,
    sign_in_links: SignInLinks,
    hot: RowCache,
    heads: DurableHeads,
    retention: RetentionBacklog,
    keys: KeyCounters,
    offered: QueueSignal,
    /// Space in the writer's queue, in permits of [`PERMIT_BYTES`].
    queue_room: Arc<Semaphore>,
    commits: AtomicU64,
    frames: AtomicU64,
    inherited: Arc<InheritedLog>,
    losses: KnownLosses,
}

#[derive(Debug)]
struct KeyCounters {
    thread: AtomicI64,
    run: AtomicI64,
    checkpoint: AtomicI64,
}

// === impl SqliteStore ===

impl SqliteStore {
    /// Sends a job to the writer and waits for its result.
    async fn write<T: Send + 'static>(
        &self,
        kind: WorkKind,
        run: impl FnMut(&mut WriteContext<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        let (job, value) = task(kind, run);
        self.send(job).await?;
        self.outcome(value).await
    }

    /// As [`Self::write`], for a change of [`crate::sql`] that needs only the writer's connection.
    async fn write_kind<T: Send + 'static>(
        &self,
        kind: WorkKind,
        mut change: impl AsyncFnMut(&Connection) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        self.write(kind, move |writer: &mut WriteContext<'_>| run_to_end(change(writer.conn))).await
    }

    /// As [`Self::write_kind`], for a small change that is made even while the disk is full.
    async fn write_vital<T: Send + 'static>(
        &self,
        change: impl AsyncFnMut(&Connection) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        self.write_kind(WorkKind::VITAL, change).await
    }

    /// Waits for the writer's result of a job.
    async fn outcome<T>(&self, value: oneshot::Receiver<Result<T>>) -> Result<T> {
        value.await.unwrap_or_else(|_| Err(self.context.writer_gone()))
    }

    /// Runs a look-up on a reader's connection, off the async threads.
    async fn read<T: Send + 'static>(
        &self,
        look_up: impl FnOnce(&Connection, &Context) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        self.context.read(look_up).await
    }

    /// As [`Self::read`], for a look-up of [`crate::sql`].
    async fn look_up<T: Send + 'static>(
        &self,
        look_up: impl AsyncFnOnce(&Connection, &Health) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        self.read(move |conn, context| run_to_end(look_up(conn, &context.health))).await
    }

    /// Queues a job. Waits while the queue is full.
    async fn send(&self, job: Job) -> Result<()> {
        let health = &self.context.health;
        // A full store is probed at most once per interval. Other writes are refused without a probe.
        if !(health.state() == StoreState::Full && health.probe_is_due()) {
            health.check_write(job.is_vital())?;
        }
        let sender = lock(&self.jobs).clone().ok_or_else(closed_error)?;
        let room = match job.permits() {
            0 => None,
            permits => {
                let room = Arc::clone(&self.context.queue_room).acquire_many_owned(permits);
                Some(room.await.map_err(|_| closed_error())?)
            }
        };
        sender.send(QueuedJob { job, room }).await.map_err(|_| self.context.writer_gone())
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // Ends the queue on which the writer waits. Otherwise the join below would not return.
        drop(lock(&self.jobs).take());
        // The file's lock is released only when the writer has ended, which takes at most one commit and a checkpoint.
        if let Some(writer) = lock(&self.writer).take()
            && writer.join().is_err()
        {
            tracing::error!("the writer panicked");
        }
    }
}

// === impl Context ===

impl Context {
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        look_up: impl FnOnce(&Connection, &Self) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T> {
        self.health.check_read()?;
        let permit = self.readers.permit().await?;
        let context = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let found = context.readers.run(|conn| look_up(conn, &context));
            found.map_err(|fail| context.health.settle(fail))
        });
        task.await.unwrap_or_else(|error| Err(task_error(&error)))
    }

    /// The error of a write after the writer has ended.
    fn writer_gone(&self) -> Error {
        self.health.error(self.health.state()).unwrap_or_else(closed_error)
    }
}

// === impl KeyCounters ===

impl KeyCounters {
    fn next(counter: &AtomicI64) -> i64 {
        counter.fetch_add(1, Ordering::Relaxed)
    }
}
