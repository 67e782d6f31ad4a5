//! The position of a database in the order of its commits: the newest frame, and a count of the commits that no new frame shows.

use rusqlite::{Connection, OptionalExtension};

use super::error::SqliteError;

/// A later commit has a greater position. Frames get growing ids. A commit without a frame, or one that removes frames, is counted instead.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct CommitPosition {
    /// The number of counted commits.
    pub(super) counted: u64,
    /// The id of the newest frame; zero without frames.
    pub(super) frame: i64,
}

// === impl CommitPosition ===

impl CommitPosition {
    /// Reads the position of a database, even of one without tables.
    pub(super) fn read(conn: &Connection) -> Result<Self, SqliteError> {
        let has = |table: &str| -> rusqlite::Result<bool> {
            conn.prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")?
                .exists([table])
        };
        let mut position = Self::default();
        if has("commit_count")? {
            let sql = "SELECT count FROM commit_count";
            let counted: Option<i64> = conn.query_row(sql, [], |row| row.get(0)).optional()?;
            position.counted = counted.unwrap_or(0).cast_unsigned();
        }
        if has("frames")? {
            position.frame = newest_frame(conn)?;
        }
        Ok(position)
    }

    /// Counts a commit in that commit's transaction.
    pub(super) fn count(self, conn: &Connection) -> Result<Self, SqliteError> {
        let counted = self.counted.saturating_add(1);
        conn.prepare_cached("UPDATE commit_count SET count = ?1")?
            .execute([counted.cast_signed()])?;
        // Read again: the transaction may have deleted the newest frame.
        Ok(Self { counted, frame: newest_frame(conn)? })
    }
}

fn newest_frame(conn: &Connection) -> Result<i64, SqliteError> {
    let mut statement = conn.prepare_cached("SELECT max(id) FROM frames")?;
    let newest: Option<i64> = statement.query_row([], |row| row.get(0))?;
    Ok(newest.unwrap_or(0))
}
