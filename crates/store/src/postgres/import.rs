//! Writes a copy of another engine: one transaction into an empty store, compared before it is committed.

use std::sync::{Arc, LazyLock};

use tokio::sync::{Mutex, mpsc};
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::{Code, Error, Result};

use super::change::{FollowedRows, RowStatement};
use super::connection::Connection;
use super::database::{Database, KeyBlock, OpenTransaction};
use super::error::{PostgresError, Remedy};
use super::export::DatabaseExport;
use super::group::{send, send_all};
use super::row::{self, Param, bind, numbered};
use super::{PostgresStore, blob, frames, queue};
use crate::core::table::{Column, TableRow};
use crate::core::transfer::{
    BlobName, CopyPart, CopyProgress, CopyStep, ImportEnd, StoreSums, StoredBlob, differs,
};
use crate::port::Change;
use crate::sql::{configurations, tokens};

/// Locks the tables for the duration of the copy: no other process may write, and the time between two parts is not bounded.
const BEGIN: &str = concat!(
    "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;",
    " LOCK TABLE threads, heads, frames, gaps, runs, messages, checkpoints, interrupts, bindings,",
    " idempotency, queue, tokens, configurations, blobs, blob_refs, search",
    " IN SHARE ROW EXCLUSIVE MODE"
);
const IS_USED: &str = concat!(
    "SELECT EXISTS (SELECT 1 FROM threads) OR EXISTS (SELECT 1 FROM runs)",
    " OR EXISTS (SELECT 1 FROM tokens) OR EXISTS (SELECT 1 FROM configurations)",
    " OR EXISTS (SELECT 1 FROM queue) OR EXISTS (SELECT 1 FROM blobs)"
);
/// Moves the sequence past the openings whose keys are in the copy, so that the next opening has a higher number. A rollback does not reset the sequence, which only skips numbers.
const PASS_OPENING: &str = "SELECT setval('openings', greatest(last_value, $1)) FROM openings";
const FRAMES: &str = concat!(
    "INSERT INTO frames (thread, run, first, last, first_run, body) SELECT * FROM",
    " unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[])"
);
/// A copied thread has no owner.
const HEADS: &str = concat!(
    "INSERT INTO heads (thread, owner_node, epoch, last, stamp)",
    " SELECT thread, '', epoch, last, 0 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])",
    " AS h(thread, epoch, last)"
);
const GAPS: &str = concat!(
    "INSERT INTO gaps (thread, first, last)",
    " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])"
);
const BLOB_NAMES: &str = concat!(
    "INSERT INTO blob_refs (thread, run, blob, is_text)",
    " SELECT r.thread, r.run, b.key, r.is_text FROM unnest($1::bigint[], $2::bigint[],",
    " $3::boolean[], $4::text[], $5::bytea[], $6::bigint[])",
    " AS r(thread, run, is_text, tenant, hash, length)",
    " JOIN blobs b ON b.tenant = r.tenant AND b.hash = r.hash AND b.length = r.length"
);
static TOKENS: LazyLock<String> = LazyLock::new(|| numbered(tokens::PUT));
static CONFIGURATIONS: LazyLock<String> = LazyLock::new(|| numbered(configurations::CREATE));
/// Without this, the first look-ups would be planned as if the tables were empty.
const ANALYZE: &str = concat!(
    "ANALYZE threads, heads, frames, gaps, runs, messages, checkpoints, interrupts, bindings,",
    " idempotency, queue, tokens, configurations, blobs, blob_refs, search"
);

/// Writes the parts of another store, and reports the progress.
struct Import<'d, P> {
    database: &'d Database,
    parts: mpsc::Receiver<CopyPart>,
    progress: P,
    total: u64,
    /// The objects that were uploaded to the bucket. They are removed if the copy fails.
    objects: Vec<String>,
}

// === impl PostgresStore ===

