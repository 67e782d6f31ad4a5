//! Large content: stored once per tenant, named by frames, removed with the last frame that names it.

use std::collections::HashSet;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Params, params};
use trilogue_domain::content::BlobRef;
use trilogue_domain::{TenantId, ThreadKey};

use super::error::SqliteError;
use crate::core::batch::is_blob_whole;
use crate::core::damaged;
use crate::port::Batch;

/// The most blobs that are remembered as stored but not yet named.
const MAX_PENDING: usize = 65_536;
/// The most bytes of blobs that are removed in the transaction that removes their names.
const MAX_BYTES_AT_ONCE: i64 = 4 * 1024 * 1024;

/// Blobs that were stored for a later frame: the removal of another frame must not delete them.
#[derive(Debug, Default)]
pub(super) struct PendingBlobs {
    waiting: HashSet<i64>,
    /// The keys named in the current transaction.
    named: Vec<i64>,
}

pub(super) fn put(
    conn: &Connection,
    pending: &mut PendingBlobs,
    tenant: &TenantId,
    blob: &BlobRef,
    bytes: &Bytes,
) -> Result<(), SqliteError> {
    let key = match find(conn, tenant, blob)? {
        Some(key) => key,
        None => {
            conn.prepare_cached(
                "INSERT INTO blobs (tenant, hash, length, crc, data) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                tenant.as_str(),
                blob.hash,
                blob.length.cast_signed(),
                crc32c::crc32c(bytes),
                bytes.as_ref(),
            ])?;
            conn.last_insert_rowid()
        }
    };
    // Even one that a frame names already: that frame may be removed before the next one names it.
    pending.wait_for(key);
    Ok(())
}

/// Notes which runs of the batch name which blobs.
pub(super) fn refer(
    conn: &Connection,
    pending: &mut PendingBlobs,
    batch: &Batch,
) -> Result<(), SqliteError> {
    for blob in &batch.blobs {
        let key = find_of_thread(conn, batch.thread, blob)?;
        let key = key.ok_or_else(|| batch.blob_missing(blob))?;
        for run in batch.runs_naming(blob) {
            let run = run.map_or(0, |run| run.0);
            conn.prepare_cached(concat!(
                "INSERT OR IGNORE INTO blob_refs (thread, run, blob, is_text)",
                " VALUES (?1, ?2, ?3, ?4)"
            ))?
            .execute(params![batch.thread.0, run, key, blob.is_text])?;
        }
        pending.named.push(key);
    }
    Ok(())
}

