//! Reads a store for a copy, or to compare it with one: everything as of one moment, checked.

use std::sync::Arc;

use futures_util::{TryStreamExt, pin_mut};
use tokio::sync::mpsc;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Error, Result};

use super::blob::{self, BlobContent};
use super::connection::Connection;
use super::database::{Database, OpenTransaction};
use super::error::PostgresError;
use super::{PostgresStore, frames, row};
use crate::core::batch::is_blob_whole;
use crate::core::damaged;
use crate::core::transfer::{
    BlobId, COUNT_ROWS, CopyPart, PartRows, StoreSums, StoredBlob, uncopyable,
};
use crate::sql::export::{self, TableExport, blob_id};
use crate::sql::frames::stored;

/// The progress is reported after this many rows.
const PROGRESS_ROWS: u64 = 256;
/// All statements see the moment of the first one. The time between two statements is not bounded, because the writer waits for its disk.
const BEGIN: &str = concat!(
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = 0;",
    " SET LOCAL idle_in_transaction_session_timeout = 0"
);
/// Blobs that at least one thread names.
const BLOBS: &str = concat!(
    "SELECT tenant, hash, length, crc, data, object FROM blobs WHERE EXISTS",
    " (SELECT 1 FROM blob_refs WHERE blob_refs.blob = blobs.key) ORDER BY key"
);
/// Reads the tables one after the other, sums them up, and passes them on in parts.
pub(super) struct DatabaseExport<'e> {
    database: &'e Database,
    conn: &'e Connection,
    sums: StoreSums,
    events: u64,
    with_tokens: bool,
    /// `None` if only the sums are needed.
    parts: Option<&'e mpsc::Sender<CopyPart>>,
    progress: &'e mut (dyn FnMut(u64) + Send),
}

// === impl PostgresStore ===

impl PostgresStore {
    /// The approximate number of the store's rows.
    pub(crate) async fn count_rows(&self) -> Result<u64> {
        let count = |conn| async move {
            // A connection with this setting must not return to the pool, even if the count fails. So take it out first.
            let conn = Connection::take(conn);
            conn.batch_execute("SET statement_timeout = 0").await?;
            let found = conn.query_one(COUNT_ROWS, &[]).await?;
            Ok(found.get::<_, i64>(0).cast_unsigned())
        };
        self.database.read(count).await
    }

    /// Reads everything as of one moment, in parts. Ends early, without an error, if the receiver is gone.
    /// Errors: `thread_quarantined`, naming the thread, if some of it is damaged; and as [`crate::port::Read`].
    pub(crate) async fn export(
        &self,
        with_tokens: bool,
        parts: mpsc::Sender<CopyPart>,
    ) -> Result<()> {
        let (database, parts) = (&*self.database, &parts);
        let read = |conn: Arc<OpenTransaction>| async move {
            conn.batch_execute(BEGIN).await?;
            let progress = &mut |_| {};
            let export = DatabaseExport::new(database, &conn, Some(parts), progress);
            DatabaseExport { with_tokens, ..export }.everything().await
        };
        match database.transact_once(&read).await {
            Ok(_) => Ok(()),
            Err(PostgresError::Closed) if parts.is_closed() => Ok(()),
            Err(PostgresError::Damaged(thread, error)) => Err(self.explain(thread, &error).await),
            Err(fail) => Err(database.settle(fail).hint("copy again")),
        }
    }

    /// Adds the id of the damaged thread to an error, for people.
    async fn explain(&self, thread: Option<ThreadKey>, error: &Error) -> Error {
        let key = thread.map_or(0, |thread| thread.0);
        let sql = "SELECT id FROM threads WHERE key = $1";
        let look_up = |conn: Connection| async move { row::query_opt(&conn, sql, &[&key]).await };
        let found = self.database.read(look_up).await.ok().flatten();
        let id: Option<String> = found.map(|row| row.get(0));
        uncopyable(id.as_deref(), error)
    }
}

// === impl DatabaseExport ===

impl<'e> DatabaseExport<'e> {
    pub(super) fn new(
        database: &'e Database,
        conn: &'e Connection,
        parts: Option<&'e mpsc::Sender<CopyPart>>,
        progress: &'e mut (dyn FnMut(u64) + Send),
    ) -> Self {
        Self {
            database,
            conn,
            sums: StoreSums::default(),
            events: 0,
            with_tokens: true,
            parts,
            progress,
        }
    }

    /// Returns the sums of what was read.
    pub(super) async fn everything(mut self) -> Result<StoreSums, PostgresError> {
        let with_tokens = self.with_tokens;
        export::tables(&mut self, with_tokens).await?;
        let Self { sums, events, parts, .. } = self;
        if let Some(parts) = parts {
            let end = CopyPart::End { sums: Box::new(sums.clone()), events };
            parts.send(end).await.map_err(|_| PostgresError::Closed)?;
        }
        Ok(sums)
    }

