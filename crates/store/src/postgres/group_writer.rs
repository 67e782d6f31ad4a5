//! A writer of groups: it commits appends of many threads in few transactions, one after the other on one connection. All appends of a thread use the same writer, which keeps their order.

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
use crate::core::closed_error;
use crate::port::{Batch, Change};

/// The most appends of one transaction.
const MAX_APPENDS: usize = 256;

#[derive(Debug)]
pub(super) struct QueuedAppend {
    pub(super) append: StampedBatch,
    pub(super) reply: oneshot::Sender<Result<()>>,
    /// The permits that it holds in the queue.
    pub(super) room: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(super) struct StampedBatch {
    pub(super) batch: Batch,
    pub(super) bytes: usize,
    /// The mark of the head after this append. It is the same for all tries of the append, so that a retry recognises an earlier try.
    pub(super) stamp: i64,
}

#[derive(Debug)]
pub(super) struct GroupWriter {
    database: Arc<Database>,
    inbox: mpsc::Receiver<QueuedAppend>,
    /// The next append, if the previous transaction had no room for it.
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

    /// Collects waiting appends that can share a transaction with the first: at most one of each thread, and none that removes rows or reads between its writes.
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
                // It leads the next group. Skipping it would reorder the appends of its thread.
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
                    // Its permit is released with the reply, not earlier: until then it counts for the bound of the queue.
                    let (reply, _room) = waiting.remove(0);
                    // The receiver is gone if the caller has stopped waiting.
                    drop(reply.send(Err(database.settle(fail))));
                    groups.extend((!appends.is_empty()).then_some((appends, waiting)));
                }
                // The culprit may contradict an append before it that readers do not see yet and that may never be stored. So commit the appends before it first.
                GroupFailure::Culprit(index, _) => {
                    // `groups` is a stack: push the later part first, so that the earlier one is committed first.
                    groups.push((appends.split_off(index), waiting.split_off(index)));
                    groups.push((appends, waiting));
                }
                GroupFailure::Whole(fail) => {
                    let fail = fail.of_write();
                    let remedy = fail.remedy();
                    if remedy == Remedy::Retry && conflicts < MAX_CONFLICTS {
                        // The database has rolled a conflict back whole, so the same group may run again.
                        conflicts += 1;
                        groups.push((appends, waiting));
                        continue;
                    }
                    // The state of the connection is unknown. Closing it also ends a transaction that the server still holds open.
                    self.conn = None;
                    // Once a try may have been stored, all later tries compare stamps before they report that an append came too late.
                    may_be_stored |= fail.is_broken();
                    let error = database.settle(fail.of_last_try(may_be_stored));
                    // The group stays first during the wait, so no later append of its threads overtakes it.
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
        // Taken out for the try: if this future is dropped halfway, the connection with its open transaction is not used again.
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
            // The connection has a failed transaction. Reuse it only if the rollback succeeds.
            Err(_) => conn.batch_execute("ROLLBACK").await.is_ok(),
        };
        if is_whole {
            self.conn = Some(conn);
        } else {
            // Take it out of the pool.
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
            // The receiver is gone if the caller has stopped waiting.
            drop(reply.send(outcome));
        }
    }
}

fn refuse(waiting: Waiting, error: &Error) {
    for (reply, _room) in waiting {
        // The receiver is gone if the caller has stopped waiting.
        drop(reply.send(Err(error.clone())));
    }
}

// === impl StampedBatch ===

impl StampedBatch {
    /// Whether its rows can be written without reading others.
    fn is_plain(&self) -> bool {
        self.batch.changes.iter().all(Change::is_plain)
    }
}

/// Refuses the waiting appends when the writer ends.
impl Drop for GroupWriter {
    fn drop(&mut self) {
        // Close first, so that no append can enter the channel after it was drained.
        self.inbox.close();
        let next = self.next.take().into_iter();
        for queued in next.chain(std::iter::from_fn(|| self.inbox.try_recv().ok())) {
            // The receiver is gone if the caller has stopped waiting.
            drop(queued.reply.send(Err(closed_error())));
        }
    }
}
