//! Space on the disk: the reserve, and the largest size of the database.

use rusqlite::Connection;
use trilogue_domain::error::Error;

use super::connection::PAGE_BYTES;
use super::error::SqliteError;
use super::file::Reserve;
use crate::options::Options;

/// All writes are admitted again once this share of a full database's size is free: a sixteenth.
const FREE_AGAIN: u64 = 16;

/// The reserve and the size limit. The reserve is released when the disk is full, and restored when it has space.
#[derive(Debug)]
pub(super) struct DiskSpace {
    reserve: Reserve,
    limit: Option<PageLimit>,
    /// Whether [`Self::log_failure`] has logged the current failure.
    is_failure_logged: bool,
}

#[derive(Clone, Copy, Debug)]
struct PageLimit {
    /// For all writes.
    usual: u64,
    /// For vital writes.
    vital: u64,
}

// === impl DiskSpace ===

impl DiskSpace {
    pub(super) fn new(reserve: Reserve, options: &Options) -> Self {
        let limit = options.max_bytes.map(|bytes| {
            let vital = (bytes / u64::from(PAGE_BYTES)).max(1);
            let kept = (options.reserve_bytes / u64::from(PAGE_BYTES)).min(vital / 2);
            PageLimit { usual: vital - kept, vital }
        });
        Self { reserve, limit, is_failure_logged: false }
    }

    /// Releases the reserve to vital writes.
    pub(super) fn release(&mut self, conn: &Connection) -> Result<(), SqliteError> {
        if let Err(error) = self.reserve.release() {
            tracing::warn!(%error, "the reserve could not be given up");
        }
        match self.limit {
            Some(limit) => set_limit(conn, limit.vital),
            None => Ok(()),
        }
    }

    /// Restores the reserve. Returns `false` if the disk does not have enough space yet.
    /// Errors: [`SqliteError::Refused`] if the reserve's file cannot be written for another reason.
    pub(super) fn restore(&mut self, conn: &Connection) -> Result<bool, SqliteError> {
        if let Some(limit) = self.limit {
            let used = pages(conn, "page_count")?.saturating_sub(pages(conn, "freelist_count")?);
            if used + limit.usual / FREE_AGAIN > limit.usual {
                return Ok(false);
            }
        }
        if !self.reserve.fill()? {
            return Ok(false);
        }
        self.is_failure_logged = false;
        self.apply_usual_limit(conn)?;
        Ok(true)
    }

    /// Logs why the reserve cannot be restored, once until it can: a full store tries every second.
    pub(super) fn log_failure(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.is_failure_logged, true) {
            tracing::warn!(%error, "the reserve cannot be restored, so the disk still counts as full");
        }
    }

    pub(super) fn apply_usual_limit(&self, conn: &Connection) -> Result<(), SqliteError> {
        match self.limit {
            Some(limit) => set_limit(conn, limit.usual),
            None => Ok(()),
        }
    }
}

fn set_limit(conn: &Connection, pages: u64) -> Result<(), SqliteError> {
    conn.pragma_update_and_check(None, "max_page_count", pages.cast_signed(), |_| Ok(()))?;
    Ok(())
}

fn pages(conn: &Connection, pragma: &str) -> Result<u64, SqliteError> {
    let count: i64 = conn.pragma_query_value(None, pragma, |row| row.get(0))?;
    Ok(count.cast_unsigned())
}
