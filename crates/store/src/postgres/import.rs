//! Writing what is copied from another engine: one transaction into an empty store, compared before it is committed.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{TryStreamExt, pin_mut};
use tokio::sync::{Mutex, mpsc};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{TenantId, ThreadKey};

use super::change::RowStatement;
use super::connection::Connection;
use super::database::{Database, KeyBlock, OpenTransaction};
use super::error::{PostgresError, Remedy};
use super::group::{send, send_all};
use super::row::{self, Param, bind};
use super::{PostgresStore, blob, configuration, frames, queue, tokens};
use crate::core::batch::is_blob_whole;
use crate::core::damaged;
use crate::core::table::TableRow;
use crate::core::transfer::{
    BlobId, BlobName, CopyPart, CopyProgress, CopyStep, StoreSums, StoredBlob,
};
use crate::port::Change;
use crate::rows::{
    BindingRow, CheckpointRow, ConfigurationRow, IdempotencyRow, InterruptRow, MessageRow, RunRow,
    ThreadRow, TokenRow,
};

/// After as many rows that were read again, it is said how far that is.
const PROGRESS_ROWS: u64 = 256;

/// For as long as the copy takes: nobody else writes, and the time between two parts is not bounded.
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
const FRAMES: &str = concat!(
    "INSERT INTO frames (thread, run, first, last, first_run, body) SELECT * FROM",
    " unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[])"
);
/// No node owns a thread that was copied.
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
/// Without this, the first look-ups would be planned as those of empty tables.
const ANALYZE: &str = concat!(
    "ANALYZE threads, heads, frames, gaps, runs, messages, checkpoints, interrupts, bindings,",
    " idempotency, queue, tokens, configurations, blobs, blob_refs, search"
);

/// What was copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ImportEnd {
    pub(crate) sums: StoreSums,
    pub(crate) events: u64,
}

/// The parts of another store, with those who want to know how far it is.
struct Import<'d, P> {
    database: &'d Database,
    parts: mpsc::Receiver<CopyPart>,
    progress: P,
    total: u64,
}

// === impl PostgresStore ===

impl PostgresStore {
    /// Writes the parts of another store, which has about `total` rows, and commits when both hold the same. Otherwise nothing is stored.
    /// Errors: `already_exists` when there is anything in this store; `store_locked` when something else writes to it; `shutting_down` when the parts end too early; and as [`crate::port::Append::append`].
    pub(crate) async fn import(
        &self,
        parts: mpsc::Receiver<CopyPart>,
        total: u64,
        progress: impl FnMut(CopyProgress),
    ) -> Result<ImportEnd> {
        let database = &*self.database;
        let import = &Mutex::new(Import { database, parts, progress, total });
        let copy = |conn: Arc<OpenTransaction>| async move { import.lock().await.run(&conn).await };
        database.transact_once(&copy).await.map_err(|fail| match (&fail, fail.remedy()) {
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

impl<P: FnMut(CopyProgress)> Import<'_, P> {
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
                    write(conn, &part).await?;
                    rows += part.len() as u64;
                    (self.progress)(CopyProgress {
                        step: CopyStep::Write,
                        rows,
                        total: self.total,
                    });
                }
                // Its reader failed, and says why.
                None => return Err(PostgresError::Closed),
            }
        };
        let written = self.read_again(conn, &end.sums).await?;
        if let Some(difference) = end.sums.difference(&written) {
            let message = format!("what was written differs from what was read: {difference}");
            return Err(Error::new(Code::Internal, message)
                .hint("nothing was stored; look for triggers and rules in the database, then copy again")
                .into());
        }
        conn.batch_execute(ANALYZE).await?;
        Ok(end)
    }

    /// Reads everything that was written, and checks it.
    async fn read_again(
        &mut self,
        conn: &Connection,
        expected: &StoreSums,
    ) -> Result<StoreSums, PostgresError> {
        let mut check = Check {
            conn,
            sums: StoreSums::default(),
            progress: &mut self.progress,
            total: expected.total(),
        };
        check.rows::<ThreadRow>().await?;
        check.rows::<RunRow>().await?;
        check.rows::<MessageRow>().await?;
        check.rows::<CheckpointRow>().await?;
        check.rows::<InterruptRow>().await?;
        check.rows::<BindingRow>().await?;
        check.rows::<IdempotencyRow>().await?;
        check.rows::<TokenRow>().await?;
        check.rows::<ConfigurationRow>().await?;
        let reader = &self.database.reader;
        let frame = |sums: &mut StoreSums, row: &Row| {
            sums.frame(&frames::stored(row, ThreadKey(row.get(0)), reader)?);
            Ok(())
        };
        check.each(frames::ALL, frame).await?;
        for (table, sql) in [
            ("heads", "SELECT thread, epoch, last FROM heads"),
            ("gaps", "SELECT thread, first, last FROM gaps"),
        ] {
            let numbers = |sums: &mut StoreSums, row: &Row| {
                sums.numbers(table, &[row.get(0), row.get(1), row.get(2)]);
                Ok(())
            };
            check.each(sql, numbers).await?;
        }
        let entry = |sums: &mut StoreSums, row: &Row| {
            sums.entry(&queue::entry(row)?.1);
            Ok(())
        };
        check.each(&queue::select_all(), entry).await?;
        check.each("SELECT tenant, hash, length, crc, data FROM blobs", stored_blob).await?;
        let names = concat!(
            "SELECT b.tenant, b.hash, b.length, r.thread, r.run, r.is_text",
            " FROM blob_refs r JOIN blobs b ON b.key = r.blob"
        );
        check.each(names, blob_name).await?;
        Ok(check.sums)
    }
}

