//! Inspection at the start: if SQLite's own structures are damaged, the store stops before it answers from them.
//!
//! A damaged page of an index can make a row look as if it were not there, and no checksum of a row shows that.
//! SQLite compares its trees and indexes. A finding about a row that is itself damaged quarantines the row's thread and nothing else.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, InterruptHandle, OptionalExtension};

use trilogue_domain::ThreadKey;
use trilogue_domain::port::ReadOriginal;

use super::checkpoint::{BACKSTOP_PAGES, InheritedLog};
use super::error::{Health, SqliteError};
use super::row::one;
use super::{blob, connection, scan};
use crate::core::table::TableRow;
use crate::record::NoOriginals;
use crate::rows::{
    BindingRow, CheckpointRow, ConfigurationRow, IdempotencyRow, InterruptRow, MessageRow,
    QueueItem, RunRow, ThreadRow, TokenRow,
};

/// A store of at most this many bytes is inspected before it opens. A larger one is inspected in the background.
const AT_ONCE_BYTES: u64 = 4 * 1024 * 1024;
/// The most findings per table.
const MAX_FINDINGS: usize = 1_000;
/// The log's length is checked after this many steps of SQLite; a step is a page or a row.
const WATCH_STEPS: i32 = 1_000;
/// How long an inspection that gave way waits before it checks the log again.
const GIVE_WAY: Duration = Duration::from_millis(50);
/// How often it checks before it continues anyway.
const MAX_GIVEN_WAY: usize = 40;

