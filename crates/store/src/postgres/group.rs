//! The transaction of a group of appends.
//!
//! 1. One statement moves the heads that match the expectations of their writers, and writes the frames of these appends.
//! 2. The rows of these appends are written; all statements are sent at once.
//! 3. Search rows and the other rows that depend on step 2 are written, then the transaction commits.
//!
//! A group without rows is one statement, which commits by itself.

use std::collections::HashMap;
use std::task::Poll;

use futures_util::FutureExt;
use futures_util::future::{join, maybe_done, poll_fn};
use tokio_postgres::Row;
use trilogue_domain::ThreadKey;
use trilogue_domain::error::Result;

use super::acknowledged::LostEvents;
use super::change::{self, FollowedRows, RowStatement};
use super::connection::Connection;
use super::database::Database;
use super::error::PostgresError;
use super::frames;
use super::group_writer::StampedBatch;
use super::row::{self, Param, refs};
use crate::core::batch::Head;
use crate::core::ownership::{AppendVerdict, LogEnd, verdict, verdict_of_frames};
use crate::port::{Batch, Change};

#[derive(Debug)]
pub(super) enum GroupFailure {
    /// This append alone is to blame.
    Culprit(usize, PostgresError),
    Whole(PostgresError),
}

/// Moves heads and writes frames. The append of a new thread creates its head.
const WRITE: &str = concat!(
    "WITH given AS (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[],",
    " $5::bigint[], $6::bigint[], $7::boolean[], $8::text[])",
    " AS g(thread, epoch, expected, new_epoch, last, stamp, may_create, node)),",
    " created AS (INSERT INTO heads (thread, owner_node, epoch, last, stamp)",
    " SELECT thread, node, new_epoch, last, stamp FROM given WHERE may_create",
    " ON CONFLICT DO NOTHING RETURNING thread),",
    " moved AS (UPDATE heads SET epoch = given.new_epoch, last = given.last, stamp = given.stamp",
    " FROM given WHERE heads.thread = given.thread AND heads.epoch = given.epoch",
    " AND heads.last = given.expected RETURNING heads.thread),",
    " won AS (SELECT thread, TRUE AS is_new FROM created UNION ALL SELECT thread, FALSE FROM moved),",
    " written AS (INSERT INTO frames (thread, run, first, last, first_run, body)",
    " SELECT f.thread, f.run, f.first, f.last, f.first_run, f.body",
    " FROM unnest($9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bytea[])",
    " AS f(thread, run, first, last, first_run, body) JOIN won ON won.thread = f.thread)",
    " SELECT thread, is_new FROM won"
);
const HEADS: &str = "SELECT thread, epoch, last, stamp FROM heads WHERE thread = ANY($1)";

/// Writes a group. Returns the outcome of each append. `is_again` says that an earlier try may have been stored.
pub(super) async fn write(
    database: &Database,
    conn: &Connection,
    appends: &[StampedBatch],
    is_again: bool,
) -> Result<Vec<Result<()>>, GroupFailure> {
    let has_rows = appends.iter().any(|append| append.batch.has_rows());
    let mut outcomes: Vec<Result<()>> = appends.iter().map(|_| Ok(())).collect();
    // Comparison and write are one statement, so no other writer can get in between.
    let won = move_heads(conn, appends, has_rows).await.map_err(GroupFailure::Whole)?;
    let mut writers: Vec<usize> = (0..appends.len()).collect();
    // Appends that lost get their own outcomes. The others of the group continue: they are of other threads.
    if won.len() < appends.len() {
        let lost: Vec<_> = (0..appends.len())
            .filter(|index| !won.contains_key(&appends[*index].batch.thread))
            .collect();
        // Read after the failed comparison: the end shows whether an earlier try was stored.
        let heads = ends(conn, appends, &lost).await.map_err(GroupFailure::Whole)?;
        for index in &lost {
            let append = &appends[*index];
            let end = heads.get(&append.batch.thread).copied();
            outcomes[*index] = outcome(database, conn, append, end, is_again)
                .await
                .map_err(GroupFailure::Whole)?;
        }
        // A lost append writes no rows, because another writer has its thread.
        writers.retain(|index| !lost.contains(index));
    }
    // The statement has committed by itself, without an open transaction to end.
    if !has_rows {
        return Ok(outcomes);
    }
    let mut follow = Vec::new();
    match appends {
        // Such an append is alone in its group: its statements depend on stored rows, so they run one by one.
        [alone] if !alone.batch.changes.iter().all(Change::is_plain) => {
            if !writers.is_empty() {
                change::in_order(database, conn, &alone.batch)
                    .await
                    .map_err(|fail| GroupFailure::of(0, fail))?;
            }
        }
        _ => follow = write_rows(database, conn, appends, &writers).await?,
    }
    commit(conn, follow).await.map_err(GroupFailure::Whole)?;
    Ok(outcomes)
}