/// Writes a part, its statements sent at once.
async fn write(conn: &Connection, part: &CopyPart) -> Result<(), PostgresError> {
    match part {
        CopyPart::Rows(changes) => write_rows(conn, changes).await,
        CopyPart::Frames(rows) => {
            let params = frames::values(rows.iter()).into();
            send_all(conn, &[RowStatement::new(FRAMES, params)]).await
        }
        CopyPart::Heads(rows) => send_all(conn, &[RowStatement::new(HEADS, numbers(rows))]).await,
        CopyPart::Gaps(rows) => send_all(conn, &[RowStatement::new(GAPS, numbers(rows))]).await,
        CopyPart::Queue(entries) => {
            let statements: Vec<_> = entries.iter().map(queue::settled).collect();
            send_all(conn, &statements).await
        }
        CopyPart::Tokens(rows) => send_all(conn, &inserts(&tokens::PUT, rows)).await,
        CopyPart::Configurations(rows) => {
            send_all(conn, &inserts(&configuration::CREATE, rows)).await
        }
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

/// Writes rows of threads, then what follows from them.
async fn write_rows(conn: &Connection, changes: &[Change]) -> Result<(), PostgresError> {
    for change in changes {
        check_key(change)?;
    }
    let statements: Vec<_> = changes.iter().filter_map(RowStatement::of).collect();
    let results = send(conn, statements.iter()).await?;
    let (mut follow, mut noted) = (Vec::new(), HashSet::new());
    for (statement, rows) in statements.iter().zip(results) {
        let rows = rows.map_err(|fail| statement.blame(fail))?;
        follow.extend(statement.follow(&rows, &mut noted)?);
    }
    send_all(conn, &follow).await
}

/// Keys stay as they are, and no opening of this store may give one of them again.
fn check_key(change: &Change) -> Result<()> {
    let key = match change {
        Change::Thread(row) => row.key.0,
        Change::Run(row) => row.key.0,
        Change::Checkpoint(row) => row.key.0,
        _ => return Ok(()),
    };
    if key < KeyBlock::FIRST_KEY {
        return Ok(());
    }
    let message = format!("the key {key} is one that the new store may give again");
    Err(Error::new(Code::InvalidRequest, message).hint("this store cannot be copied"))
}

fn inserts<'a, R: TableRow>(sql: &'a str, rows: &'a [R]) -> Vec<RowStatement<'a>> {
    rows.iter().map(|row| RowStatement::new(sql, bind(row, row.columns().as_ref()))).collect()
}

fn insert_blob(blob: &StoredBlob) -> RowStatement<'_> {
    let mut params: Vec<_> = blob.id.columns().map(Param::Column).into();
    params.push(Param::integer(blob.crc));
    params.push(Param::bytes(&blob.data));
    params.push(Param::Column(crate::core::table::Column::Null));
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

/// Sums up what the transaction has written.
struct Check<'c> {
    conn: &'c Connection,
    sums: StoreSums,
    progress: &'c mut dyn FnMut(CopyProgress),
    total: u64,
}

// === impl Check ===

impl Check<'_> {
    async fn rows<R: TableRow>(&mut self) -> Result<(), PostgresError> {
        self.each(&row::select::<R>(""), |sums, found| {
            row::take::<R>(found)?;
            sums.row::<R>(found.get(2));
            Ok(())
        })
        .await
    }

    /// Adds the rows of a statement, which are read as they come.
    async fn each(
        &mut self,
        sql: &str,
        add: impl Fn(&mut StoreSums, &Row) -> Result<(), PostgresError>,
    ) -> Result<(), PostgresError> {
        let statement = self.conn.prepare_cached(sql).await?;
        let none: [&(dyn ToSql + Sync); 0] = [];
        let rows = self.conn.query_raw(&statement, none).await?;
        pin_mut!(rows);
        while let Some(row) = rows.try_next().await? {
            add(&mut self.sums, &row)?;
            if self.sums.total().is_multiple_of(PROGRESS_ROWS) {
                self.tell();
            }
        }
        self.tell();
        Ok(())
    }

    fn tell(&mut self) {
        let (rows, total) = (self.sums.total(), self.total);
        (self.progress)(CopyProgress { step: CopyStep::Verify, rows, total });
    }
}

fn stored_blob(sums: &mut StoreSums, row: &Row) -> Result<(), PostgresError> {
    let (id, crc) = (blob_id(row)?, row.get(3));
    let data = Bytes::copy_from_slice(row.get(4));
    if !is_blob_whole(&id.hash, id.length, crc, &data) {
        return Err(damaged("a stored blob does not match its hash").into());
    }
    sums.blob(&StoredBlob { id, crc, data });
    Ok(())
}

fn blob_name(sums: &mut StoreSums, row: &Row) -> Result<(), PostgresError> {
    let (thread, run, is_text) = (row.get(3), row.get(4), row.get(5));
    sums.blob_name(&BlobName { thread, run, is_text, blob: blob_id(row)? });
    Ok(())
}

fn blob_id(row: &Row) -> Result<BlobId, PostgresError> {
    let tenant = TenantId::parse(row.get(0))?;
    Ok(BlobId { tenant, hash: row.get(1), length: row.get(2) })
}
