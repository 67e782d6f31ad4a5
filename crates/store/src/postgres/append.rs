use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::Result;
use trilogue_domain::{CheckpointKey, RunKey, TenantId, ThreadKey, lock};

use super::connection::Connection;
use super::connection::GROUP_WRITERS;
use super::database::{Database, KeyBlock};
use super::error::PostgresError;
use super::group_writer::{self, QueuedAppend};
use super::{PostgresStore, blob, frames, row};
use crate::core::batch::{PERMIT_BYTES, blob_ref};
use crate::core::{closed, no_thread};
use crate::port::{Append, Batch, OwnedThread};
use crate::rows::{InterruptRow, RunRow, ThreadRow};

#[async_trait]
impl Append for PostgresStore {
    fn next_thread_key(&self) -> ThreadKey {
        ThreadKey(KeyBlock::next(&self.database.keys.thread))
    }

    fn next_run_key(&self) -> RunKey {
        RunKey(KeyBlock::next(&self.database.keys.run))
    }

    fn next_checkpoint_key(&self) -> CheckpointKey {
        CheckpointKey(KeyBlock::next(&self.database.keys.checkpoint))
    }

    fn node(&self) -> Option<&str> {
        self.database.node.as_ref().map(|node| node.id.as_str())
    }

    async fn append(&self, batch: Batch) -> Result<()> {
        let database = &self.database;
        let bytes = batch.check_form()?;
        database.health.check_write(batch.vital)?;
        if !batch.removes_thread() {
            database.health.check_thread(batch.thread)?;
        }
        let permits = u32::try_from(bytes / PERMIT_BYTES).unwrap_or(u32::MAX);
        let room = Arc::clone(&database.room).acquire_many_owned(permits);
        let room = room.await.map_err(|_| closed())?;
        let index = batch.thread.0.unsigned_abs() as usize % GROUP_WRITERS;
        let writer = lock(&self.writers).get(index).cloned().ok_or_else(closed)?;
        let (reply, outcome) = oneshot::channel();
        let append = group_writer::StampedBatch {
            batch,
            bytes,
            stamp: KeyBlock::next(&database.keys.stamp),
        };
        writer.send(QueuedAppend { append, reply, room }).await.map_err(|_| closed())?;
        outcome.await.unwrap_or_else(|_| Err(closed()))
    }

    async fn put_blob(&self, tenant: &TenantId, bytes: Bytes, is_text: bool) -> Result<BlobRef> {
        let hashed = bytes.clone();
        let naming = tokio::task::spawn_blocking(move || blob_ref(&hashed, is_text));
        let blob = naming.await.unwrap_or_else(|_| Err(closed()))?;
        blob::put(&self.database, tenant, &blob, &bytes).await?;
        Ok(blob)
    }

    async fn acquire(&self, thread: ThreadKey, node: &str) -> Result<OwnedThread> {
        let database = &self.database;
        database.health.check_thread(thread)?;
        let found =
            database.read(|conn| async move { acquired(&conn, database, thread).await }).await?;
        if found.thread.owner_node == node {
            return Ok(found);
        }
        let taken = database
            .write(|conn| async move { take_over(&conn, database, thread, node).await })
            .await?;
        // What is kept of its log may end before what others wrote.
        database.tails.continued(thread, taken.last);
        Ok(taken)
    }
}

/// Makes a node the owner of a thread, unless it is. The head is locked first, as an append locks it.
async fn take_over(
    conn: &Connection,
    database: &Database,
    thread: ThreadKey,
    node: &str,
) -> Result<OwnedThread, PostgresError> {
    let sql = "SELECT owner_node FROM heads WHERE thread = $1 FOR UPDATE";
    let head = row::query_opt(conn, sql, &[&thread.0]).await?;
    let head = head.ok_or_else(|| no_thread(thread))?;
    if let Some(us) = &database.node {
        us.check_owner(conn, head.get(0)).await?;
    }
    let mut taken = acquired(conn, database, thread).await?;
    if taken.thread.owner_node == node {
        return Ok(taken);
    }
    node.clone_into(&mut taken.thread.owner_node);
    taken.thread.epoch += 1;
    taken.is_taken_over = true;
    let epoch = taken.thread.epoch.cast_signed();
    let body = crate::record::Record::encode(&taken.thread);
    let sql = "UPDATE threads SET owner_node = $2, epoch = $3, body = $4 WHERE key = $1";
    row::execute(conn, sql, &[&thread.0, &node, &epoch, &body]).await?;
    let sql = "UPDATE heads SET owner_node = $2, epoch = $3 WHERE thread = $1";
    row::execute(conn, sql, &[&thread.0, &node, &epoch]).await?;
    Ok(taken)
}

async fn acquired(
    conn: &Connection,
    database: &Database,
    thread: ThreadKey,
) -> Result<OwnedThread, PostgresError> {
    let found = row::one::<ThreadRow>(conn, "WHERE key = $1", &[&thread.0]).await?;
    let found = found.ok_or_else(|| no_thread(thread))?;
    let open = "WHERE thread = $1 AND ended_at IS NULL ORDER BY position";
    let mut open_runs = row::many::<RunRow>(conn, open, &[&thread.0]).await?;
    for run in &mut open_runs {
        // The row was written at a boundary; the log may have gone on.
        let last = frames::last_of_run(conn, &database.reader, thread, run.key).await?;
        run.last_run_number = run.last_run_number.max(last);
    }
    let pending = "WHERE thread = $1 AND pending ORDER BY key";
    Ok(OwnedThread {
        last: last_number(conn, thread).await?,
        thread: found,
        open_runs,
        pending: row::many::<InterruptRow>(conn, pending, &[&thread.0]).await?,
        is_taken_over: false,
    })
}

/// The last number of a thread's log; zero where there is none.
pub(super) async fn last_number(
    conn: &Connection,
    thread: ThreadKey,
) -> Result<u64, PostgresError> {
    let sql = "SELECT last FROM heads WHERE thread = $1";
    let found = row::query_opt(conn, sql, &[&thread.0]).await?;
    Ok(found.map_or(0, |row| row.get::<_, i64>(0).cast_unsigned()))
}
