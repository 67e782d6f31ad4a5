//! Acknowledged commits that a start does not find again. SQLite stops at the first damaged frame of its log and reports nothing.
//!
//! The newest recorded commit is compared with the log and with the database. Threads of lost commits stay closed, because their next events would get numbers that clients already know.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use trilogue_domain::error::Result;
use trilogue_domain::port::{Clock, ReadOriginal, SystemClock};
use trilogue_domain::{Json, PrincipalId, TenantId, ThreadId, ThreadKey, Timestamp};

use super::commit_position::CommitPosition;
use super::commit_record::{CommitEntry, RecordedCommits, ThreadChange};
use super::error::SqliteError;
use super::file::{self, cannot, sibling_path};
use super::{apply, heads, log_scan};
use crate::rows::ThreadRow;

/// Suffix of a store's name: a damaged log, as the start found it.
const DAMAGED_LOG: &str = "-wal.damaged";

/// The log of the last life, before SQLite opens it.
#[derive(Debug)]
pub(super) struct LogExamination {
    path: PathBuf,
    /// The number of whole pages, if the log has the newest recorded commit's salts but not its pages.
    whole_pages: Option<u32>,
    has_copy: bool,
}

/// The loss that a start found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LogLoss {
    commits: u64,
    /// Whether the record does not reach back to the first lost commit, so that the count is a lower bound.
    is_least: bool,
    threads: BTreeMap<ThreadKey, ThreadChange<'static>>,
}

// === impl LogExamination ===

impl LogExamination {
    /// Compares a store's log with the newest recorded commit. A damaged log is copied. If the database already has all of it, the damaged log is set aside, because SQLite would put its older pages before those of the database.
    /// Fails if the log cannot be read, naming its file.
    pub(super) fn of(path: &Path, recorded: &RecordedCommits) -> Result<Self> {
        let log = sibling_path(path, "-wal");
        let unreadable = |error| cannot("read", &log, &error);
        let mut examination = Self { path: path.to_owned(), whole_pages: None, has_copy: false };
        let Some(file) = log_scan::open(&log).map_err(unreadable)? else { return Ok(examination) };
        let Some(newest) = recorded.entries.last() else { return Ok(examination) };
        let scan = log_scan::scan(&file, newest.pages).map_err(unreadable)?;
        let is_same_log = scan.salts == Some(newest.salts);
        if scan.bytes == 0 || (scan.salts.is_some() && (!is_same_log || scan.pages >= newest.pages))
        {
            return Ok(examination);
        }
        let copy = sibling_path(path, DAMAGED_LOG);
        let moved = recorded.moved.filter(|(salts, _)| *salts == newest.salts);
        if is_same_log && moved.is_some_and(|(_, pages)| pages > scan.pages) {
            fs::rename(&log, &copy).map_err(|error| cannot("move", &log, &error))?;
            file::sync_directory(path).map_err(|error| cannot("synchronise", path, &error))?;
        } else {
            examination.whole_pages = is_same_log.then_some(scan.pages);
            if let Err(error) = fs::copy(&log, &copy) {
                tracing::warn!(%error, "the damaged write-ahead log could not be copied");
            }
        }
        examination.has_copy = true;
        Ok(examination)
    }

    /// Compares the database with the recorded commits.
    pub(super) fn find_loss(
        &self,
        recorded: &RecordedCommits,
        position: CommitPosition,
    ) -> Option<LogLoss> {
        let newest = recorded.entries.last()?;
        let is_lost = |entry: &&CommitEntry<'static>| {
            let is_behind = |pages| entry.salts == newest.salts && entry.pages > pages;
            entry.position > position || self.whole_pages.is_some_and(is_behind)
        };
        let lost: Vec<_> = recorded.entries.iter().filter(is_lost).collect();
        let first = lost.first()?;
        let before = recorded.entries.iter().rev().find(|entry| !is_lost(entry));
        let commits = newest.commit - before.map_or(first.commit - 1, |entry| entry.commit);
        let mut threads = BTreeMap::new();
        for change in lost.iter().filter_map(|entry| entry.change.as_ref()) {
            let last: &mut ThreadChange<'static> =
                threads.entry(change.thread).or_insert_with(|| change.clone());
            let names = last.names.take();
            *last = ThreadChange { names: change.names.clone().or(names), ..change.clone() };
        }
        Some(LogLoss { commits, is_least: before.is_none() && first.commit > 1, threads })
    }

    /// Removes the copy of a log whose damage lost nothing.
    pub(super) fn discard_copy(&self) {
        if self.has_copy {
            tracing::warn!(
                store = %self.path.display(),
                "the write-ahead log was damaged where it was no longer needed: nothing is lost"
            );
            let copy = sibling_path(&self.path, DAMAGED_LOG);
            if let Err(error) = fs::remove_file(&copy) {
                // It can hold content that is erased later.
                tracing::warn!(copy = %copy.display(), %error, "the copy of a damaged log remains: remove it");
            }
        }
    }
}

// === impl LogLoss ===

