//! Compares the acknowledged ends of logs with those of the database after a failover.
//!
//! A thread that lacks acknowledged events is closed, on all nodes. Its next events would get numbers that clients have seen.

use trilogue_domain::ThreadKey;
use trilogue_domain::error::Error;

use super::acknowledged::LostEvents;
use super::connection::Connection;
use super::database::Database;
use super::error::PostgresError;
use super::row;
use crate::core::damaged;
use crate::core::ownership::LogEnd;

// === impl Database ===

impl Database {
    /// Compares what was acknowledged with what the database has, if another server has become the primary since the last time.
    pub(super) async fn compare_logs(&self, conn: &Connection) -> Result<(), PostgresError> {
        // Read first: if the primary changes during the comparison, the next connection compares again.
        let timeline = self.sessions.timeline();
        // Held until the end: no other connection is used before the threads with lost events are closed.
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
        // Last, so that a comparison that failed runs again.
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
        // Before the row: this node must not continue the thread even if the row cannot be stored.
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
