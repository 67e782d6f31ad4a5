//! The checkpointer: moves the write-ahead log into the database, beside the writer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, MAIN_DB};

use super::connection;
use super::fault::{Fail, Health, State};

/// The checkpointer is woken each time the log has grown by this many pages.
pub(super) const NUDGE_PAGES: usize = 4_000;
/// The writer checkpoints by itself when the log has this many pages: the checkpointer does not keep up, or the log never rests long enough to start over.
pub(super) const BACKSTOP_PAGES: usize = 16_000;
/// How long after an erasure the log is emptied, so that erasures in a row share it; and how often that is tried again.
const ERASE_DELAY: Duration = Duration::from_millis(500);

/// The checkpointer's handle; it ends with it.
#[derive(Debug)]
pub(super) struct Checkpointer {
    wake: Option<SyncSender<()>>,
    erase: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Worker {
    conn: Connection,
    health: Arc<Health>,
    /// Whether removed content must leave the log soon.
    erase: Arc<AtomicBool>,
}

/// Whether a checkpoint that failed so can simply be made later.
pub(super) fn is_harmless(error: &rusqlite::Error) -> bool {
    // A full disk is met, and named, by the next append.
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull)
    )
}

// === impl Checkpointer ===

impl Checkpointer {
    pub(super) fn start(path: &Path, health: Arc<Health>) -> Result<Self, Fail> {
        let erase = Arc::new(AtomicBool::new(false));
        let (wake, woken) = sync_channel(1);
        let worker =
            Worker { conn: connection::checkpointer(path)?, health, erase: Arc::clone(&erase) };
        let thread = std::thread::Builder::new()
            .name("trilogue-checkpoint".to_owned())
            .spawn(move || worker.run(&woken))
            .map_err(|error| super::file::cannot("start a thread for", path, &error))?;
        Ok(Self { wake: Some(wake), erase, thread: Some(thread) })
    }

    /// The log has grown.
    pub(super) fn nudge(&self) {
        if let Some(wake) = &self.wake {
            // When a nudge waits already, that one does.
            let _ = wake.try_send(());
        }
    }

    /// Content was removed: the log must not keep it.
    pub(super) fn erase(&self) {
        self.erase.store(true, Ordering::Release);
        self.nudge();
    }

    /// Ends the thread and its connection.
    pub(super) fn end(mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpointer panicked");
        }
    }
}

// === impl Worker ===

impl Worker {
    fn run(self, woken: &Receiver<()>) {
        loop {
            if !self.erase.load(Ordering::Acquire) {
                let Ok(()) = woken.recv() else { return };
            }
            if self.erase.load(Ordering::Acquire) {
                match woken.recv_timeout(ERASE_DELAY) {
                    Err(RecvTimeoutError::Disconnected) => return,
                    Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                }
            }
            if self.health.state() as u8 >= State::ReadOnly as u8 {
                // What could not be synchronised is not touched any more; wait for the end.
                self.erase.store(false, Ordering::Release);
                continue;
            }
            self.checkpoint();
        }
    }

    fn checkpoint(&self) {
        let erases = self.erase.swap(false, Ordering::AcqRel);
        let mode = if erases { CheckpointMode::TRUNCATE } else { CheckpointMode::PASSIVE };
        match self.conn.wal_checkpoint_v2(Some(MAIN_DB), mode) {
            Ok(_) => {}
            Err(error) if is_harmless(&error) => {
                if erases {
                    self.erase.store(true, Ordering::Release);
                }
            }
            Err(error) => drop(self.health.settle(error.into())),
        }
    }
}
