use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{AgentName, CheckpointKey, RunKey, TenantId, ThreadKey, lock};

use super::connection::Connection;
use super::connection::GROUP_WRITERS;
use super::database::{Database, KeyBlock};
use super::error::PostgresError;
use super::group_writer::{self, QueuedAppend};
use super::handover::stand_in;
use super::node::Node;
use super::{PostgresStore, agents, blob, row};
use crate::core::batch::{PERMIT_BYTES, blob_ref};
use crate::core::ownership::{Acquisition, LogEnd, Ownership, acquisition};
use crate::core::{closed_error, no_thread, task_error};
use crate::port::{Append, Batch, NodeAddress, OwnedThread};
use crate::rows::ThreadRow;
use crate::sql::lookups::owned_thread;

pub(super) const HEAD: &str = "SELECT owner_node, epoch, last, stamp FROM heads WHERE thread = $1";
/// The same, locked until the transaction ends.
const LOCKED_HEAD: &str =
    "SELECT owner_node, epoch, last, stamp FROM heads WHERE thread = $1 FOR UPDATE";

/// The owner of a thread's log, and the log's end.
pub(super) struct ThreadHead {
    /// The id of the node that owns the thread, alive or dead. Empty if no node owns it.
    pub(super) owner: String,
    end: LogEnd,
}

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
        // The room is taken before the place in the queue, so that waiting appends are bounded by bytes too.
        let permits = u32::try_from(bytes / PERMIT_BYTES).unwrap_or(u32::MAX);
        let room = Arc::clone(&database.room).acquire_many_owned(permits);
        let room = room.await.map_err(|_| closed_error())?;
        // One writer for all appends of a thread keeps their order.
        let index = batch.thread.0.unsigned_abs() as usize % GROUP_WRITERS;
        let writer = lock(&self.writers).get(index).cloned().ok_or_else(closed_error)?;
        let (reply, outcome) = oneshot::channel();
        let append = group_writer::StampedBatch {
            batch,
            bytes,
            // Drawn once for all tries: a retry recognises by it what an earlier try has stored.
            stamp: KeyBlock::next(&database.keys.stamp),
        };
        writer.send(QueuedAppend { append, reply, room }).await.map_err(|_| closed_error())?;
        outcome.await.unwrap_or_else(|_| Err(closed_error()))
    }

    async fn put_blob(&self, tenant: &TenantId, bytes: Bytes, is_text: bool) -> Result<BlobRef> {
        let hashed = bytes.clone();
        let naming = tokio::task::spawn_blocking(move || blob_ref(&hashed, is_text));
        let blob = naming.await.map_err(|error| task_error(&error))??;
        blob::put(&self.database, tenant, &blob, &bytes).await?;
        Ok(blob)
    }

    async fn acquire(&self, thread: ThreadKey, node: &str) -> Result<OwnedThread> {
        let database = &self.database;
        database.health.check_thread(thread)?;
        // Before the look-up: what this node writes meanwhile is behind what that finds.
        let known = database.acknowledged.end(thread);
        let found = database.read(|conn| async move {
            find_owned_thread(&conn, database, thread, node, known).await
        });
        // No lock is needed: the database compares the epoch again with each append.
        if let Some(kept) = found.await? {
            return Ok(kept);
        }
        let taken = database
            .write(|conn| async move { take_over(&conn, database, thread, node).await })
            .await?;
        // The frames in memory may end before those of another node.
        database.tails.advance_end(thread, taken.last);
        Ok(taken)
    }

    async fn take_for_agent(&self, thread: &ThreadRow, agent: &AgentName) -> Result<()> {
        let database = &self.database;
        let Some(node) = &database.node else { return Ok(()) };
        if database.is_draining()
            || !node.published_agents.lacks(&thread.owner_node, agent.as_str())
        {
            return Ok(());
        }
        let key = thread.key;
        let taken = database.write(|conn| async move {
            take_idle(&conn, database, node, key, agent.as_str()).await
        });
        if let Some(last) = taken.await? {
            // As in `acquire`: the frames in memory may end before those of the other node.
            database.tails.advance_end(key, last);
        }
        Ok(())
    }
}

/// The thread, if the node owns it. A draining node gives up the threads that are requested from it.
async fn find_owned_thread(
    conn: &Connection,
    database: &Database,
    thread: ThreadKey,
    node: &str,
    known: Option<LogEnd>,
) -> Result<Option<OwnedThread>, PostgresError> {
    let ThreadHead { owner, end } = head(conn, thread, HEAD).await?;
    database.check_log(conn, thread, known, end).await?;
    if database.is_draining() {
        let live = other_live_owner(conn, database, &owner, node).await?;
        let stand_in = stand_in(conn, database, thread).await?;
        let found = Ownership {
            is_ours: owner == node,
            is_owner_alive: live.is_some(),
            has_stand_in: stand_in.is_some(),
            epoch: 0,
        };
        match (acquisition(found), live, stand_in) {
            (Acquisition::Elsewhere, Some(owner), _) => return Err(owner.elsewhere(owns).into()),
            (Acquisition::GiveUp, _, Some(elsewhere)) => {
                // The condition on the owner leaves the thread to a node that has taken it meanwhile.
                let sql = "UPDATE heads SET owner_node = '' WHERE thread = $1 AND owner_node = $2";
                row::execute(conn, sql, &[&thread.0, &node]).await?;
                return Err(elsewhere.into());
            }
            _ => {}
        }
    }
    if owner != node {
        return Ok(None);
    }
    let found = owned_thread(conn, &database.reader, thread, end.last).await?;
    // One that was handed over to this node is taken over first.
    Ok(Some(found).filter(|found| found.thread.owner_node == node))
}