impl PostgresStore {
    /// Writes the parts of another store, which has about `total` rows. Commits if both stores have the same content; otherwise nothing is stored.
    /// Errors: `already_exists` if this store is not empty; `store_locked` if another process writes to it; `shutting_down` if the parts end too early; and as [`crate::port::Append::append`].
    pub(crate) async fn import(
        &self,
        parts: mpsc::Receiver<CopyPart>,
        total: u64,
        progress: impl FnMut(CopyProgress) + Send,
    ) -> Result<ImportEnd> {
        let database = &*self.database;
        let import = &Mutex::new(Import { database, parts, progress, total, objects: Vec::new() });
        let copy = |conn: Arc<OpenTransaction>| async move { import.lock().await.run(&conn).await };
        let imported = database.transact_once(&copy).await;
        if let (Err(fail), Some(bucket)) = (&imported, &database.bucket)
            && !matches!(fail, PostgresError::Uncertain(_))
        {
            blob::give_up(database, bucket, &import.lock().await.objects).await;
        }
        imported.map_err(|fail| match (&fail, fail.remedy()) {
            (PostgresError::Uncertain(_), _) => {
                database.settle(fail).hint("copy again: that is refused where it was stored")
            }
            (_, Remedy::Retry) => {
                let store = database.health.path().display();
                let message = format!("another program writes to the store '{store}'");
                Error::new(Code::StoreLocked, message)
                    .hint("stop what uses that database, or name another one")
            }
            (_, Remedy::Reconnect) => database
                .settle(fail)
                .hint("nothing was stored; when the database can be reached, copy again"),
            _ => database.settle(fail),
        })
    }
}

// === impl Import ===

impl<P: FnMut(CopyProgress) + Send> Import<'_, P> {
    async fn run(&mut self, conn: &Connection) -> Result<ImportEnd, PostgresError> {
        conn.batch_execute(BEGIN).await?;
        let is_used = row::query_opt(conn, IS_USED, &[]).await?.is_some_and(|found| found.get(0));
        if is_used {
            let store = self.database.health.path().display();
            let message = format!("there are threads, runs or tokens in the store '{store}'");
            return Err(Error::new(Code::AlreadyExists, message)
                .hint("name an empty database; one that a server was started with holds its first token")
                .into());
        }
        let mut rows = 0;
        let end = loop {
            match self.parts.recv().await {
                Some(CopyPart::End { sums, events }) => break ImportEnd { sums: *sums, events },
                Some(part) => {
                    self.write(conn, &part).await?;
                    rows += part.len() as u64;
                    (self.progress)(CopyProgress {
                        step: CopyStep::Write,
                        rows,
                        total: self.total,
                    });
                }
                // The reader failed, and reports the reason.
                None => return Err(PostgresError::Closed),
            }
        };
        let written = self.read_again(conn, &end.sums).await?;
        if let Some(difference) = end.sums.difference(&written) {
            return Err(differs(&difference).into());
        }
        conn.batch_execute(ANALYZE).await?;
        Ok(end)
    }

    async fn write(&mut self, conn: &Connection, part: &CopyPart) -> Result<(), PostgresError> {
        let (CopyPart::Blobs(blobs), Some(bucket)) = (part, &self.database.bucket) else {
            return write_part(conn, part).await;
        };
        for stored in blobs {
            let StoredBlob { id, crc, data } = stored;
            let length = id.length.cast_unsigned();
            if length < bucket.min_bytes {
                send_all(conn, &[insert_blob(stored)]).await?;
                continue;
            }
            let hash = id.hash.as_slice().try_into().unwrap_or_default();
            let blob = BlobRef { hash, length, is_text: false };
            let uploading =
                blob::upload(self.database, bucket, &id.tenant, &blob, data.clone()).await;
            let object = uploading?;
            let stored = blob::end_upload(conn, &id.tenant, &blob, *crc, &object).await;
            self.objects.push(object);
            stored?;
        }
        Ok(())
    }

    /// Reads everything that was written, and checks it.
    async fn read_again(
        &mut self,
        conn: &Connection,
        expected: &StoreSums,
    ) -> Result<StoreSums, PostgresError> {
        let (total, progress) = (expected.total(), &mut self.progress);
        let mut tell = |rows| progress(CopyProgress { step: CopyStep::Verify, rows, total });
        DatabaseExport::new(self.database, conn, None, &mut tell).everything().await
    }
}

