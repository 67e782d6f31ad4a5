//! The writer's part in the care of the write-ahead log. The checkpointer keeps the log short; this module does the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, MAIN_DB};

use super::Context;
use super::checkpoint::{BACKSTOP_PAGES, Checkpointer, NUDGE_PAGES, is_harmless};
use super::commit_record::RecordFile;
use super::error::StoreState;
use super::wal_file::LogFile;

#[derive(Debug)]
pub(super) struct LogUpkeep<'c> {
    conn: &'c Connection,
    context: Arc<Context>,
    checkpointer: Checkpointer,
    file: LogFile,
    /// Pages of the log, counted by SQLite at every commit.
    pages: Arc<AtomicUsize>,
    record: Arc<RecordFile>,
    nudged_at: usize,
    stopped_at: usize,
}

// === impl LogUpkeep ===

impl<'c> LogUpkeep<'c> {
    pub(super) fn new(
        conn: &'c Connection,
        context: &Arc<Context>,
        checkpointer: Checkpointer,
        pages: Arc<AtomicUsize>,
        record: Arc<RecordFile>,
    ) -> Self {
        let file = LogFile::of(&context.path);
        let context = Arc::clone(context);
        Self { conn, context, checkpointer, file, pages, record, nudged_at: 0, stopped_at: 0 }
    }

    /// The number of the log's pages after the last commit.
    pub(super) fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// Does what the log needs between two transactions.
    pub(super) fn maintain(&mut self) {
        if self.context.health.state() >= StoreState::ReadOnly {
            // A log that could not be synchronised must not be moved into the database.
            return;
        }
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.nudged_at {
            // The log started over, so its thresholds do too.
            (self.nudged_at, self.stopped_at) = (0, 0);
        }
        // Between two transactions the log does not grow, so all of it can be moved and it can start over.
        if self.checkpointer.is_nearly_done() {
            self.checkpoint(CheckpointMode::PASSIVE);
        } else if pages >= BACKSTOP_PAGES && pages >= self.stopped_at + NUDGE_PAGES {
            // Noted before the try: if a reader holds the log, the next try waits until the log has grown further.
            self.stopped_at = pages;
            self.checkpoint(CheckpointMode::PASSIVE);
        } else if pages >= self.nudged_at + NUDGE_PAGES {
            self.nudged_at = pages;
            self.checkpointer.nudge();
        }
        // On a full disk, the zeros would take the space that vital jobs need.
        if self.context.health.state() == StoreState::Healthy
            && let Err(error) = self.file.grow_ahead(pages)
        {
            tracing::debug!(%error, "the log's file was not lengthened ahead");
        }
    }

    pub(super) fn checkpoint(&self, mode: CheckpointMode) {
        if self.context.health.state() >= StoreState::ReadOnly {
            return;
        }
        // Read before the move: `note_moved` then sees whether the log started over meanwhile.
        let log = self.record.log_salts();
        match self.conn.wal_checkpoint_v2(Some(MAIN_DB), mode) {
            Ok((_, moved)) => self.record.note_moved(log, u32::try_from(moved).unwrap_or(0)),
            Err(error) if is_harmless(&error) => {}
            // No caller waits for a checkpoint, and `settle` has noted the failure.
            Err(error) => drop(self.context.health.settle(error.into())),
        }
    }

    /// Empties the log soon, because content was removed that the log must not keep.
    pub(super) fn erase(&self) {
        self.checkpointer.erase();
    }

    pub(super) fn end(self) {
        self.checkpointer.end();
    }
}
