//! The checkpointer: moves the write-ahead log into the database, in parallel with the writer.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, MAIN_DB};

use super::commit_record::RecordFile;
use super::connection;
use super::error::{Health, SqliteError, StoreState, lock};

/// The checkpointer is woken each time the log has grown by this many pages.
pub(super) const NUDGE_PAGES: usize = 2_000;
/// The writer checkpoints by itself when the log has this many pages: then the checkpointer does not keep up, or the log never rests long enough to start over.
pub(super) const BACKSTOP_PAGES: usize = 16_000;
/// If only this many pages of the log are left, the writer moves them: the log can start over only while the writer does not write.
const LAST_PAGES: usize = 128;
/// How long after an erasure the log is emptied, so that consecutive erasures share it; also the interval between retries.
const ERASE_DELAY: Duration = Duration::from_millis(500);

/// A log with more bytes than this is moved into the database when the store opens.
const LONG_LOG_BYTES: u64 = 8 * 1024 * 1024;
/// How often a start tries to move the last life's log while another process reads the database: that process's snapshot keeps the log from being emptied.
const MAX_BUSY_TRIES: usize = 4;

/// The checkpointer's handle; dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Checkpointer {
    wake: Option<SyncSender<()>>,
    erase: Arc<AtomicBool>,
    nearly: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The log that the last life left. It is moved into the database before anything else grows it, so that a series of sudden ends does not add log to log.
#[derive(Debug)]
pub(super) struct InheritedLog {
    bytes: u64,
    /// Whether it is still being moved.
    is_waiting: Mutex<bool>,
    moved: Condvar,
}

struct CheckpointWorker {
    conn: Connection,
    health: Arc<Health>,
    /// Whether removed content must leave the log soon.
    erase: Arc<AtomicBool>,
    /// Whether few pages are left in the log.
    nearly: Arc<AtomicBool>,
    /// Pages of the log, counted at every commit.
    pages: Arc<AtomicUsize>,
    inherited: Arc<InheritedLog>,
    record: Arc<RecordFile>,
}

/// Whether a checkpoint that failed with this error can simply be repeated later.
pub(super) fn is_harmless(error: &rusqlite::Error) -> bool {
    // The next append finds the full disk and reports it.
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull)
    )
}

// === impl Checkpointer ===

impl Checkpointer {
    /// `pages` counts the pages of the log.
    pub(super) fn start(
        path: &Path,
        health: Arc<Health>,
        pages: Arc<AtomicUsize>,
        inherited: Arc<InheritedLog>,
        record: Arc<RecordFile>,
    ) -> Result<Self, SqliteError> {
        let erase = Arc::new(AtomicBool::new(false));
        let nearly = Arc::new(AtomicBool::new(false));
        let (wake, woken) = sync_channel(1);
        let worker = CheckpointWorker {
            conn: connection::checkpointer(path)?,
            health,
            erase: Arc::clone(&erase),
            nearly: Arc::clone(&nearly),
            pages,
            inherited,
            record,
        };
        let thread = std::thread::Builder::new()
            .name("trilogue-checkpoint".to_owned())
            .spawn(move || worker.run(&woken))
            .map_err(|error| super::file::cannot("start a thread for", path, &error))?;
        Ok(Self { wake: Some(wake), erase, nearly, thread: Some(thread) })
    }

    /// Whether so few pages are left that the writer should move them. Returns `true` once per run of the checkpointer.
    pub(super) fn is_nearly_done(&self) -> bool {
        // The writer asks after each commit, so a cheap load comes before the swap.
        self.nearly.load(Ordering::Relaxed) && self.nearly.swap(false, Ordering::AcqRel)
    }

    pub(super) fn nudge(&self) {
        if let Some(wake) = &self.wake {
            // One waiting nudge is enough.
            let _ = wake.try_send(());
        }
    }

    /// Empties the log soon, because content was removed that the log must not keep.
    pub(super) fn erase(&self) {
        // One wake-up starts the delay; more would look like a log that has grown.
        if !self.erase.swap(true, Ordering::AcqRel) {
            self.nudge();
        }
    }

    pub(super) fn end(mut self) {
        // The thread waits on this channel: without its end, the join would never return.
        self.wake = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpointer panicked");
        }
    }
}

// === impl InheritedLog ===

impl InheritedLog {
    /// Inspects the log of the store in this file, before the store is opened.
    pub(super) fn of(path: &Path) -> Self {
        let log = std::fs::metadata(super::file::sibling_path(path, "-wal"));
        Self::with_bytes(log.map_or(0, |log| log.len()))
    }

    fn with_bytes(bytes: u64) -> Self {
        Self { bytes, is_waiting: Mutex::new(bytes > LONG_LOG_BYTES), moved: Condvar::new() }
    }

    pub(super) fn is_waiting(&self) -> bool {
        *lock(&self.is_waiting)
    }

    /// Waits until the log has been moved, at most for this duration.
    pub(super) fn wait(&self, at_most: Duration) {
        let waiting = lock(&self.is_waiting);
        if *waiting {
            tracing::info!(
                bytes = self.bytes,
                "the write-ahead log of the last life is moved into the database"
            );
        }
        // A poisoned lock is harmless: it guards only a flag.
        // After the time limit, the start continues and the rest is moved while the server runs.
        drop(self.moved.wait_timeout_while(waiting, at_most, |waiting| *waiting));
    }

