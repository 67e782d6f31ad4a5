//! Reads frames, and checks that none is missing.

use std::sync::Arc;

use trilogue_domain::ThreadKey;
use trilogue_domain::port::ReadOriginal;

use super::connection::Connection;
use super::error::PostgresError;
use super::row::{self, Param};
use crate::core::continuity::{RunContinuity, hole};
use crate::port::Range;
use crate::record::Frame;
use crate::sql::frames::{is_gap, stored};

/// The columns of a frame, for [`stored`].
macro_rules! columns {
    () => {
        "thread, run, first, last, first_run, body"
    };
}

/// Frames up to the one with which the sum of their sizes exceeds a bound, at most 256. One statement sees one moment, so that a concurrent removal does not look like a hole.
macro_rules! bounded {
    ($from:expr, $order:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            " FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY ",
            $order,
            ") - octet_length(body) AS before FROM (SELECT * FROM frames WHERE ",
            $from,
            " ORDER BY ",
            $order,
            " LIMIT 256) AS first_ones) AS summed WHERE before <= $3::bigint ORDER BY ",
            $order
        )
    };
}

const OF_THREAD: &str = bounded!(
    concat!(
        "thread = $1 AND first >= coalesce((SELECT f.first FROM (SELECT first, last FROM frames",
        " WHERE thread = $1 AND first <= $2::bigint + 1 ORDER BY first DESC LIMIT 1) AS f",
        " WHERE f.last > $2), $2 + 1)"
    ),
    "first"
);
const OF_RUN: &str = bounded!(
    concat!(
        "run = $1 AND first_run >= coalesce((SELECT f.first_run FROM",
        " (SELECT first_run, first, last FROM frames WHERE run = $1 AND first_run <= $2::bigint + 1",
        " ORDER BY first_run DESC LIMIT 1) AS f",
        " WHERE f.first_run + f.last - f.first > $2), $2 + 1)"
    ),
    "first_run"
);

/// Frames as values of six arrays, in the order of [`columns`].
pub(super) fn values<'a>(frames: impl Iterator<Item = &'a Frame> + Clone) -> [Param<'a>; 6] {
    let numbers = |number: fn(&Frame) -> u64| {
        Param::Integers(frames.clone().map(|frame| number(frame).cast_signed()).collect())
    };
    [
        Param::Integers(frames.clone().map(|frame| frame.thread().0).collect()),
        Param::Nullable(frames.clone().map(|frame| frame.run().map(|run| run.0)).collect()),
        numbers(Frame::first),
        numbers(Frame::last),
        numbers(Frame::first_run),
        Param::Bodies(frames.map(|frame| frame.bytes().as_ref()).collect()),
    ]
}

/// Reads every frame: the statement for [`stored`].
pub(super) const ALL: &str = concat!("SELECT ", columns!(), " FROM frames");

pub(super) async fn read(
    conn: &Connection,
    reader: &Arc<dyn ReadOriginal>,
    thread: ThreadKey,
    range: Range,
) -> Result<Vec<Arc<Frame>>, PostgresError> {
    // No frame has the largest number.
    let after = i64::try_from(range.after).unwrap_or(i64::MAX).min(i64::MAX - 1);
    let most = i64::try_from(range.max_bytes).unwrap_or(i64::MAX);
    let (sql, key) = match range.run {
        None => (OF_THREAD, thread.0),
        Some(run) => (OF_RUN, run.0),
    };
    let rows = row::query(conn, sql, &[&key, &after, &most]).await?;
    let damaged = |error| PostgresError::Damaged(Some(thread), error);
    let mut of_run = RunContinuity::new(thread, range.after);
    let mut next = range.after.saturating_add(1);
    let mut frames = Vec::with_capacity(rows.len());
    for found in &rows {
        let frame = stored(found, thread, reader)?;
        if frame.thread() != thread {
            // The caller named a run of another thread.
            return Ok(Vec::new());
        }
        if range.run.is_some() {
            of_run.pass(&frame).map_err(damaged)?;
        } else if frame.first() > next && !is_removed(conn, thread, next, frame.first() - 1).await?
        {
            return Err(damaged(hole(thread, next)));
        }
        next = frame.last().saturating_add(1);
        frames.push(Arc::new(frame));
    }
    Ok(frames)
}

/// Whether these numbers belonged to removed runs, or the whole thread was removed meanwhile.
async fn is_removed(
    conn: &Connection,
    thread: ThreadKey,
    first: u64,
    last: u64,
) -> Result<bool, PostgresError> {
    // Gaps are rare, and every read of frames would have the size of this one.
    if Box::pin(is_gap(conn, thread, first, last)).await? {
        return Ok(true);
    }
    Ok(!row::exists(conn, "SELECT 1 FROM heads WHERE thread = $1", &[&thread.0]).await?)
}