    async fn pass(&mut self, part: CopyPart) -> Result<(), PostgresError> {
        (self.progress)(self.sums.total());
        match self.parts {
            Some(parts) => parts.send(part).await.map_err(|_| PostgresError::Closed),
            None => Ok(()),
        }
    }
}

// === impl TableExport ===

impl TableExport for DatabaseExport<'_> {
    type Connection = Connection;

    const BY_AGE: &'static str = "ORDER BY position";

    /// Adds the rows of a statement while they arrive.
    async fn each<T: Send>(
        &mut self,
        sql: &str,
        mut sum: impl FnMut(&mut StoreSums, &Row) -> Result<(T, usize), PostgresError> + Send,
        part: impl Fn(Vec<T>) -> CopyPart + Send,
    ) -> Result<(), PostgresError> {
        let mut rows = PartRows::new();
        let statement = self.conn.prepare_cached(sql).await?;
        let none: [&(dyn ToSql + Sync); 0] = [];
        let found = self.conn.query_raw(&statement, none).await?;
        pin_mut!(found);
        while let Some(row) = found.try_next().await? {
            let (row, bytes) = sum(&mut self.sums, &row)?;
            if let Some(full) = rows.add(row, bytes) {
                self.pass(part(full)).await?;
            }
            if self.sums.total().is_multiple_of(PROGRESS_ROWS) {
                (self.progress)(self.sums.total());
            }
        }
        self.pass(part(rows.into_rest())).await
    }

    async fn frames(&mut self) -> Result<(), PostgresError> {
        let (reader, is_counted) = (&self.database.reader, self.parts.is_some());
        let mut events = 0;
        let frame = |sums: &mut StoreSums, row: &Row| {
            let thread = ThreadKey(row.get(0));
            let frame = stored(row, thread, reader)?;
            if is_counted {
                let damaged = |error| PostgresError::Damaged(Some(thread), error);
                // The frame must not stay decoded in memory.
                events += frame.undecoded().events().map_err(damaged)?.len() as u64;
            }
            sums.frame(&frame);
            let bytes = frame.bytes().len();
            Ok((frame, bytes))
        };
        self.each(frames::ALL, frame, CopyPart::Frames).await?;
        self.events = events;
        Ok(())
    }

    async fn heads(&mut self) -> Result<(), PostgresError> {
        let head = |sums: &mut StoreSums, row: &Row| {
            let numbers = [row.get(0), row.get(1), row.get(2)];
            sums.numbers("heads", &numbers);
            Ok((numbers, 0))
        };
        self.each("SELECT thread, epoch, last FROM heads", head, CopyPart::Heads).await
    }

    /// Reads blobs. Content in the bucket is read from there.
    async fn blobs(&mut self) -> Result<(), PostgresError> {
        let mut rows = PartRows::new();
        let statement = self.conn.prepare_cached(BLOBS).await?;
        let none: [&(dyn ToSql + Sync); 0] = [];
        let found = self.conn.query_raw(&statement, none).await?;
        pin_mut!(found);
        while let Some(row) = found.try_next().await? {
            let id = blob_id(&row, 0)?.ok_or_else(|| damaged("a stored blob has no tenant"))?;
            let crc = row.get(3);
            let data = blob::fetch(self.database.bucket.as_ref(), BlobContent::of(&row, 4)).await?;
            if !is_blob_whole(&id.hash, id.length, crc, &data) {
                return Err(damaged_blob(self.conn, &id).await?);
            }
            let (blob, bytes) = (StoredBlob { id, crc, data: data.clone() }, data.len());
            self.sums.blob(&blob);
            if let (Some(full), Some(parts)) = (rows.add(blob, bytes), self.parts) {
                parts.send(CopyPart::Blobs(full)).await.map_err(|_| PostgresError::Closed)?;
            }
        }
        self.pass(CopyPart::Blobs(rows.into_rest())).await
    }
}

/// The error of a damaged blob, which blames a thread that names it.
async fn damaged_blob(conn: &Connection, id: &BlobId) -> Result<PostgresError, PostgresError> {
    let sql = concat!(
        "SELECT r.thread FROM blob_refs r JOIN blobs b ON b.key = r.blob",
        " WHERE b.tenant = $1 AND b.hash = $2 AND b.length = $3 LIMIT 1"
    );
    let params: &row::Params<'_> = &[&id.tenant.as_str(), &id.hash, &id.length];
    let found = row::query_opt(conn, sql, params).await?;
    let thread = found.map(|row| ThreadKey(row.get(0)));
    Ok(PostgresError::Damaged(thread, damaged("a stored blob does not match its hash")))
}