/// The threads whose heads matched, and whether they are new.
async fn move_heads(
    conn: &Connection,
    appends: &[StampedBatch],
    has_rows: bool,
) -> Result<HashMap<ThreadKey, bool>, PostgresError> {
    let batches = || appends.iter().map(|append| &append.batch);
    let integers = |of: &dyn Fn(&Batch) -> i64| Param::Integers(batches().map(of).collect());
    let [thread, run, first, last, first_run, body] =
        frames::values(batches().flat_map(|batch| batch.frames.iter().map(AsRef::as_ref)));
    let params = [
        integers(&|batch| batch.thread.0),
        integers(&|batch| batch.epoch.cast_signed()),
        integers(&|batch| batch.expected_last.cast_signed()),
        integers(&|batch| batch.last_epoch().cast_signed()),
        integers(&|batch| batch.last().cast_signed()),
        Param::Integers(appends.iter().map(|append| append.stamp).collect()),
        Param::Flags(batches().map(Batch::may_create).collect()),
        Param::Texts(
            batches()
                .map(|batch| batch.new_thread().map_or("", |row| row.owner_node.as_str()))
                .collect(),
        ),
        thread,
        run,
        first,
        last,
        first_run,
        body,
    ];
    let params = refs(&params);
    // Prepare first, so that BEGIN and the statement are sent together below.
    let statement = conn.prepare_cached(WRITE).await?;
    let write = conn.query(&statement, &params);
    let won = if has_rows {
        // Both are sent at once. The first is polled first, so the order on the connection is right.
        let (begun, won) = join(conn.batch_execute("BEGIN"), write).await;
        // Both results count: after a failed BEGIN, the statement would have committed by itself.
        begun?;
        won?
    } else {
        write.await?
    };
    Ok(won.iter().map(|row| (ThreadKey(row.get(0)), row.get(1))).collect())
}

async fn ends(
    conn: &Connection,
    appends: &[StampedBatch],
    of: &[usize],
) -> Result<HashMap<ThreadKey, LogEnd>, PostgresError> {
    let threads: Vec<i64> = of.iter().map(|index| appends[*index].batch.thread.0).collect();
    let found = row::query(conn, HEADS, &[&threads]).await?;
    let end = |row: &Row| {
        let number = |index| row.get::<_, i64>(index).cast_unsigned();
        (ThreadKey(row.get(0)), LogEnd { epoch: number(1), last: number(2), stamp: row.get(3) })
    };
    Ok(found.iter().map(end).collect())
}

/// The outcome of an append whose head did not match: stored by an earlier try, or too late.
async fn outcome(
    database: &Database,
    conn: &Connection,
    append: &StampedBatch,
    end: Option<LogEnd>,
    is_again: bool,
) -> Result<Result<()>, PostgresError> {
    let batch = &append.batch;
    let verdict = match verdict(&batch.attempt(append.stamp, is_again), end) {
        AppendVerdict::Uncertain => verdict_of_frames(is_in_log(conn, batch).await?),
        verdict => verdict,
    };
    // A writer that expects more than the log has is late or wrong. Only an end that was acknowledged proves that events are lost.
    let acknowledged = database.acknowledged.end(batch.thread);
    let lost = acknowledged
        .zip(end)
        .and_then(|(known, end)| LostEvents::between(batch.thread, known, end));
    if let (AppendVerdict::Late, Some(lost)) = (verdict, lost) {
        return Ok(Err(database.close_thread(conn, lost).await?));
    }
    Ok(match verdict {
        AppendVerdict::Stored => Ok(()),
        // The head did not match a moment ago, even if it does now.
        AppendVerdict::Fits | AppendVerdict::Late => {
            Err(batch.late(end.map(|end| Head { epoch: end.epoch, last: end.last })))
        }
        AppendVerdict::Uncertain => Err(batch.uncertain()),
    })
}