impl LogLoss {
    /// Keeps the loss with the store, and reports it.
    pub(super) fn report(
        &self,
        conn: &mut Connection,
        path: &Path,
        reader: &Arc<dyn ReadOriginal>,
    ) -> std::result::Result<(), SqliteError> {
        let now = SystemClock.now();
        let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute(
            "INSERT OR REPLACE INTO log_losses (found_at, commits, is_least) VALUES (?1, ?2, ?3)",
            params![now.as_micros(), self.commits.cast_signed(), self.is_least],
        )?;
        let (mut unnamed, mut damaged) = (0_u64, 0_u64);
        for (key, change) in &self.threads {
            let Some(why) = mark(&transaction, *key, change, reader, now)? else {
                unnamed += u64::from(!change.is_removal);
                continue;
            };
            damaged += 1;
            transaction.execute(
                "INSERT OR REPLACE INTO damaged_threads (thread, why) VALUES (?1, ?2)",
                params![key.0, why],
            )?;
        }
        transaction.commit()?;
        let least = if self.is_least { "at least " } else { "" };
        let lost = lost_text("acknowledged commit", self.commits);
        let advice = match damaged {
            0 => "restore a backup, if you need what is lost: no thread is damaged",
            _ => "restore a backup, or erase the damaged threads",
        };
        // There is nothing to copy if the log was deleted or emptied.
        let copy = sibling_path(path, DAMAGED_LOG);
        let damaged_log = copy.exists().then(|| copy.display().to_string());
        tracing::error!(
            store = %path.display(),
            commits = self.commits,
            threads = self.threads.len(),
            threads_without_name = unnamed,
            damaged_log,
            "the write-ahead log is damaged: {least}{lost}; {advice}",
        );
        Ok(())
    }
}

/// Why a thread is damaged. If no row of it is left, it gets a row, so that it is listed. `None` if the store does not have it and its name is unknown.
fn mark(
    conn: &Transaction<'_>,
    key: ThreadKey,
    change: &ThreadChange<'_>,
    reader: &Arc<dyn ReadOriginal>,
    now: Timestamp,
) -> std::result::Result<Option<String>, SqliteError> {
    let is_there = conn.prepare_cached("SELECT 1 FROM threads WHERE key = ?1")?.exists([key.0])?;
    if !is_there {
        let Some(row) = stub(conn, key, change, now)? else { return Ok(None) };
        apply::write_thread(conn, &row, true)?;
        let why = match change.last {
            1 => "its only event is lost".to_owned(),
            last => format!("all {last} events are lost"),
        };
        return Ok(Some(format!("{why}, because the write-ahead log is damaged")));
    }
    if change.is_removal {
        let why = "it was removed, and is back because the write-ahead log is damaged";
        return Ok(Some(why.to_owned()));
    }
    // Damage of the thread itself is found when it is read.
    let last = heads::last_stored(conn, reader, key).unwrap_or(0);
    Ok(Some(if last < change.last {
        let lost = lost_events(last + 1, change.last);
        format!("{lost}, because the write-ahead log is damaged")
    } else {
        "a change of it is lost, because the write-ahead log is damaged".to_owned()
    }))
}

fn lost_text(noun: &str, count: u64) -> String {
    match count {
        1 => format!("1 {noun} is lost"),
        count => format!("{count} {noun}s are lost"),
    }
}

fn lost_events(first: u64, last: u64) -> String {
    match first == last {
        true => format!("its event {first} is lost"),
        false => format!("its events {first} to {last} are lost"),
    }
}

/// The row of a thread whose rows are lost.
fn stub(
    conn: &Connection,
    key: ThreadKey,
    change: &ThreadChange<'_>,
    now: Timestamp,
) -> std::result::Result<Option<ThreadRow>, SqliteError> {
    let Some(names) = change.names.as_ref().filter(|_| !change.is_removal) else {
        return Ok(None);
    };
    let is_taken: Option<i64> = conn
        .prepare_cached("SELECT 1 FROM threads WHERE tenant = ?1 AND id = ?2")?
        .query_row([names.tenant.as_ref(), names.id.as_ref()], |row| row.get(0))
        .optional()?;
    let parsed = (|| {
        Some((
            TenantId::parse(names.tenant.as_ref()).ok()?,
            ThreadId::parse(names.id.as_ref()).ok()?,
            PrincipalId::parse(names.owner.as_ref()).ok()?,
        ))
    })();
    let Some((tenant, id, owner)) = parsed.filter(|_| is_taken.is_none()) else { return Ok(None) };
    Ok(Some(ThreadRow {
        key,
        id,
        tenant,
        owner,
        metadata: Json::parse("{}")?,
        created_at: now,
        updated_at: now,
        head: None,
        owner_node: String::new(),
        epoch: 1,
        ephemeral: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_said_as_many() {
        assert_eq!(lost_events(7, 7), "its event 7 is lost");
        assert_eq!(lost_events(7, 9), "its events 7 to 9 are lost");
        assert_eq!(lost_text("acknowledged commit", 1), "1 acknowledged commit is lost");
        assert_eq!(lost_text("acknowledged commit", 2), "2 acknowledged commits are lost");
    }
}
