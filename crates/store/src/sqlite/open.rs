//! Opening the file: lock, schema, sweep, keys, threads.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Code, Error, Result};

use super::checkpoint::{Checkpointer, InheritedLog};
use super::commit_position::CommitPosition;
use super::commit_record::{self, CommitRecord, RecordFile, RecordedCommits};
use super::connection::{self, Readers};
use super::disk_space::DiskSpace;
use super::error::{Health, SqliteError, StoreState};
use super::file::{self, FileLock, Reserve};
use super::heads::DurableHeads;
use super::known_losses::KnownLosses;
use super::log_loss::LogExamination;
use super::retention::RetentionBacklog;
use super::row_cache::RowCache;
use super::schema;
use super::writer::{CommitLog, DiskUpkeep, WriterThread};
use super::{
    Context, KeyCounters, SqliteStore, backup, blob, import, inspect, remove, thread_removal,
};
use crate::core::batch::queue_permits;
use crate::core::queue::QueueSignal;
use crate::core::sign_in::SignInLinks;
use crate::core::tail::{SharedReads, Tails};
use crate::core::task_error;
use crate::options::{Durability, Options};

/// More keys than a store can give: a million a second for a century.
const MAX_KEY: i64 = 1 << 52;

impl SqliteStore {
    /// Opens the store in this file, and creates the file if it does not exist. Fails as [`crate::open()`].
    pub async fn open(path: PathBuf, options: Options) -> Result<Self> {
        let runtime = Handle::current();
        let opening = tokio::task::spawn_blocking(move || open(&path, &options, runtime));
        opening.await.unwrap_or_else(|error| Err(task_error(&error)))
    }
}

fn open(path: &Path, options: &Options, runtime: Handle) -> Result<SqliteStore> {
    let lock = FileLock::take(path)?;
    let path = lock.path().to_owned();
    if let Some(left) = backup::unfinished(&path) {
        let message = format!("the restore into '{}' was interrupted", path.display());
        let hint = format!(
            "run `trilogue restore` again, or remove '{}' to begin an empty store",
            left.display()
        );
        return Err(Error::new(Code::InvalidRequest, message).hint(hint));
    }
    let is_restored = backup::finish_restore(&path)?;
    let had_leftovers = backup::remove_leftovers(&path)?;
    if is_restored {
        tracing::warn!(store = %path.display(), "finished a restore that had been interrupted");
    } else if had_leftovers {
        tracing::warn!(
            store = %path.display(),
            "a restore was interrupted and changed nothing: run `trilogue restore` again if the backup is needed"
        );
    }
    if let Some(draft) = import::unfinished(&path) {
        let message = format!("the copy into '{}' was interrupted", path.display());
        let hint = format!(
            "run `trilogue copy` again, or remove '{}' to begin an empty store",
            draft.display()
        );
        return Err(Error::new(Code::InvalidRequest, message).hint(hint));
    }
    file::check_not_lost(&path, commit_record::SUFFIX)?;
    file::create(&path)?;
    file::check_single_name(&path)?;
    let index = file::sibling_path(&path, "-shm");
    file::check_readable(&index).map_err(|error| file::cannot("read", &index, &error))?;
    let boot = commit_record::boot_id();
    let recorded = commit_record::read(&path, boot);
    let examination = LogExamination::of(&path, &recorded)?;
    let inherited = Arc::new(InheritedLog::of(&path));
    let health = Arc::new(Health::new(&path));
    let settle = |fail: SqliteError| opening_error(&health, fail);
    let mut conn = connection::writer(&path, options).map_err(settle)?;
    let found = CommitPosition::read(&conn).map_err(settle)?;
    let loss = examination.find_loss(&recorded, found);
    schema::migrate(&mut conn, schema::MIGRATIONS).map_err(settle)?;
    let mut recorded = recorded;
    match &loss {
        Some(loss) => {
            loss.report(&mut conn, &path, &options.reader).map_err(settle)?;
            // A later start must not find the same loss again.
            commit_record::remove(&path)
                .and_then(|()| file::sync_directory(&path))
                .map_err(|error| file::cannot("remove the record of", &path, &error))?;
            recorded = RecordedCommits::default();
        }
        None => examination.discard_copy(),
    }
    let losses = KnownLosses::load(&conn, &health, loss.is_some()).map_err(settle)?;
    let record_file = Arc::new(RecordFile::open(&path, boot));
    let log_pages = connection::count_log(&mut conn).map_err(settle)?;
    let (log, pages) = (Arc::clone(&inherited), Arc::clone(&log_pages));
    let checkpointer =
        Checkpointer::start(&path, Arc::clone(&health), pages, log, Arc::clone(&record_file))
            .map_err(settle)?;
    inherited.wait(options.start_wait);
    let inspection = inspect::start(&path, &health, &log_pages, &inherited).map_err(settle)?;
    let swept = blob::sweep(&conn).map_err(settle)?;
    if swept > 0 {
        tracing::info!(swept, "removed content that no frame names");
    }
    for thread in thread_removal::unfinished(&conn).map_err(settle)? {
        health.hidden.hide(thread);
    }
    let keys = KeyCounters::read(&conn).map_err(settle)?;
    let position = CommitPosition::read(&conn).map_err(settle)?;
    let mut room = DiskSpace::new(Reserve::new(&path, options.reserve_bytes), options);
    room.apply_usual_limit(&conn).map_err(settle)?;
    if !room.restore(&conn).map_err(settle)? {
        health.worsen(StoreState::Full, "");
        room.release(&conn).map_err(settle)?;
    }
    let context = Arc::new(Context {
        reader: Arc::clone(&options.reader),
        durability: options.durability,
        health: Arc::clone(&health),
        readers: Readers::new(&path, options),
        tails: Arc::new(Tails::new(options.tail_cache_bytes)),
        sign_in_links: SignInLinks::default(),
        hot: RowCache::default(),
        heads: DurableHeads::default(),
        retention: RetentionBacklog::default(),
        keys,
        offered: QueueSignal::default(),
        queue_room: Arc::new(Semaphore::new(queue_permits(options.write_queue_bytes))),
        commits: AtomicU64::new(0),
        frames: AtomicU64::new(0),
        inherited,
        losses,
        path,
    });
    let is_durable = options.durability == Durability::Fsync;
    let record = CommitRecord::new(Arc::clone(&record_file), &recorded, is_durable);
    let beside = DiskUpkeep { room, checkpointer, inspection, log_pages, record_file };
    let commits = CommitLog { position, record };
    let start = WriterThread {
        conn,
        lock,
        context: Arc::clone(&context),
        runtime,
        upkeep: beside,
        commits,
    };
    let (jobs, inbox) = mpsc::channel(options.write_queue.max(1));
    let thread = std::thread::Builder::new()
        .name("trilogue-writer".to_owned())
        .spawn(move || start.run(inbox))
        .map_err(|error| file::cannot("start a thread for", &context.path, &error))?;
    Ok(SqliteStore {
        context,
        jobs: Mutex::new(Some(jobs)),
        writer: Mutex::new(Some(thread)),
        flights: SharedReads::new(),
    })
}