    /// Why the store is not ready. `None` once the log is moved.
    pub(super) fn reason(&self) -> Option<String> {
        self.is_waiting().then(|| {
            let mib = self.bytes / (1024 * 1024);
            format!("{mib} MiB of write-ahead log are being moved into the database")
        })
    }

    fn end(&self) {
        *lock(&self.is_waiting) = false;
        self.moved.notify_all();
    }
}

// === impl CheckpointWorker ===

impl CheckpointWorker {
    fn run(self, woken: &Receiver<()>) {
        self.move_inherited(woken);
        // Also after a failure, because a start waits for this.
        self.inherited.end();
        loop {
            // While an erasure waits for its retry, the thread must not sleep until the next nudge.
            if !self.erase.load(Ordering::Acquire) {
                let Ok(()) = woken.recv() else { return };
            }
            if self.erase.load(Ordering::Acquire) && !self.gather_erasures(woken) {
                return;
            }
            if self.health.state() >= StoreState::ReadOnly {
                // A log that could not be synchronised must not be touched again. Wait for the end.
                self.erase.store(false, Ordering::Release);
                continue;
            }
            self.checkpoint();
        }
    }

    /// Waits for erasures that can share the emptying of the log, and moves a log that grows meanwhile. Returns `false` when the store closes.
    fn gather_erasures(&self, woken: &Receiver<()>) -> bool {
        let until = Instant::now() + ERASE_DELAY;
        loop {
            match woken.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(()) => self.move_pages(),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    /// Moves the log of the last life, most of it in parallel with the writer, and empties it.
    fn move_inherited(&self, woken: &Receiver<()>) {
        let mut tries = 0;
        while self.inherited.is_waiting() && self.health.state() < StoreState::ReadOnly {
            self.move_pages();
            match self.conn.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::TRUNCATE) {
                Ok(_) => return,
                Err(error) if is_harmless(&error) && tries < MAX_BUSY_TRIES => tries += 1,
                Err(error) if is_harmless(&error) => {
                    tracing::warn!(%error, "the write-ahead log of the last life stays long; another process may read the store");
                    return;
                }
                // This thread has no caller, and `settle` has noted the failure.
                Err(error) => return drop(self.health.settle(error.into())),
            }
            if let Err(RecvTimeoutError::Disconnected) = woken.recv_timeout(ERASE_DELAY) {
                return;
            }
        }
    }

    fn checkpoint(&self) {
        // Cleared before the checkpoint: a removal that commits meanwhile sets it again.
        let erases = self.erase.swap(false, Ordering::AcqRel);
        // In parallel with the writer, which waits only while the rest is moved.
        self.move_pages();
        if !erases || self.health.state() >= StoreState::ReadOnly {
            return;
        }
        match self.conn.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::TRUNCATE) {
            Ok(_) => {}
            // The content must still leave the log, so `run` tries again after the delay.
            Err(error) if is_harmless(&error) => self.erase.store(true, Ordering::Release),
            // No caller waits, and `settle` has noted the failure.
            Err(error) => drop(self.health.settle(error.into())),
        }
    }

    /// Moves the log's pages, and repeats for pages that arrive meanwhile, as long as their number at least halves.
    fn move_pages(&self) {
        let mut before = usize::MAX;
        // A log that could not be synchronised must not be moved, and the writer may find that out at any time.
        while self.health.state() < StoreState::ReadOnly {
            // Read before the move: `note_moved` then sees whether the log started over meanwhile.
            let log = self.record.log_salts();
            let moved = match self.conn.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::PASSIVE) {
                Ok((_, moved)) => {
                    self.record.note_moved(log, u32::try_from(moved).unwrap_or(0));
                    usize::try_from(moved).unwrap_or(0)
                }
                Err(error) if is_harmless(&error) => return,
                Err(error) => return drop(self.health.settle(error.into())),
            };
            let left = self.pages.load(Ordering::Relaxed).saturating_sub(moved);
            if left <= LAST_PAGES {
                self.nearly.store(true, Ordering::Release);
                return;
            }
            if left > before / 2 {
                return;
            }
            before = left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_could_not_be_synchronised_is_not_moved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "journal_mode", "wal").unwrap();
        conn.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        conn.execute_batch("CREATE TABLE things (name TEXT)").unwrap();
        let health = Arc::new(Health::new(&path));
        let worker = CheckpointWorker {
            conn: connection::checkpointer(&path).unwrap(),
            health: Arc::clone(&health),
            erase: Arc::default(),
            nearly: Arc::default(),
            pages: Arc::default(),
            inherited: Arc::new(InheritedLog::with_bytes(0)),
            record: Arc::new(RecordFile::open(&path, [0; 16])),
        };
        let database = || std::fs::read(&path).unwrap();
        let empty = database();
        worker.move_pages();
        let moved = database();
        assert!(moved != empty);
        conn.execute_batch("INSERT INTO things VALUES ('one')").unwrap();
        health.worsen(StoreState::ReadOnly, "a test says so");
        worker.move_pages();
        assert!(database() == moved);
    }
}