/// Whether the frame with a batch's first number is the batch's own. `None` if the frame does not exist, or the batch has none.
async fn is_in_log(conn: &Connection, batch: &Batch) -> Result<Option<bool>, PostgresError> {
    let Some(own) = batch.frames.first() else { return Ok(None) };
    let sql = "SELECT body FROM frames WHERE thread = $1 AND first = $2";
    let params: &row::Params<'_> = &[&batch.thread.0, &own.first().cast_signed()];
    let found = row::query_opt(conn, sql, params).await?;
    Ok(found.map(|found| found.get::<_, &[u8]>(0) == own.bytes().as_ref()))
}

/// Writes the rows of these appends; all statements are sent at once. Returns the statements that must follow.
async fn write_rows<'a>(
    database: &Database,
    conn: &Connection,
    appends: &'a [StampedBatch],
    writers: &[usize],
) -> Result<Vec<RowStatement<'a>>, GroupFailure> {
    let mut statements = Vec::new();
    for index in writers {
        let batch = &appends[*index].batch;
        statements.extend(
            change::plain(database, batch).into_iter().map(|statement| (*index, statement)),
        );
    }
    let results = send(conn, statements.iter().map(|(_, statement)| statement)).await;
    let results = results.map_err(GroupFailure::Whole)?;
    let (mut follow, mut noted) = (Vec::new(), FollowedRows::default());
    for ((index, statement), rows) in statements.into_iter().zip(results) {
        let rows = match rows {
            Ok(rows) => rows,
            // After a failed statement all later ones fail too, so only the first names the culprit.
            Err(fail) => return Err(GroupFailure::of(index, statement.blame(fail))),
        };
        let more = statement.follow(&rows, &mut noted);
        follow.extend(more.map_err(|fail| GroupFailure::of(index, fail))?);
    }
    Ok(follow)
}

async fn commit(conn: &Connection, follow: Vec<RowStatement<'_>>) -> Result<(), PostgresError> {
    // All results are read before COMMIT: the server answers the COMMIT of a failed transaction without an error, but rolls back.
    send_all(conn, &follow).await?;
    Ok(conn.batch_execute("COMMIT").await?)
}

/// As [`send`], for statements that return no rows and must not fail.
pub(super) async fn send_all(
    conn: &Connection,
    statements: &[RowStatement<'_>],
) -> Result<(), PostgresError> {
    for result in send(conn, statements.iter()).await? {
        result?;
    }
    Ok(())
}

/// Sends statements in order without waiting in between. Returns the rows of each. If one fails, all later ones fail.
pub(super) async fn send<'q, 'a: 'q>(
    conn: &Connection,
    statements: impl Iterator<Item = &'q RowStatement<'a>>,
) -> Result<Vec<Result<Vec<Row>, PostgresError>>, PostgresError> {
    let mut sent = Vec::new();
    for statement in statements {
        // All are prepared before the first is sent, because preparing waits for the server.
        let prepared = conn.prepare_cached(statement.sql()).await?;
        sent.push(Box::pin(maybe_done(async move {
            conn.query(&prepared, &refs(statement.params())).await.map_err(PostgresError::from)
        })));
    }
    // A statement is sent when its future is polled first, so poll in order.
    poll_fn(|cx| {
        for one in &mut sent {
            let _sent = one.poll_unpin(cx);
        }
        Poll::Ready(())
    })
    .await;
    let mut results = Vec::with_capacity(sent.len());
    for mut one in sent {
        one.as_mut().await;
        results.extend(one.as_mut().take_output());
    }
    Ok(results)
}

// === impl GroupFailure ===

impl GroupFailure {
    /// Blames the append if its statement caused the failure.
    pub(super) fn of(index: usize, fail: PostgresError) -> Self {
        match fail.remedy() {
            super::error::Remedy::Refuse => Self::Culprit(index, fail),
            _ => Self::Whole(fail),
        }
    }
}

// === impl Batch ===

impl Batch {
    fn has_rows(&self) -> bool {
        !self.changes.is_empty() || !self.blobs.is_empty()
    }

    /// The epoch behind it.
    pub(super) fn last_epoch(&self) -> u64 {
        let epochs = self.changes.iter().filter_map(|change| match change {
            Change::Thread(row) => Some(row.epoch),
            _ => None,
        });
        epochs.last().unwrap_or(self.epoch)
    }
}