/// Writes a part; its statements are sent at once.
async fn write_part(conn: &Connection, part: &CopyPart) -> Result<(), PostgresError> {
    match part {
        CopyPart::Rows(changes) => write_rows(conn, changes).await,
        CopyPart::Frames(rows) => {
            let params = frames::values(rows.iter()).into();
            send_all(conn, &[RowStatement::new(FRAMES, params)]).await
        }
        CopyPart::Heads(rows) => send_all(conn, &[RowStatement::new(HEADS, numbers(rows))]).await,
        CopyPart::Gaps(rows) => send_all(conn, &[RowStatement::new(GAPS, numbers(rows))]).await,
        CopyPart::Queue(entries) => {
            let statements: Vec<_> = entries.iter().map(queue::entry_statement).collect();
            send_all(conn, &statements).await
        }
        CopyPart::Tokens(rows) => send_all(conn, &inserts(&TOKENS, rows)).await,
        CopyPart::Configurations(rows) => send_all(conn, &inserts(&CONFIGURATIONS, rows)).await,
        CopyPart::Blobs(blobs) => {
            let statements: Vec<_> = blobs.iter().map(insert_blob).collect();
            send_all(conn, &statements).await
        }
        CopyPart::BlobNames(names) => {
            send_all(conn, &[RowStatement::new(BLOB_NAMES, blob_names(names))]).await
        }
        CopyPart::End { .. } => Ok(()),
    }
}

/// Writes rows of threads, then the rows that depend on them.
async fn write_rows(conn: &Connection, changes: &[Change]) -> Result<(), PostgresError> {
    pass_key(conn, changes).await?;
    let statements: Vec<_> = changes.iter().filter_map(RowStatement::of).collect();
    let results = send(conn, statements.iter()).await?;
    let (mut follow, mut noted) = (Vec::new(), FollowedRows::default());
    for (statement, rows) in statements.iter().zip(results) {
        let rows = rows.map_err(|fail| statement.blame(fail))?;
        follow.extend(statement.follow(&rows, &mut noted)?);
    }
    send_all(conn, &follow).await
}

/// Notes the opening of the copied keys. The keys do not change, and no later opening of this store may give one of them again.
async fn pass_key(conn: &Connection, changes: &[Change]) -> Result<(), PostgresError> {
    let key = |change: &Change| match change {
        Change::Thread(row) => row.key.0,
        Change::Run(row) => row.key.0,
        Change::Checkpoint(row) => row.key.0,
        _ => 0,
    };
    let opening = changes.iter().map(key).max().map_or(0, KeyBlock::opening_of);
    if opening > 0 {
        row::query(conn, PASS_OPENING, &[&opening]).await?;
    }
    Ok(())
}

fn inserts<'a, R: TableRow>(sql: &'a str, rows: &'a [R]) -> Vec<RowStatement<'a>> {
    rows.iter().map(|row| RowStatement::new(sql, bind(row, row.columns().as_ref()))).collect()
}

fn insert_blob(blob: &StoredBlob) -> RowStatement<'_> {
    let mut params: Vec<_> = blob.id.columns().map(Param::Column).into();
    params.push(Param::integer(blob.crc));
    params.push(Param::bytes(&blob.data));
    params.push(Param::Column(Column::Null));
    RowStatement::new(blob::INSERT, params)
}

fn numbers(rows: &[[i64; 3]]) -> Vec<Param<'_>> {
    let column = |index: usize| Param::Integers(rows.iter().map(|row| row[index]).collect());
    vec![column(0), column(1), column(2)]
}

fn blob_names(names: &[BlobName]) -> Vec<Param<'_>> {
    vec![
        Param::Integers(names.iter().map(|name| name.thread).collect()),
        Param::Integers(names.iter().map(|name| name.run).collect()),
        Param::Flags(names.iter().map(|name| name.is_text).collect()),
        Param::Texts(names.iter().map(|name| name.blob.tenant.as_str()).collect()),
        Param::Bodies(names.iter().map(|name| name.blob.hash.as_slice()).collect()),
        Param::Integers(names.iter().map(|name| name.blob.length).collect()),
    ]
}
