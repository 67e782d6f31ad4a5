//! A writer of groups: appends of many threads in few transactions, one after the other on one connection. All appends of a thread take the same writer.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use trilogue_domain::error::{Error, Result};
use trilogue_domain::limits;

use super::connection::Connection;
use super::database::{Database, MAX_CONFLICTS};
use super::error::Remedy;
use super::group::{self, GroupFailure};
use crate::core::closed;
use crate::port::{Batch, Change};

/// The most appends of one transaction.
const MAX_APPENDS: usize = 256;

#[derive(Debug)]
pub(super) struct QueuedAppend {
    pub(super) append: StampedBatch,
    pub(super) reply: oneshot::Sender<Result<()>>,
    /// The room that it takes in the queue.
    pub(super) room: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(super) struct StampedBatch {
    pub(super) batch: Batch,
    pub(super) bytes: usize,
    /// What its head is marked with. It stays the same however often the append is tried.
    pub(super) stamp: i64,
}

#[derive(Debug)]
pub(super) struct GroupWriter {
    database: Arc<Database>,
    inbox: mpsc::Receiver<QueuedAppend>,
    /// The next append, where the transaction before had no room for it.
    next: Option<QueuedAppend>,
    conn: Option<Connection>,
}

type Waiting = Vec<(oneshot::Sender<Result<()>>, OwnedSemaphorePermit)>;

// === impl GroupWriter ===

impl GroupWriter {
    pub(super) fn new(database: Arc<Database>, inbox: mpsc::Receiver<QueuedAppend>) -> Self {
        Self { database, inbox, next: None, conn: None }
    }

    /// Runs until every sender is dropped.
    pub(super) async fn run(mut self) {
        while let Some(first) = self.first().await {
            let (appends, waiting) = self.gather(first);
            self.commit(appends, waiting).await;
        }
    }

    async fn first(&mut self) -> Option<QueuedAppend> {
        match self.next.take() {
            Some(next) => Some(next),
            None => self.inbox.recv().await,
        }
    }

    /// What waits and can share a transaction with the first: of each thread one append, and none that removes or reads between its writes.
    fn gather(&mut self, first: QueuedAppend) -> (Vec<StampedBatch>, Waiting) {
        let mut bytes = first.append.bytes;
        let mut threads = HashSet::from([first.append.batch.thread]);
        let is_alone = !first.append.is_plain();
        let QueuedAppend { append, reply, room } = first;
        let (mut appends, mut waiting) = (vec![append], vec![(reply, room)]);
        while !is_alone && appends.len() < MAX_APPENDS {
            let Ok(next) = self.inbox.try_recv() else { break };
            bytes += next.append.bytes;
            let fits = next.append.is_plain()
                && bytes <= limits::MAX_BATCH_BYTES
                && threads.insert(next.append.batch.thread);
            if !fits {
                self.next = Some(next);
                break;
            }
            appends.push(next.append);
            waiting.push((next.reply, next.room));
        }
        (appends, waiting)
    }

    /// Commits appends in as few transactions as their failures allow, and replies.
    async fn commit(&mut self, appends: Vec<StampedBatch>, waiting: Waiting) {
        let (mut conflicts, mut may_be_stored) = (0, false);
        let database = Arc::clone(&self.database);
        let mut retries = database.outage.retries(database.retry_for);
        let mut groups = vec![(appends, waiting)];
        while let Some((mut appends, mut waiting)) = groups.pop() {
            let failure = match self.attempt(&appends, may_be_stored).await {
                Ok(outcomes) => {
                    self.finish(&appends, outcomes, waiting);
                    continue;
                }
                Err(failure) => failure,
            };
            match failure {
                GroupFailure::Culprit(0, fail) => {
                    drop(appends.remove(0));
                    let (reply, _room) = waiting.remove(0);
                    drop(reply.send(Err(database.settle(fail))));
                    groups.extend((!appends.is_empty()).then_some((appends, waiting)));
                }
                // It may contradict one before it, which no reader sees yet and which may never be stored: that one comes first.
                GroupFailure::Culprit(index, _) => {
                    groups.push((appends.split_off(index), waiting.split_off(index)));
                    groups.push((appends, waiting));
                }
                GroupFailure::Whole(fail) => {
                    let fail = fail.of_write();
                    let remedy = fail.remedy();
                    if remedy == Remedy::Retry && conflicts < MAX_CONFLICTS {
                        conflicts += 1;
                        groups.push((appends, waiting));
                        continue;
                    }
                    self.conn = None;
                    may_be_stored |= fail.is_broken();
                    let error = database.settle(fail.of_last_try(may_be_stored));
                    if remedy == Remedy::Reconnect && retries.wait().await {
                        groups.push((appends, waiting));
                    } else {
                        refuse(waiting, &error);
                    }
                }
            }
        }
    }

    /// Writes appends in one transaction. `is_again` says that an earlier try may have been stored.
    pub(super) async fn attempt(
        &mut self,
        appends: &[StampedBatch],
        is_again: bool,
    ) -> Result<Vec<Result<()>>, GroupFailure> {
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => {
                let connected = self.database.connect().await;
                connected.map_err(|fail| GroupFailure::Whole(fail.before_sending()))?
            }
        };
        let outcomes = group::write(&self.database, &conn, appends, is_again).await;
        let is_whole = match &outcomes {
            Ok(_) => true,
            // The connection has a transaction that failed: it is used again when that is rolled back.
            Err(_) => conn.batch_execute("ROLLBACK").await.is_ok(),
        };
        if is_whole {
            self.conn = Some(conn);
        } else {
            // It must not come back from the pool.
            drop(Connection::take(conn));
        }
        outcomes
    }

    /// Publishes durable appends, then replies.
    fn finish(&self, appends: &[StampedBatch], outcomes: Vec<Result<()>>, waiting: Waiting) {
        let database = &self.database;
        let mut frames = 0;
        for (append, outcome) in appends.iter().zip(&outcomes) {
            if outcome.is_ok() {
                frames += append.batch.frames.len();
                database.acknowledged.note(&append.batch, append.stamp);
                database.publish(&append.batch);
            }
        }
        let stored = appends.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok());
        database.announce(stored.map(|(append, _)| (&append.batch, append.stamp)));
        database.outage.end();
        database.commits.fetch_add(1, Ordering::Relaxed);
        database.frames.fetch_add(frames as u64, Ordering::Relaxed);
        for ((reply, _room), outcome) in waiting.into_iter().zip(outcomes) {
            // No caller waits where the receiver is gone.
            drop(reply.send(outcome));
        }
    }
}

fn refuse(waiting: Waiting, error: &Error) {
    for (reply, _room) in waiting {
        drop(reply.send(Err(error.clone())));
    }
}

// === impl StampedBatch ===

impl StampedBatch {
    /// Whether its rows are written without a look at others.
    fn is_plain(&self) -> bool {
        self.batch.changes.iter().all(Change::is_plain)
    }
}

/// Appends that wait are refused when it ends.
impl Drop for GroupWriter {
    fn drop(&mut self) {
        self.inbox.close();
        let next = self.next.take().into_iter();
        for queued in next.chain(std::iter::from_fn(|| self.inbox.try_recv().ok())) {
            drop(queued.reply.send(Err(closed())));
        }
    }
}
