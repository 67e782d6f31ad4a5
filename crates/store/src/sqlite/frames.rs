//! Reads frames, and checks that none is missing.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};
use trilogue_domain::ThreadKey;

use super::Context;
use super::error::SqliteError;
use super::row::run_to_end;
use crate::core::continuity::{RunContinuity, hole};
use crate::port::Range;
use crate::record::Frame;
use crate::sql::frames::{is_gap, stored};

/// Excludes frames of removed runs that are not deleted yet: readers must not see them.
macro_rules! not_removed {
    () => {
        concat!(
            " AND NOT EXISTS (SELECT 1 FROM removals WHERE removals.thread = frames.thread",
            " AND removals.run IN (0, coalesce(frames.run, 0)))"
        )
    };
}

pub(super) fn read(
    conn: &Connection,
    context: &Context,
    thread: ThreadKey,
    range: Range,
) -> Result<Vec<Arc<Frame>>, SqliteError> {
    // Use one snapshot: otherwise a concurrent removal would look like a hole.
    let snapshot = conn.unchecked_transaction()?;
    match range.run {
        None => of_thread(&snapshot, context, thread, range),
        Some(run) => {
            let mut check = RunContinuity::new(thread, range.after);
            let from = first_of_run(&snapshot, run.0, range.after)?;
            let sql = concat!(
                "SELECT thread, run, first, last, first_run, body FROM frames",
                " WHERE run = ?1 AND first_run >= ?2",
                not_removed!(),
                " ORDER BY first_run"
            );
            collect(&snapshot, context, thread, sql, [run.0, from], range.max_bytes, |frame| {
                check.pass(frame).map_err(|error| SqliteError::Damaged(Some(thread), error))
            })
        }
    }
}

fn of_thread(
    conn: &Connection,
    context: &Context,
    thread: ThreadKey,
    range: Range,
) -> Result<Vec<Arc<Frame>>, SqliteError> {
    let after = i64::try_from(range.after).unwrap_or(i64::MAX);
    let start: Option<(i64, i64)> = conn
        .prepare_cached(concat!(
            "SELECT first, last FROM frames WHERE thread = ?1 AND first <= ?2",
            " ORDER BY first DESC LIMIT 1"
        ))?
        .query_row([thread.0, after.saturating_add(1)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let from = match start {
        Some((first, last)) if last > after => first,
        _ => after.saturating_add(1),
    };
    let sql = concat!(
        "SELECT thread, run, first, last, first_run, body FROM frames",
        " WHERE thread = ?1 AND first >= ?2",
        not_removed!(),
        " ORDER BY first"
    );
    let mut next = range.after.saturating_add(1);
    collect(conn, context, thread, sql, [thread.0, from], range.max_bytes, |frame| {
        if frame.first() > next && !run_to_end(is_gap(conn, thread, next, frame.first() - 1))? {
            return Err(SqliteError::Damaged(Some(thread), hole(thread, next)));
        }
        next = frame.last().saturating_add(1);
        Ok(())
    })
}

/// The first run number of the frame that holds the first number after this one.
fn first_of_run(conn: &Connection, run: i64, after: u64) -> Result<i64, SqliteError> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let start: Option<(i64, i64, i64)> = conn
        .prepare_cached(concat!(
            "SELECT first_run, first, last FROM frames WHERE run = ?1 AND first_run <= ?2",
            " ORDER BY first_run DESC LIMIT 1"
        ))?
        .query_row([run, after.saturating_add(1)], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    Ok(match start {
        Some((first_run, first, last)) if first_run.saturating_add(last - first) > after => {
            first_run
        }
        _ => after.saturating_add(1),
    })
}

fn collect(
    conn: &Connection,
    context: &Context,
    thread: ThreadKey,
    sql: &str,
    bound: [i64; 2],
    max_bytes: usize,
    mut check: impl FnMut(&Frame) -> Result<(), SqliteError>,
) -> Result<Vec<Arc<Frame>>, SqliteError> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(bound)?;
    let (mut frames, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let frame = stored(row, thread, &context.reader)?;
        if frame.thread() != thread {
            // The caller named a run of another thread.
            return Ok(Vec::new());
        }
        check(&frame)?;
        bytes += frame.bytes().len();
        frames.push(Arc::new(frame));
        if bytes > max_bytes {
            break;
        }
    }
    Ok(frames)
}
