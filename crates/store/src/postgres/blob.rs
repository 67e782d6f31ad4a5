//! Large content: stored once per tenant, named by frames, removed with the last frame that names it. It is in the database, or in a bucket if it has a certain size.
//!
//! An object of the bucket is noted in the table `blob_objects` before its upload, and stays noted until a blob has its name.
//! So if any step in between fails, the sweep finds the object in the table, without a listing of the bucket.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::MissedTickBehavior;
use tokio_postgres::Row;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{TenantId, ThreadKey};

use super::bucket::{Bucket, BucketFailure, no_bucket};
use super::change::{RowStatement, WrittenRow};
use super::connection::Connection;
use super::database::{Database, OpenTransaction};
use super::error::PostgresError;
use super::row::{self, Param};
use crate::core::batch::is_blob_whole;
use crate::core::damaged;
use crate::port::Batch;

/// How long content waits for the frame that names it, and an object of the bucket for the end of its upload. After that its writer has given up or is gone.
const WAIT: Duration = Duration::from_secs(3_600);
/// The interval between searches for objects to remove. A removal of content by this process starts a search at once.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// How many objects are removed before the table is updated, and for how long no other node tries to remove them.
const SWEEP_PART: i64 = 64;
const SWEEP_LEASE: Duration = Duration::from_secs(300);

/// Names a blob for these runs. The blob no longer waits then: a removal sees either the wait or the name.
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

/// Stores content, unless it exists. The content is empty if an object has it.
pub(super) const INSERT: &str = concat!(
    "INSERT INTO blobs (tenant, hash, length, crc, data, object) VALUES ($1, $2, $3, $4, $5, $6)",
    " ON CONFLICT (tenant, hash, length) DO UPDATE SET crc = blobs.crc",
    " RETURNING key, object, xmax = 0"
);
/// Notes an object before its upload.
const BEGIN_UPLOAD: &str = concat!(
    "INSERT INTO blob_objects (object, due) VALUES ($1, now() + make_interval(secs => $2))",
    " ON CONFLICT DO NOTHING"
);
/// Marks an object as used by a blob, so that no sweep removes it.
const END_UPLOAD: &str = "DELETE FROM blob_objects WHERE object = $1 AND NOT doomed";
const REMOVE_UPLOAD: &str = "UPDATE blob_objects SET due = now() WHERE object = $1";
const DOOM: &str = concat!(
    "UPDATE blob_objects SET doomed = TRUE, due = now() + make_interval(secs => $1)",
    " WHERE object IN (SELECT object FROM blob_objects WHERE due <= now() ORDER BY due",
    " LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING object"
);
const DELAY: &str =
    "UPDATE blob_objects SET due = now() + make_interval(secs => $2) WHERE object = ANY($1)";
const REMOVED: &str = "DELETE FROM blob_objects WHERE object = ANY($1)";

#[derive(Debug)]
struct FoundBlob {
    blob: BlobRef,
    crc: i64,
    content: BlobContent,
}

/// The row of a blob.
pub(super) struct StoredBlobRow {
    key: i64,
    object: Option<String>,
    /// Whether the row was inserted.
    is_new: bool,
}

/// Where the bytes of a blob are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum BlobContent {
    Bytes(Bytes),
    Object(String),
}

/// Stores content, and notes that this opening of the store is about to name it.
/// Fails as [`crate::port::Append::put_blob`].
pub(super) async fn put(
    database: &Database,
    tenant: &TenantId,
    blob: &BlobRef,
    bytes: &Bytes,
) -> Result<()> {
    let opening = database.keys.opening;
    let has = |conn: Arc<OpenTransaction>| async move { keep(&conn, opening, tenant, blob).await };
    let bucket = database.bucket.as_ref().filter(|bucket| blob.length >= bucket.min_bytes);
    let Some(bucket) = bucket else {
        let store = |conn: Arc<OpenTransaction>| async move {
            if keep(&conn, opening, tenant, blob).await? {
                return Ok(());
            }
            let key = insert(&conn, tenant, blob, crc(bytes), bytes, None).await?.key;
            wait(&conn, opening, key).await
        };
        return database.write(store).await;
    };
    if database.write(has).await? {
        return Ok(());
    }
    let object = &*upload(database, bucket, tenant, blob, bytes.clone()).await?;
    let store = |conn: Arc<OpenTransaction>| async move {
        let stored = end_upload(&conn, tenant, blob, crc(bytes), object).await?;
        wait(&conn, opening, stored.key).await?;
        Ok(stored)
    };
    if database.write(store).await?.object.as_deref() != Some(object) {
        database.objects_fell_due.notify_one();
    }
    Ok(())
}

