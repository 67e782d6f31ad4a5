//! Lost acknowledged commits that a store remembers.

use rusqlite::Connection;
use trilogue_domain::{ThreadKey, Timestamp};

use super::error::{Health, SqliteError};

/// Losses that the store remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct KnownLosses {
    pub(super) commits: u64,
    pub(super) found_at: Option<Timestamp>,
}

// === impl KnownLosses ===

impl KnownLosses {
    /// Closes the damaged threads of all losses, and forgets losses whose threads are all gone.
    pub(super) fn load(
        conn: &Connection,
        health: &Health,
        has_new: bool,
    ) -> Result<Self, SqliteError> {
        let mut marked = 0;
        let mut statement = conn.prepare("SELECT thread, why FROM damaged_threads")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            marked += 1;
            health.quarantine.add(ThreadKey(row.get(0)?), &row.get::<_, String>(1)?);
        }
        if marked == 0 && !has_new {
            conn.execute("DELETE FROM log_losses", [])?;
            return Ok(Self::default());
        }
        let sql = "SELECT coalesce(sum(commits), 0), max(found_at) FROM log_losses";
        Ok(conn.query_row(sql, [], |row| {
            let found_at: Option<i64> = row.get(1)?;
            Ok(Self {
                commits: row.get::<_, i64>(0)?.cast_unsigned(),
                found_at: found_at.map(Timestamp::from_micros),
            })
        })?)
    }
}
