//! Frames as rows.

use std::sync::Arc;

use bytes::Bytes;
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{RunKey, ThreadKey};

use super::{SqlConnection, SqlError, SqlRow};
use crate::core::table::columns;
use crate::record::Frame;

/// Reads a frame from `thread, run, first, last, first_run, body` and checks it.
pub(crate) fn stored<S: SqlRow>(
    row: &S,
    thread: ThreadKey,
    reader: &Arc<dyn ReadOriginal>,
) -> Result<Frame, S::Error> {
    let number = |index| row.value(index).map(i64::cast_unsigned);
    let frame = Frame::from_stored(
        ThreadKey(row.value(0)?),
        row.value::<Option<i64>>(1)?.map(RunKey),
        number(2)?,
        number(3)?,
        number(4)?,
        Bytes::copy_from_slice(row.bytes(5).unwrap_or_default()),
        reader,
    );
    // Blame the requested thread even when the column names another.
    frame.map_err(|error| S::Error::damaged(Some(thread), error))
}

/// The last number of a run of this thread, as its newest frame has it.
pub(crate) async fn last_of_run<C: SqlConnection>(
    conn: &C,
    reader: &Arc<dyn ReadOriginal>,
    thread: ThreadKey,
    run: RunKey,
) -> Result<u64, C::Error> {
    let sql = concat!(
        "SELECT thread, run, first, last, first_run, body FROM frames",
        " WHERE run = ?1 ORDER BY first_run DESC LIMIT 1"
    );
    let read = |row: &C::Row<'_>| stored(row, thread, reader);
    let newest = conn.first(sql, &columns![run], read).await?;
    Ok(newest.filter(|frame| frame.thread() == thread).map_or(0, |frame| frame.last_run()))
}

/// Whether these numbers belonged to removed runs.
pub(crate) async fn is_gap<C: SqlConnection>(
    conn: &C,
    thread: ThreadKey,
    first: u64,
    last: u64,
) -> Result<bool, C::Error> {
    let sql = concat!(
        "SELECT last FROM gaps WHERE thread = ?1 AND first <= ?2",
        " ORDER BY first DESC LIMIT 1"
    );
    let gap = conn.first(sql, &columns![thread, first], |row| row.value::<i64>(0)).await?;
    Ok(gap.is_some_and(|gap| gap.cast_unsigned() >= last))
}

/// Notes the numbers of a run's frames as removed, and joins them with adjacent gaps.
pub(crate) async fn note_gaps<C: SqlConnection>(
    conn: &C,
    thread: ThreadKey,
    run: RunKey,
) -> Result<(), C::Error> {
    let sql = "SELECT first, last FROM frames WHERE run = ?1 AND thread = ?2 ORDER BY first_run";
    let mut gaps: Vec<(i64, i64)> = Vec::new();
    let join = |row: &C::Row<'_>| {
        let (first, last) = (row.value(0)?, row.value(1)?);
        match gaps.last_mut() {
            Some(gap) if gap.1 + 1 == first => gap.1 = last,
            _ => gaps.push((first, last)),
        }
        Ok(())
    };
    conn.rows(sql, &columns![run, thread], join).await?;
    for (first, last) in gaps {
        write_gap(conn, thread.0, first, last).await?;
    }
    Ok(())
}

async fn write_gap<C: SqlConnection>(
    conn: &C,
    thread: i64,
    first: i64,
    last: i64,
) -> Result<(), C::Error> {
    let sql = concat!(
        "SELECT first, last FROM gaps WHERE thread = ?1 AND first < ?2",
        " ORDER BY first DESC LIMIT 1"
    );
    let values = columns![thread, first];
    let before: Option<(i64, i64)> =
        conn.first(sql, &values, |row| Ok((row.value(0)?, row.value(1)?))).await?;
    let sql = "DELETE FROM gaps WHERE thread = ?1 AND first = ?2 RETURNING last";
    let values = columns![thread, last + 1];
    let behind: Option<i64> = conn.first(sql, &values, |row| row.value(0)).await?;
    let first = match before {
        Some((start, end)) if end + 1 == first => start,
        _ => first,
    };
    let sql = concat!(
        "INSERT INTO gaps (thread, first, last) VALUES (?1, ?2, ?3)",
        " ON CONFLICT (thread, first) DO UPDATE SET last = ?3"
    );
    conn.execute(sql, &columns![thread, first, behind.unwrap_or(last)]).await?;
    Ok(())
}