/// The owner of a thread, if it is alive and not `node`.
async fn other_live_owner(
    conn: &Connection,
    database: &Database,
    owner: &str,
    node: &str,
) -> Result<Option<NodeAddress>, PostgresError> {
    match &database.node {
        Some(us) if owner != node => us.live(conn, owner).await,
        _ => Ok(None),
    }
}

/// The reason that a request belongs to the owner of its thread.
fn owns(name: &str) -> String {
    format!("the node '{name}' owns the thread")
}

/// Makes a node the owner of a thread, unless it is. Locks the head first, as an append does, so that the two cannot deadlock.
async fn take_over(
    conn: &Connection,
    database: &Database,
    thread: ThreadKey,
    node: &str,
) -> Result<OwnedThread, PostgresError> {
    let ThreadHead { owner, end } = head(conn, thread, LOCKED_HEAD).await?;
    // Under the lock: of two nodes that take the thread, the second finds the first as its owner.
    let live = other_live_owner(conn, database, &owner, node).await?;
    // Also under the lock: no append changes these rows before this transaction ends.
    let mut taken = owned_thread(conn, &database.reader, thread, end.last).await?;
    let found = Ownership {
        is_ours: owner == node && taken.thread.owner_node == node,
        is_owner_alive: live.is_some(),
        has_stand_in: false,
        epoch: taken.thread.epoch,
    };
    match (acquisition(found), live) {
        (Acquisition::Elsewhere, Some(owner)) => return Err(owner.elsewhere(owns).into()),
        (Acquisition::TakeOver { epoch }, _) => {
            if let Some(us) = database.node.as_ref().filter(|_| owner != node) {
                agents::check_take_over(conn, &us.published_agents, database.ownership(), thread)
                    .await?;
            }
            assign(conn, &mut taken.thread, node, epoch).await?;
        }
        _ => return Ok(taken),
    }
    taken.is_taken_over = true;
    Ok(taken)
}

/// Writes the owner of a thread whose head is locked, and the epoch that begins.
async fn assign(
    conn: &Connection,
    thread: &mut ThreadRow,
    node: &str,
    epoch: u64,
) -> Result<(), PostgresError> {
    node.clone_into(&mut thread.owner_node);
    thread.epoch = epoch;
    let (key, epoch) = (thread.key.0, thread.epoch.cast_signed());
    let body = crate::record::Record::encode(thread);
    let sql = "UPDATE threads SET owner_node = $2, epoch = $3, body = $4 WHERE key = $1";
    row::execute(conn, sql, &[&key, &node, &epoch, &body]).await?;
    // In the same transaction: from its commit on, appends of the previous owner do not match the head.
    let sql = "UPDATE heads SET owner_node = $2, epoch = $3 WHERE thread = $1";
    row::execute(conn, sql, &[&key, &node, &epoch]).await?;
    Ok(())
}

/// Makes this node the owner of a thread without open runs, if its live owner does not have an agent. Returns the end of its log, or `None` if the owner is not such a node.
/// Fails with `thread_elsewhere` if the thread has an open run.
async fn take_idle(
    conn: &Connection,
    database: &Database,
    node: &Node,
    thread: ThreadKey,
    agent: &str,
) -> Result<Option<u64>, PostgresError> {
    // Before the head, as in `acquire`.
    let known = database.acknowledged.end(thread);
    // Locked first: no run can be stored between the check for open runs and the take-over.
    let ThreadHead { owner, end } = head(conn, thread, LOCKED_HEAD).await?;
    database.check_log(conn, thread, known, end).await?;
    let sql = "SELECT name FROM nodes WHERE id = $1 AND id <> $2 AND NOT agents ? $3";
    let Some(lacking) = row::query_opt(conn, sql, &[&owner, &node.id, &agent]).await? else {
        return Ok(None);
    };
    let mut taken = owned_thread(conn, &database.reader, thread, end.last).await?;
    if !taken.open_runs.is_empty() {
        let name: &str = lacking.get(0);
        let message = format!(
            "the node '{}' owns the thread and does not have the agent '{agent}'",
            name.escape_debug()
        );
        return Err(Error::new(Code::ThreadElsewhere, message)
            .hint("send the request again when the thread's run has ended")
            .into());
    }
    let epoch = taken.thread.epoch + 1;
    assign(conn, &mut taken.thread, &node.id, epoch).await?;
    Ok(Some(taken.last))
}

/// The head of a thread. Fails with `thread_not_found`.
pub(super) async fn head(
    conn: &Connection,
    thread: ThreadKey,
    sql: &str,
) -> Result<ThreadHead, PostgresError> {
    let found = row::query_opt(conn, sql, &[&thread.0]).await?;
    let found = found.ok_or_else(|| no_thread(thread))?;
    let number = |index| found.get::<_, i64>(index).cast_unsigned();
    let end = LogEnd { epoch: number(1), last: number(2), stamp: found.get(3) };
    Ok(ThreadHead { owner: found.get(0), end })
}

/// The last number of a thread's log. Zero if the log is empty.
pub(super) async fn last_number(
    conn: &Connection,
    thread: ThreadKey,
) -> Result<u64, PostgresError> {
    let sql = "SELECT last FROM heads WHERE thread = $1";
    let found = row::query_opt(conn, sql, &[&thread.0]).await?;
    Ok(found.map_or(0, |row| row.get::<_, i64>(0).cast_unsigned()))
}