/// Uploads content under a name that is noted before. Returns the name, for [`end_upload`] to give to a blob.
pub(super) async fn upload(
    database: &Database,
    bucket: &Bucket,
    tenant: &TenantId,
    blob: &BlobRef,
    bytes: Bytes,
) -> Result<String> {
    let object = Bucket::new_name(&database.id, tenant, blob);
    let (name, due) = (&object, WAIT.as_secs_f64());
    database
        .write(|conn| async move { row::execute(&conn, BEGIN_UPLOAD, &[name, &due]).await })
        .await?;
    bucket.put(&object, bytes).await.map_err(|failure| bucket.error(failure))?;
    Ok(object)
}

/// Stores content whose bytes are in an object. Returns the blob that exists now. If another node was faster, the blob has that node's object, and this one is due for removal.
pub(super) async fn end_upload(
    conn: &Connection,
    tenant: &TenantId,
    blob: &BlobRef,
    crc: i64,
    object: &str,
) -> Result<StoredBlobRow, PostgresError> {
    let stored = insert(conn, tenant, blob, crc, &[], Some(object)).await?;
    if stored.object.as_deref() != Some(object) {
        row::execute(conn, REMOVE_UPLOAD, &[&object]).await?;
        return Ok(stored);
    }
    // An earlier try may have been stored.
    if row::execute(conn, END_UPLOAD, &[&object]).await? == 0 && stored.is_new {
        let seconds = WAIT.as_secs();
        let message = format!("an upload to the bucket took longer than {seconds} s");
        return Err(Error::new(Code::StoreUnavailable, message).hint("send it again").into());
    }
    Ok(stored)
}

/// Removes uploads that no blob will use, if the bucket can be reached. A sweep removes the rest.
pub(super) async fn give_up(database: &Database, bucket: &Bucket, objects: &[String]) {
    let expire = |conn: Arc<OpenTransaction>| async move {
        let sql = "UPDATE blob_objects SET due = now() WHERE object = ANY($1)";
        row::execute(&conn, sql, &[&objects]).await
    };
    if !objects.is_empty() && database.write(expire).await.is_ok() {
        drop(sweep_objects(database, bucket).await);
    }
}

/// Whether the content exists. If so, notes that this opening is about to name it.
async fn keep(
    conn: &Connection,
    opening: i64,
    tenant: &TenantId,
    blob: &BlobRef,
) -> Result<bool, PostgresError> {
    let (hash, length) = (blob.hash.as_slice(), blob.length.cast_signed());
    let find = concat!(
        "SELECT key FROM blobs WHERE tenant = $1 AND hash = $2 AND length = $3",
        // No removal may delete it until the wait is stored.
        " FOR KEY SHARE"
    );
    let found = row::query_opt(conn, find, &[&tenant.as_str(), &hash, &length]).await?;
    let Some(found) = found else { return Ok(false) };
    wait(conn, opening, found.get(0)).await?;
    Ok(true)
}

async fn wait(conn: &Connection, opening: i64, key: i64) -> Result<(), PostgresError> {
    let wait = concat!(
        "INSERT INTO blob_waits (blob, opening) VALUES ($1, $2)",
        " ON CONFLICT (blob, opening) DO UPDATE SET since = now()"
    );
    row::execute(conn, wait, &[&key, &opening]).await?;
    Ok(())
}

/// Returns the blob that exists now.
async fn insert(
    conn: &Connection,
    tenant: &TenantId,
    blob: &BlobRef,
    crc: i64,
    data: &[u8],
    object: Option<&str>,
) -> Result<StoredBlobRow, PostgresError> {
    let (hash, length) = (blob.hash.as_slice(), blob.length.cast_signed());
    let params: &row::Params<'_> = &[&tenant.as_str(), &hash, &length, &crc, &data, &object];
    let statement = conn.prepare_cached(INSERT).await?;
    let made = conn.query_one(&statement, params).await?;
    Ok(StoredBlobRow { key: made.get(0), object: made.get(1), is_new: made.get(2) })
}

fn crc(bytes: &Bytes) -> i64 {
    i64::from(crc32c::crc32c(bytes))
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

/// Removes the given blobs that nothing names any more.
pub(super) async fn remove_unnamed(conn: &Connection, keys: &[i64]) -> Result<(), PostgresError> {
    if !keys.is_empty() {
        row::execute(conn, REMOVE_UNNAMED, &[&keys, &WAIT.as_secs_f64()]).await?;
    }
    Ok(())
}

/// Removes blobs whose frames never arrived. Returns how many.
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

/// Removes due objects until the store is closed. Objects of content that this process removed are removed at once.
pub(super) async fn sweep_bucket(database: Arc<Database>) {
    let Some(bucket) = &database.bucket else { return };
    let mut pause = tokio::time::interval(SWEEP_EVERY);
    pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = pause.tick() => {}
            () = database.objects_fell_due.notified() => {}
        }
        if let Err(error) = sweep_objects(&database, bucket).await {
            tracing::warn!(%error, "objects stay in the bucket until the next try");
        }
    }
}

