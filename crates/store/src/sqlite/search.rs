//! Search rows: they find the threads and runs with a certain value of a metadata member.

use rusqlite::{Connection, OptionalExtension, params};
use trilogue_domain::{Json, TenantId};

use super::error::SqliteError;
use crate::core::search::value_hash;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SearchKind {
    Thread = 1,
    Run = 2,
}

/// The column `searched` of a row whose search rows match this metadata. Zero means that none were made: an object without members needs none.
pub(super) fn mark(metadata: &Json) -> i64 {
    if is_empty(metadata) { 0 } else { sum(metadata) }
}

/// Makes the search rows of a row match its metadata; returns whether they changed. Does nothing if the metadata is the same as when they were made.
/// `is_new` says that the row was just inserted and has no search rows.
pub(super) fn write(
    conn: &Connection,
    (kind, id): (SearchKind, i64),
    tenant: &TenantId,
    metadata: &Json,
    is_new: bool,
) -> Result<bool, SqliteError> {
    let sum = sum(metadata);
    let (read, update) = match kind {
        SearchKind::Thread => (
            "SELECT searched FROM threads WHERE key = ?1",
            "UPDATE threads SET searched = ?2 WHERE key = ?1",
        ),
        SearchKind::Run => (
            "SELECT searched FROM runs WHERE key = ?1",
            "UPDATE runs SET searched = ?2 WHERE key = ?1",
        ),
    };
    let made: Option<i64> = if is_new {
        Some(0)
    } else {
        conn.prepare_cached(read)?.query_row([id], |row| row.get(0)).optional()?
    };
    if made == Some(sum) || made == Some(mark(metadata)) {
        return Ok(false);
    }
    if made != Some(0) {
        remove(conn, kind, id)?;
    }
    let mut insert = conn.prepare_cached(
        "INSERT OR IGNORE INTO search (tenant, kind, name, hash, id) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for (name, value) in metadata.scalars() {
        insert.execute(params![tenant.as_str(), kind as i64, name, value_hash(&value), id])?;
    }
    conn.prepare_cached(update)?.execute([id, sum])?;
    Ok(true)
}

fn is_empty(metadata: &Json) -> bool {
    metadata.as_bytes().as_ref() == b"{}"
}

/// The checksum of metadata, never zero.
fn sum(metadata: &Json) -> i64 {
    i64::from(crc32c::crc32c(metadata.as_bytes())) + 1
}

/// Whether a row has a metadata member with this value, by the value's hash.
pub(super) fn has(
    conn: &Connection,
    kind: SearchKind,
    id: i64,
    tenant: &TenantId,
    name: &str,
    value: &str,
) -> Result<bool, SqliteError> {
    let sql = concat!(
        "SELECT 1 FROM search WHERE tenant = ?1 AND kind = ?2 AND name = ?3 AND hash = ?4",
        " AND id = ?5"
    );
    let params = params![tenant.as_str(), kind as i64, name, value_hash(value), id];
    Ok(conn.prepare_cached(sql)?.exists(params)?)
}

pub(super) fn remove(conn: &Connection, kind: SearchKind, id: i64) -> Result<(), SqliteError> {
    conn.prepare_cached("DELETE FROM search WHERE kind = ?1 AND id = ?2")?
        .execute([kind as i64, id])?;
    Ok(())
}