/// A running inspection; dropping it ends the thread.
pub(super) struct Inspection {
    interrupt: Option<InterruptHandle>,
    /// Dropped to end the inspection.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Limits how long an inspection may hold the log: pages after its snapshot cannot be moved, so the log grows meanwhile.
struct LogLimit {
    /// Pages of the log, counted at every commit.
    pages: Arc<AtomicUsize>,
    /// The number of pages at which an inspection gives way. It doubles each time, so that every table is inspected to its end eventually.
    most: Arc<AtomicUsize>,
    inherited: Arc<InheritedLog>,
    /// Disconnected when the inspection must end.
    stop: Receiver<()>,
}

/// Inspects the store, at once or in the background.
pub(super) fn start(
    path: &Path,
    health: &Arc<Health>,
    pages: &Arc<AtomicUsize>,
    inherited: &Arc<InheritedLog>,
) -> Result<Inspection, SqliteError> {
    let mut conn = connection::reader(path, 256)?;
    let size = std::fs::metadata(path).map_or(0, |file| file.len());
    if size <= AT_ONCE_BYTES {
        inspect(&conn, health, None)?;
        return Ok(Inspection { interrupt: None, stop: None, thread: None });
    }
    let interrupt = conn.get_interrupt_handle();
    let (sender, stop) = mpsc::sync_channel(0);
    let log = LogLimit::new(pages, inherited, stop);
    log.watch(&mut conn)?;
    let health = Arc::clone(health);
    let thread = std::thread::Builder::new()
        .name("trilogue-inspect".to_owned())
        .spawn(move || match inspect(&conn, &health, Some(&log)) {
            Err(SqliteError::Sql(error)) if was_interrupted(&error) => {}
            // No caller waits, and `settle` has noted the failure.
            Err(fail) => drop(health.settle(fail)),
            Ok(()) => {}
        })
        .map_err(|error| super::file::cannot("start a thread for", path, &error))?;
    Ok(Inspection { interrupt: Some(interrupt), stop: Some(sender), thread: Some(thread) })
}

/// Inspects table by table, so that no snapshot is held for long.
fn inspect(conn: &Connection, health: &Health, log: Option<&LogLimit>) -> Result<(), SqliteError> {
    let tables: Vec<String> = conn
        .prepare(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
        )?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for table in tables {
        let findings = loop {
            if log.is_some_and(|log| !log.wait()) {
                return Ok(());
            }
            match (findings(conn, &table), log) {
                (Err(error), Some(log)) if was_interrupted(&error) => log.give_way(),
                (found, _) => break found?,
            }
        };
        judge(conn, health, &table, &findings)?;
    }
    Ok(())
}

/// What the check of a table found; at most [`MAX_FINDINGS`]. SQLite puts what it finds in one tree into one row, up to a hundred lines, so each line is a finding.
fn findings(conn: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    // The names are constants of this crate; a pragma takes no bound parameters.
    let mut check = conn.prepare(&format!("PRAGMA integrity_check({table})"))?;
    let mut findings = Vec::new();
    for row in check.query_map([], |row| row.get::<_, String>(0))? {
        // A line with asterisks only names the database.
        let row = row?;
        let lines = row.lines().filter(|line| !line.starts_with("***"));
        findings.extend(lines.take(MAX_FINDINGS - findings.len()).map(str::to_owned));
        if findings.len() == MAX_FINDINGS {
            break;
        }
    }
    Ok(findings)
}

/// Decides whether a finding is damage of a row or of the structures around it.
fn judge(
    conn: &Connection,
    health: &Health,
    table: &str,
    findings: &[String],
) -> Result<(), SqliteError> {
    let mut has_damaged_row = false;
    if let Some(fail) = findings.iter().find_map(|finding| scan::read_failure(finding)) {
        return Err(fail);
    }
    for finding in findings {
        let is_of_row = match row_of(finding) {
            Some(rowid) => is_damaged(conn, health, table, rowid)?,
            // A value of another type than its column's. The damage is found when the row is read.
            None => finding.contains(" value in "),
        };
        // Counts differ if a row is missing; a known missing row explains them.
        let is_count = finding.starts_with("wrong # of entries");
        has_damaged_row |= is_of_row;
        if finding != "ok" && !is_of_row && !(is_count && has_damaged_row) {
            return Err(health.settle_damage(finding).into());
        }
    }
    Ok(())
}

fn row_of(finding: &str) -> Option<i64> {
    finding.strip_prefix("row ")?.split(' ').next()?.parse().ok()
}

/// Whether the row itself is damaged. Its thread is then quarantined.
fn is_damaged(
    conn: &Connection,
    health: &Health,
    table: &str,
    rowid: i64,
) -> Result<bool, SqliteError> {
    match table {
        "threads" => check::<ThreadRow>(conn, health, rowid),
        "runs" => check::<RunRow>(conn, health, rowid),
        "messages" => check::<MessageRow>(conn, health, rowid),
        "checkpoints" => check::<CheckpointRow>(conn, health, rowid),
        "interrupts" => check::<InterruptRow>(conn, health, rowid),
        "bindings" => check::<BindingRow>(conn, health, rowid),
        "idempotency" => check::<IdempotencyRow>(conn, health, rowid),
        "queue" => check::<QueueItem>(conn, health, rowid),
        "configurations" => check::<ConfigurationRow>(conn, health, rowid),
        "tokens" => check::<TokenRow>(conn, health, rowid),
        "frames" => check_frame(conn, health, rowid),
        "blobs" => check_blob(conn, health, rowid),
        _ => Ok(false),
    }
}

fn check<R: TableRow>(conn: &Connection, health: &Health, rowid: i64) -> Result<bool, SqliteError> {
    match one::<R>(conn, "WHERE rowid = ?1", [rowid]) {
        Ok(_) => Ok(false),
        Err(fail @ SqliteError::Damaged(..)) => {
            // The error is for callers. `settle` has closed the damaged thread.
            drop(health.settle(fail));
            Ok(true)
        }
        Err(fail) => Err(fail),
    }
}

fn check_frame(conn: &Connection, health: &Health, rowid: i64) -> Result<bool, SqliteError> {
    let sql = "SELECT thread, run, first, last, first_run, body FROM frames WHERE id = ?1";
    let reader: Arc<dyn ReadOriginal> = Arc::new(NoOriginals);
    let found = conn
        .prepare_cached(sql)?
        .query_row([rowid], |row| {
            let thread = ThreadKey(row.get(0)?);
            Ok(crate::sql::frames::stored(row, thread, &reader))
        })
        .optional()?;
    match found {
        Some(Err(fail @ SqliteError::Damaged(..))) => {
            // The error is for callers. `settle` has closed the damaged thread.
            drop(health.settle(fail));
            Ok(true)
        }
        Some(Err(fail)) => Err(fail),
        Some(Ok(_)) | None => Ok(false),
    }
}

/// Checks a blob. A damaged one affects every thread that names it.
fn check_blob(conn: &Connection, health: &Health, key: i64) -> Result<bool, SqliteError> {
    if blob::is_whole(conn, key)? {
        return Ok(false);
    }
    let mut statement = conn.prepare("SELECT DISTINCT thread FROM blob_refs WHERE blob = ?1")?;
    let threads = statement.query_map([key], |row| row.get(0).map(ThreadKey))?;
    for thread in threads {
        health.quarantine.add(thread?, "a stored blob does not match its hash");
    }
    Ok(true)
}

fn was_interrupted(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)
}

