//! What the database has acknowledged, compared with what it has after a failover: a replica may lack the newest commits.
//!
//! A thread of which acknowledged events are missing is closed, on all nodes. Its next events would get numbers that clients have seen.

use std::collections::HashMap;
use std::sync::Mutex;

use trilogue_domain::ThreadKey;
use trilogue_domain::error::Error;
use trilogue_domain::lock;

use super::connection::Connection;
use super::database::Database;
use super::error::PostgresError;
use super::row;
use crate::core::damaged;
use crate::core::ownership::LogEnd;
use crate::port::Batch;

/// How many logs are remembered at least, those that were written last. One takes about 50 bytes.
const REMEMBERED_LOGS: usize = 16 * 1024;

/// The ends of the logs that this process wrote last, as the database acknowledged them.
#[derive(Debug, Default)]
pub(super) struct AcknowledgedLogs {
    ends: Mutex<NewestEnds>,
    /// The timeline with which they were compared last.
    compared: tokio::sync::Mutex<u32>,
}

/// Two halves: when one is full, it takes the place of the older one.
#[derive(Debug, Default)]
struct NewestEnds {
    newer: HashMap<ThreadKey, LogEnd>,
    older: HashMap<ThreadKey, LogEnd>,
}

/// That a log lacks events which were acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LostEvents {
    pub(super) thread: ThreadKey,
    /// The last number that was acknowledged.
    pub(super) last: u64,
    /// The last number that is there.
    pub(super) found: u64,
}

// === impl AcknowledgedLogs ===

impl AcknowledgedLogs {
    /// Notes an append that is durable.
    pub(super) fn note(&self, batch: &Batch, stamp: i64) {
        let end = LogEnd { epoch: batch.last_epoch(), last: batch.last(), stamp };
        let mut ends = lock(&self.ends);
        if ends.newer.len() >= REMEMBERED_LOGS {
            ends.older = std::mem::take(&mut ends.newer);
        }
        ends.newer.insert(batch.thread, end);
    }

    pub(super) fn forget(&self, thread: ThreadKey) {
        let mut ends = lock(&self.ends);
        ends.newer.remove(&thread);
        ends.older.remove(&thread);
    }

    pub(super) fn end(&self, thread: ThreadKey) -> Option<LogEnd> {
        let ends = lock(&self.ends);
        ends.newer.get(&thread).or_else(|| ends.older.get(&thread)).copied()
    }

    fn all(&self) -> HashMap<ThreadKey, LogEnd> {
        let ends = lock(&self.ends);
        let mut all = ends.older.clone();
        all.extend(&ends.newer);
        all
    }
}

// === impl LostEvents ===

impl LostEvents {
    /// What a log lacks if its end is before what was known when the end was read. Neither its epoch nor its numbers ever go back, and one epoch has one writer.
    pub(super) fn between(thread: ThreadKey, known: LogEnd, found: LogEnd) -> Option<Self> {
        let is_same_end = (found.epoch, found.last) == (known.epoch, known.last);
        let is_behind = found.epoch < known.epoch
            || found.last < known.last
            || is_same_end && found.stamp < known.stamp;
        is_behind.then_some(Self { thread, last: known.last, found: found.last })
    }

    pub(super) fn reason(self) -> String {
        let Self { last, found, .. } = self;
        format!(
            "its newest changes are lost: the database had acknowledged events up to {last} and has events up to {found}, as after a failover to a replica without the newest commits"
        )
    }
}

// === impl Database ===

impl Database {
    /// Compares what was acknowledged with what the database has, if another server has become the primary since the last time.
    pub(super) async fn compare_logs(&self, conn: &Connection) -> Result<(), PostgresError> {
        let timeline = self.sessions.timeline();
        let mut compared = self.acknowledged.compared.lock().await;
        if *compared == timeline {
            return Ok(());
        }
        let known = self.acknowledged.all();
        if known.is_empty() {
            *compared = timeline;
            return Ok(());
        }
        let threads: Vec<i64> = known.keys().map(|thread| thread.0).collect();
        let (mut closed, mut found_count) = (0_usize, 0_usize);
        let sql = "SELECT thread, epoch, last, stamp FROM heads WHERE thread = ANY($1)";
        for row in row::query(conn, sql, &[&threads]).await? {
            found_count += 1;
            let number = |index| row.get::<_, i64>(index).cast_unsigned();
            let found = LogEnd { epoch: number(1), last: number(2), stamp: row.get(3) };
            let thread = ThreadKey(row.get(0));
            let known = known.get(&thread).copied();
            if let Some(lost) = known.and_then(|known| LostEvents::between(thread, known, found)) {
                self.close_thread(conn, lost).await?;
                closed += 1;
            }
        }
        let gone = threads.len() - found_count;
        if closed > 0 {
            tracing::error!(
                closed,
                gone,
                "the new primary lacks changes that the old one acknowledged; the threads are closed: erase them, or go back to a server that has the changes; synchronous replication prevents this"
            );
        } else if gone > 0 {
            tracing::warn!(
                gone,
                "threads are missing at the new primary, or were removed by another server"
            );
        }
        *compared = timeline;
        Ok(())
    }

    /// Closes a thread on this node at once, and on the others when they would continue it. Returns the error for callers that ask for it.
    pub(super) async fn close_thread(
        &self,
        conn: &Connection,
        lost: LostEvents,
    ) -> Result<Error, PostgresError> {
        let why = lost.reason();
        self.health.quarantine.add(lost.thread, &why);
        let sql = concat!(
            "INSERT INTO lost_events (thread, last, found) VALUES ($1, $2, $3)",
            " ON CONFLICT (thread) DO NOTHING"
        );
        let (last, found) = (lost.last.cast_signed(), lost.found.cast_signed());
        row::execute(conn, sql, &[&lost.thread.0, &last, &found]).await?;
        Ok(damaged(why))
    }

    /// Fails for a thread that lacks acknowledged events, as this or another node has found out.
    pub(super) async fn check_log(
        &self,
        conn: &Connection,
        thread: ThreadKey,
        known: Option<LogEnd>,
        found: LogEnd,
    ) -> Result<(), PostgresError> {
        if let Some(lost) = known.and_then(|known| LostEvents::between(thread, known, found)) {
            return Err(PostgresError::Damaged(None, self.close_thread(conn, lost).await?));
        }
        let sql = "SELECT last, found FROM lost_events WHERE thread = $1";
        let Some(row) = row::query_opt(conn, sql, &[&thread.0]).await? else { return Ok(()) };
        let number = |index| row.get::<_, i64>(index).cast_unsigned();
        let lost = LostEvents { thread, last: number(0), found: number(1) };
        Err(PostgresError::Damaged(Some(thread), damaged(lost.reason())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_behind_if_anything_of_it_went_back() {
        let known = LogEnd { epoch: 2, last: 9, stamp: 5 };
        let is_behind = |known, found| LostEvents::between(ThreadKey(1), known, found).is_some();
        assert!(!is_behind(known, known));
        assert!(is_behind(known, LogEnd { last: 8, stamp: 4, ..known }));
        assert!(is_behind(known, LogEnd { stamp: 4, ..known }), "a change without an event");
        assert!(is_behind(known, LogEnd { epoch: 1, ..known }), "a take-over");
        assert!(!is_behind(known, LogEnd { epoch: 3, last: 9, stamp: 1 }), "another node has it");
        assert!(is_behind(known, LogEnd { epoch: 3, last: 8, stamp: 1 }));
    }
}
