use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::Result;
use trilogue_domain::{CheckpointKey, RunKey, TenantId, ThreadKey};

use super::apply;
use super::error::SqliteError;
use super::heads;
use super::job::{self, Job, WorkKind, WriteContext};
use super::row::run_to_end;
use super::{KeyCounters, SqliteStore, blob};
use crate::core::batch::{Head, blob_ref};
use crate::core::ownership::{Acquisition, Ownership, acquisition};
use crate::core::task_error;
use crate::news::Peers;
use crate::port::{Append, Batch, Nodes, OwnedThread};
use crate::sql::lookups::owned_thread;

/// One process holds the store.
impl Nodes for SqliteStore {}
impl Peers for SqliteStore {}

#[async_trait]
impl Append for SqliteStore {
    fn next_thread_key(&self) -> ThreadKey {
        ThreadKey(KeyCounters::next(&self.context.keys.thread))
    }

    fn next_run_key(&self) -> RunKey {
        RunKey(KeyCounters::next(&self.context.keys.run))
    }

    fn next_checkpoint_key(&self) -> CheckpointKey {
        CheckpointKey(KeyCounters::next(&self.context.keys.checkpoint))
    }

    async fn append(&self, batch: Batch) -> Result<()> {
        let bytes = batch.check_form()?;
        let (reply, outcome) = oneshot::channel();
        self.send(Job::Append(job::Append { batch, bytes, reply })).await?;
        self.outcome(outcome).await
    }

    async fn put_blob(&self, tenant: &TenantId, bytes: Bytes, is_text: bool) -> Result<BlobRef> {
        // Before the hash: a store that cannot write refuses without this work.
        self.context.health.check_write(false)?;
        let hashed = bytes.clone();
        let naming = tokio::task::spawn_blocking(move || blob_ref(&hashed, is_text));
        let blob = naming.await.map_err(|error| task_error(&error))??;
        let kind = WorkKind { is_vital: false, is_alone: true, bytes: bytes.len() };
        let (tenant, stored) = (tenant.clone(), blob.clone());
        self.write(kind, move |writer: &mut WriteContext<'_>| {
            blob::put(writer.conn, writer.blobs, &tenant, &stored, &bytes)
        })
        .await?;
        Ok(blob)
    }

    async fn acquire(&self, thread: ThreadKey, node: &str) -> Result<OwnedThread> {
        self.context.health.check_thread(thread)?;
        let found =
            self.read(move |conn, context| load_owned_thread(conn, context, thread)).await?;
        if found.thread.owner_node == node {
            return Ok(found);
        }
        // Only a change of owner needs a write to the disk.
        let node = node.to_owned();
        self.write(WorkKind::VITAL, move |writer: &mut WriteContext<'_>| {
            // Loaded again in the transaction: the thread may have changed since the look-up.
            let mut taken = load_owned_thread(writer.conn, writer.context, thread)?;
            // No other process shares the store.
            let is_owner = taken.thread.owner_node == node;
            let ownership = Ownership::of_one_process(is_owner, taken.thread.epoch);
            if let Acquisition::TakeOver { epoch } = acquisition(ownership) {
                taken.thread.owner_node.clone_from(&node);
                taken.thread.epoch = epoch;
                taken.is_taken_over = true;
                apply::write_thread(writer.conn, &taken.thread, false)?;
                // The cached row has the old owner: it is hidden before the commit and forgotten after it.
                writer.threads.changed.push(thread);
                // Appends behind this job in the queue are compared with the new epoch.
                let head = Head { epoch: taken.thread.epoch, last: taken.last };
                writer.heads.set(thread, Some(head));
            }
            Ok(taken)
        })
        .await
    }
}

fn load_owned_thread(
    conn: &rusqlite::Connection,
    context: &super::Context,
    thread: ThreadKey,
) -> Result<OwnedThread, SqliteError> {
    let last = heads::last(conn, context, thread)?;
    run_to_end(owned_thread(conn, &context.reader, thread, last))
}