// === impl LogLimit ===

impl LogLimit {
    fn new(pages: &Arc<AtomicUsize>, inherited: &Arc<InheritedLog>, stop: Receiver<()>) -> Self {
        let most = Arc::new(AtomicUsize::new(BACKSTOP_PAGES));
        Self { pages: Arc::clone(pages), most, inherited: Arc::clone(inherited), stop }
    }

    /// Interrupts a statement of this connection when the log becomes too long.
    fn watch(&self, conn: &mut Connection) -> Result<(), SqliteError> {
        let (pages, most) = (Arc::clone(&self.pages), Arc::clone(&self.most));
        let is_over = move || pages.load(Ordering::Relaxed) > most.load(Ordering::Relaxed);
        Ok(conn.progress_handler(WATCH_STEPS, Some(is_over))?)
    }

    /// Waits while the log is moved, but not for ever: a store without writes does not update its page count. Returns `false` if the inspection must end.
    fn wait(&self) -> bool {
        let is_long = || self.pages.load(Ordering::Relaxed) > BACKSTOP_PAGES;
        let mut waited = 0;
        while self.inherited.is_waiting() || (is_long() && waited < MAX_GIVEN_WAY) {
            match self.stop.recv_timeout(GIVE_WAY) {
                Err(RecvTimeoutError::Timeout) => waited += 1,
                _ => return false,
            }
        }
        !matches!(self.stop.try_recv(), Err(TryRecvError::Disconnected))
    }

    fn give_way(&self) {
        let most = self.most.load(Ordering::Relaxed);
        self.most.store(most.saturating_mul(2), Ordering::Relaxed);
    }
}

// === impl Inspection ===

impl Inspection {
    pub(super) fn end(mut self) {
        let thread = self.thread.take();
        // Interrupts the thread, so that the join does not wait for the whole inspection.
        drop(self);
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the inspection panicked");
        }
    }
}

impl Drop for Inspection {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(interrupt) = &self.interrupt {
            interrupt.interrupt();
        }
    }
}

impl std::fmt::Debug for Inspection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspection").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inspection_gives_way_to_a_log_that_grows_and_ends_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let mut conn = Connection::open(&path).unwrap();
        conn.execute_batch(
            "CREATE TABLE things (name TEXT); WITH RECURSIVE n (x) AS
             (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 20000)
             INSERT INTO things SELECT 'a thing' FROM n",
        )
        .unwrap();
        let (stop, stopped) = mpsc::sync_channel(0);
        let pages = Arc::new(AtomicUsize::new(100));
        let inherited = Arc::new(InheritedLog::of(&path));
        let log = LogLimit::new(&pages, &inherited, stopped);
        log.watch(&mut conn).unwrap();
        log.most.store(10, Ordering::Relaxed);
        assert!(was_interrupted(&findings(&conn, "things").unwrap_err()));
        inspect(&conn, &Health::new(&path), Some(&log)).unwrap();
        assert_eq!(log.most.load(Ordering::Relaxed), 160, "it was doubled until the log fitted");
        drop(stop);
        assert!(!log.wait());
    }
}