pub(super) fn query_keys(
    conn: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<Vec<i64>, SqliteError> {
    let mut statement = conn.prepare_cached(sql)?;
    let keys = statement.query_map(params, |row| row.get(0))?;
    Ok(keys.collect::<rusqlite::Result<_>>()?)
}

/// Removes the given blobs that nothing names any more: now if they are small together, otherwise later, one by one.
pub(super) fn remove_unnamed(
    conn: &Connection,
    pending: &PendingBlobs,
    keys: &[i64],
) -> Result<(), SqliteError> {
    let mut bytes = 0;
    for key in keys.iter().filter(|key| !pending.is_waiting(**key)) {
        let length: Option<i64> = conn
            .prepare_cached("SELECT length FROM blobs WHERE key = ?1")?
            .query_row([key], |row| row.get(0))
            .optional()?;
        bytes += length.unwrap_or(0);
        if bytes <= MAX_BYTES_AT_ONCE {
            remove_if_unnamed(conn, *key)?;
        } else {
            conn.prepare_cached("INSERT OR IGNORE INTO unnamed_blobs (blob) VALUES (?1)")?
                .execute([key])?;
        }
    }
    Ok(())
}

/// Removes one of the blobs that were left for later.
pub(super) fn sweep_unnamed(conn: &Connection, pending: &PendingBlobs) -> Result<(), SqliteError> {
    let key: Option<i64> = conn
        .prepare_cached("DELETE FROM unnamed_blobs WHERE blob = (SELECT min(blob) FROM unnamed_blobs) RETURNING blob")?
        .query_row([], |row| row.get(0))
        .optional()?;
    match key {
        Some(key) if !pending.is_waiting(key) => remove_if_unnamed(conn, key),
        _ => Ok(()),
    }
}

fn remove_if_unnamed(conn: &Connection, key: i64) -> Result<(), SqliteError> {
    conn.prepare_cached(concat!(
        "DELETE FROM blobs WHERE key = ?1",
        " AND NOT EXISTS (SELECT 1 FROM blob_refs WHERE blob = ?1)"
    ))?
    .execute([key])?;
    Ok(())
}

/// Removes blobs that an earlier process stored and no frame names.
pub(super) fn sweep(conn: &Connection) -> Result<usize, SqliteError> {
    Ok(conn.execute(
        concat!(
            "DELETE FROM blobs WHERE NOT EXISTS",
            " (SELECT 1 FROM blob_refs WHERE blob_refs.blob = blobs.key)"
        ),
        [],
    )?)
}

pub(super) fn read(
    conn: &Connection,
    thread: ThreadKey,
    hash: &[u8; 32],
    length: Option<u64>,
) -> Result<Option<(BlobRef, Bytes)>, SqliteError> {
    let found = conn
        .prepare_cached(concat!(
            "SELECT b.length, r.is_text, b.crc, b.data FROM blobs b",
            " JOIN blob_refs r ON r.blob = b.key AND r.thread = ?1",
            " JOIN threads t ON t.key = ?1 AND t.tenant = b.tenant",
            " WHERE b.hash = ?2 AND (?3 IS NULL OR b.length = ?3) LIMIT 1"
        ))?
        .query_row(params![thread.0, hash, length.map(u64::cast_signed)], |row| {
            let data = row.get_ref(3)?.as_blob().map(Bytes::copy_from_slice).unwrap_or_default();
            Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, data))
        })
        .optional()?;
    let Some((length, is_text, crc, bytes)) = found else { return Ok(None) };
    let blob = BlobRef { hash: *hash, length: length.cast_unsigned(), is_text };
    if !is_blob_whole(hash, length, crc, &bytes) {
        let error = damaged("a stored blob does not match its hash");
        return Err(SqliteError::Damaged(Some(thread), error));
    }
    Ok(Some((blob, bytes)))
}

pub(super) fn is_whole(conn: &Connection, key: i64) -> Result<bool, SqliteError> {
    let sql = "SELECT hash, length, crc, data FROM blobs WHERE key = ?1";
    let found = conn
        .prepare_cached(sql)?
        .query_row([key], |row| {
            let hash = row.get_ref(0)?.as_blob().unwrap_or_default();
            let data = row.get_ref(3)?.as_blob().unwrap_or_default();
            let (length, crc): (i64, i64) = (row.get(1)?, row.get(2)?);
            Ok(is_blob_whole(hash, length, crc, data))
        })
        .optional()?;
    Ok(found.unwrap_or(false))
}

fn find(conn: &Connection, tenant: &TenantId, blob: &BlobRef) -> Result<Option<i64>, SqliteError> {
    Ok(conn
        .prepare_cached("SELECT key FROM blobs WHERE tenant = ?1 AND hash = ?2 AND length = ?3")?
        .query_row(params![tenant.as_str(), blob.hash, blob.length.cast_signed()], |row| row.get(0))
        .optional()?)
}

fn find_of_thread(
    conn: &Connection,
    thread: ThreadKey,
    blob: &BlobRef,
) -> Result<Option<i64>, SqliteError> {
    Ok(conn
        .prepare_cached(concat!(
            "SELECT b.key FROM threads t JOIN blobs b ON b.tenant = t.tenant",
            " WHERE t.key = ?1 AND b.hash = ?2 AND b.length = ?3"
        ))?
        .query_row(params![thread.0, blob.hash, blob.length.cast_signed()], |row| row.get(0))
        .optional()?)
}

// === impl PendingBlobs ===

impl PendingBlobs {
    fn wait_for(&mut self, key: i64) {
        if self.waiting.len() >= MAX_PENDING {
            // Forgotten blobs are refused if a frame names them after all.
            self.waiting.clear();
        }
        self.waiting.insert(key);
    }

    /// Whether the frame that names the blob is still to come, in this transaction or later.
    fn is_waiting(&self, key: i64) -> bool {
        self.waiting.contains(&key) && !self.named.contains(&key)
    }

    pub(super) fn commit(&mut self) {
        for key in self.named.drain(..) {
            self.waiting.remove(&key);
        }
    }

    pub(super) fn rollback(&mut self) {
        self.named.clear();
    }
}