/// A forged key would leave no number for the next row.
fn check_key(kind: &str, last: i64) -> Result<(), SqliteError> {
    if (0..MAX_KEY).contains(&last) {
        return Ok(());
    }
    let message =
        format!("the store is damaged: a {kind} has the key {last}, which no store gives");
    let error = Error::new(Code::StoreCorrupt, message);
    Err(error.hint("restore a backup: trilogue restore BACKUP --to STORE --force").into())
}

fn opening_error(health: &Health, fail: SqliteError) -> Error {
    health.settle(fail)
}

// === impl KeyCounters ===

impl KeyCounters {
    /// The last given key of each kind.
    pub(super) fn last(&self) -> [(&'static str, i64); 3] {
        [("thread", &self.thread), ("run", &self.run), ("checkpoint", &self.checkpoint)]
            .map(|(kind, next)| (kind, next.load(Ordering::Relaxed) - 1))
    }

    /// The greatest thread key that was given.
    pub(super) fn newest_thread(&self) -> ThreadKey {
        ThreadKey(self.thread.load(Ordering::Relaxed) - 1)
    }

    /// Reads the last key of each kind. Errors: `store_corrupt` for a key that no store gives.
    pub(super) fn read(conn: &Connection) -> Result<Self, SqliteError> {
        let next = |kind: &str, sql: &str| -> Result<AtomicI64, SqliteError> {
            let stored: Option<i64> = conn.query_row(sql, [], |row| row.get(0))?;
            let last = stored.unwrap_or(0).max(remove::removed_key(conn, kind)?);
            check_key(kind, last)?;
            Ok(AtomicI64::new(last + 1))
        };
        let queued: Option<i64> =
            conn.query_row("SELECT max(seq) FROM sqlite_sequence", [], |row| row.get(0))?;
        check_key("queue item", queued.unwrap_or(0))?;
        Ok(Self {
            thread: next("thread", "SELECT max(key) FROM threads")?,
            run: next("run", "SELECT max(key) FROM runs")?,
            checkpoint: next("checkpoint", "SELECT max(key) FROM checkpoints")?,
        })
    }
}
