//! Large content: stored once per tenant, named by frames, removed with the last name.

use std::time::Duration;

use bytes::Bytes;
use trilogue_domain::content::BlobRef;
use trilogue_domain::{TenantId, ThreadKey};

use super::change::{RowStatement, WrittenRow};
use super::connection::Connection;
use super::error::PostgresError;
use super::row::{self, Param};
use crate::core::batch::is_blob_whole;
use crate::core::damaged;
use crate::port::Batch;

/// How long content waits for the frame that names it, in seconds; then its writer has given up or is gone.
const WAIT: Duration = Duration::from_secs(3_600);

/// Names a blob for these runs. It no longer waits then: a removal sees one or the other.
const REFER: &str = concat!(
    "WITH found AS (SELECT b.key FROM threads t JOIN blobs b ON b.tenant = t.tenant",
    " WHERE t.key = $1 AND b.hash = $2 AND b.length = $3),",
    " named AS (INSERT INTO blob_refs (thread, run, blob, is_text)",
    " SELECT $1, r.run, found.key, $4 FROM found, unnest($5::bigint[]) AS r(run)",
    " ON CONFLICT DO NOTHING),",
    " ended AS (DELETE FROM blob_waits USING found WHERE blob = found.key AND opening = $6)",
    " SELECT key FROM found"
);
const REMOVE_UNNAMED: &str = concat!(
    "DELETE FROM blobs WHERE key = ANY($1)",
    " AND NOT EXISTS (SELECT 1 FROM blob_refs WHERE blob = key)",
    " AND NOT EXISTS (SELECT 1 FROM blob_waits WHERE blob = key",
    " AND since > now() - make_interval(secs => $2))"
);

/// Stores content, unless it is there.
pub(super) const INSERT: &str = concat!(
    "INSERT INTO blobs (tenant, hash, length, crc, data) VALUES ($1, $2, $3, $4, $5)",
    " ON CONFLICT (tenant, hash, length) DO UPDATE SET crc = blobs.crc RETURNING key"
);

/// Stores content, and notes that this opening is about to name it.
pub(super) async fn put(
    conn: &Connection,
    opening: i64,
    tenant: &TenantId,
    blob: &BlobRef,
    bytes: &Bytes,
) -> Result<(), PostgresError> {
    let (hash, length) = (blob.hash.as_slice(), blob.length.cast_signed());
    let find = concat!(
        "SELECT key FROM blobs WHERE tenant = $1 AND hash = $2 AND length = $3",
        // Until the wait is stored, no removal may take it.
        " FOR KEY SHARE"
    );
    let found = row::query_opt(conn, find, &[&tenant.as_str(), &hash, &length]).await?;
    let key: i64 = match found {
        Some(found) => found.get(0),
        None => {
            let crc = i64::from(crc32c::crc32c(bytes));
            let data = bytes.as_ref();
            let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&tenant.as_str(), &hash, &length, &crc, &data];
            row::query_opt(conn, INSERT, &params).await?.map_or(0, |made| made.get(0))
        }
    };
    let wait = concat!(
        "INSERT INTO blob_waits (blob, opening) VALUES ($1, $2)",
        " ON CONFLICT (blob, opening) DO UPDATE SET since = now()"
    );
    row::execute(conn, wait, &[&key, &opening]).await?;
    Ok(())
}

/// The statements that note which runs of a batch name which blobs.
pub(super) fn references(opening: i64, batch: &Batch) -> Vec<RowStatement<'_>> {
    let reference = |blob| {
        let runs = batch.runs_naming(blob);
        let params = vec![
            Param::integer(batch.thread.0),
            Param::bytes(&blob.hash),
            Param::integer(blob.length.cast_signed()),
            Param::integer(i64::from(blob.is_text)),
            Param::Integers(runs.into_iter().map(|run| run.map_or(0, |run| run.0)).collect()),
            Param::integer(opening),
        ];
        RowStatement::new(REFER, params).about(WrittenRow::Blob(batch, blob))
    };
    batch.blobs.iter().map(reference).collect()
}

/// Removes those of these blobs that nothing names any more.
pub(super) async fn remove_unnamed(conn: &Connection, keys: &[i64]) -> Result<(), PostgresError> {
    if !keys.is_empty() {
        row::execute(conn, REMOVE_UNNAMED, &[&keys, &WAIT.as_secs_f64()]).await?;
    }
    Ok(())
}

/// Removes blobs whose frame never came. Returns how many.
pub(super) async fn sweep(conn: &Connection) -> Result<u64, PostgresError> {
    let age = WAIT.as_secs_f64();
    let given_up = concat!(
        "WITH old AS (DELETE FROM blob_waits WHERE since <= now() - make_interval(secs => $1)",
        " RETURNING blob) SELECT DISTINCT blob FROM old"
    );
    let found = row::query(conn, given_up, &[&age]).await?;
    let keys: Vec<i64> = found.iter().map(|row| row.get(0)).collect();
    if keys.is_empty() {
        return Ok(0);
    }
    row::execute(conn, REMOVE_UNNAMED, &[&keys, &age]).await
}

pub(super) async fn read(
    conn: &Connection,
    thread: ThreadKey,
    hash: &[u8; 32],
    length: Option<u64>,
) -> Result<Option<(BlobRef, Bytes)>, PostgresError> {
    let sql = concat!(
        "SELECT b.length, r.is_text, b.crc, b.data FROM blobs b",
        " JOIN blob_refs r ON r.blob = b.key AND r.thread = $1",
        " JOIN threads t ON t.key = $1 AND t.tenant = b.tenant",
        " WHERE b.hash = $2 AND ($3::bigint IS NULL OR b.length = $3) LIMIT 1"
    );
    let wanted = length.map(u64::cast_signed);
    let found = row::query_opt(conn, sql, &[&thread.0, &hash.as_slice(), &wanted]).await?;
    let Some(found) = found else { return Ok(None) };
    let bytes = Bytes::from(found.get::<_, Vec<u8>>(3));
    let length: i64 = found.get(0);
    let blob = BlobRef { hash: *hash, length: length.cast_unsigned(), is_text: found.get(1) };
    if !is_blob_whole(hash, length, found.get(2), &bytes) {
        let error = damaged("a stored blob does not match its hash");
        return Err(PostgresError::Damaged(Some(thread), error));
    }
    Ok(Some((blob, bytes)))
}