/// Removes due objects. If a removal fails, any node tries it again later.
pub(super) async fn sweep_objects(database: &Database, bucket: &Bucket) -> Result<()> {
    loop {
        let lease = SWEEP_LEASE.as_secs_f64();
        let doom = |conn: Arc<OpenTransaction>| async move {
            row::query(&conn, DOOM, &[&lease, &SWEEP_PART]).await
        };
        let doomed: Vec<String> =
            database.write(doom).await?.iter().map(|row| row.get(0)).collect();
        let mut failure = None;
        let mut gone = Vec::with_capacity(doomed.len());
        for object in &doomed {
            match bucket.remove(object).await {
                Ok(()) => gone.push(object.as_str()),
                Err(why) => {
                    failure = Some(why);
                    break;
                }
            }
        }
        let gone = &gone;
        database.write(|conn| async move { row::execute(&conn, REMOVED, &[gone]).await }).await?;
        if let Some(failure) = failure {
            let left: &Vec<&str> = &doomed.iter().map(String::as_str).collect();
            let again = SWEEP_EVERY.as_secs_f64();
            let delay = |conn: Arc<OpenTransaction>| async move {
                row::execute(&conn, DELAY, &[left, &again]).await
            };
            database.write(delay).await?;
            return Err(bucket.error(failure));
        }
        if doomed.len() < usize::try_from(SWEEP_PART).unwrap_or(usize::MAX) {
            return Ok(());
        }
    }
}

/// A blob that a frame of this thread names. Reads from the bucket hold no connection to the database.
pub(super) async fn read(
    database: &Database,
    thread: ThreadKey,
    hash: &[u8; 32],
    length: Option<u64>,
) -> Result<Option<(BlobRef, Bytes)>> {
    let find = || database.read(|conn| async move { find(&conn, thread, hash, length).await });
    let Some(mut found) = find().await? else { return Ok(None) };
    let bytes = match fetch(database.bucket.as_ref(), found.content.clone()).await {
        Err(PostgresError::MissingObject(error)) => {
            // Another node may have removed it or stored it again meanwhile.
            match find().await? {
                None => return Ok(None),
                Some(again) if again.content == found.content => return Err(error),
                Some(again) => found = again,
            }
            fetch(database.bucket.as_ref(), found.content.clone()).await
        }
        fetched => fetched,
    };
    let bytes = bytes.map_err(|fail| database.settle(fail))?;
    let FoundBlob { blob, crc, .. } = found;
    if !is_blob_whole(&blob.hash, blob.length.cast_signed(), crc, &bytes) {
        let error = damaged("a stored blob does not match its hash");
        return Err(database.settle(PostgresError::Damaged(Some(thread), error)));
    }
    Ok(Some((blob, bytes)))
}

async fn find(
    conn: &Connection,
    thread: ThreadKey,
    hash: &[u8; 32],
    length: Option<u64>,
) -> Result<Option<FoundBlob>, PostgresError> {
    let sql = concat!(
        "SELECT b.length, r.is_text, b.crc, b.data, b.object FROM blobs b",
        " JOIN blob_refs r ON r.blob = b.key AND r.thread = $1",
        " JOIN threads t ON t.key = $1 AND t.tenant = b.tenant",
        " WHERE b.hash = $2 AND ($3::bigint IS NULL OR b.length = $3) LIMIT 1"
    );
    let wanted = length.map(u64::cast_signed);
    let found = row::query_opt(conn, sql, &[&thread.0, &hash.as_slice(), &wanted]).await?;
    Ok(found.map(|found| {
        let length = found.get::<_, i64>(0).cast_unsigned();
        FoundBlob {
            blob: BlobRef { hash: *hash, length, is_text: found.get(1) },
            crc: found.get(2),
            content: BlobContent::of(&found, 3),
        }
    }))
}

/// The bytes of stored content.
pub(super) async fn fetch(
    bucket: Option<&Bucket>,
    content: BlobContent,
) -> Result<Bytes, PostgresError> {
    let object = match content {
        BlobContent::Bytes(bytes) => return Ok(bytes),
        BlobContent::Object(object) => object,
    };
    let bucket = bucket.ok_or_else(no_bucket)?;
    bucket.get(&object).await.map_err(|failure| match failure {
        BucketFailure::Missing(_) => PostgresError::MissingObject(bucket.error(failure)),
        failure => bucket.error(failure).into(),
    })
}

// === impl BlobContent ===

impl BlobContent {
    /// Reads two columns: the data, and the object.
    pub(super) fn of(row: &Row, index: usize) -> Self {
        match row.get::<_, Option<String>>(index + 1) {
            Some(object) => Self::Object(object),
            None => Self::Bytes(Bytes::copy_from_slice(row.get(index))),
        }
    }
}
