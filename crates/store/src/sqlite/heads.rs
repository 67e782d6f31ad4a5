//! The ends of logs, which an append is compared with.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{RunKey, ThreadKey};

use super::Context;
use super::error::SqliteError;
use super::row;
use crate::core::batch::Head;
use crate::record::Frame;
use crate::rows::ThreadRow;

/// The most remembered heads; beyond that all are forgotten and looked up again.
const MAX_HEADS: usize = 65_536;

/// Heads of recently written threads, and those of the current transaction.
#[derive(Debug, Default)]
pub(super) struct Heads {
    committed: HashMap<ThreadKey, Head>,
    /// `None` for a thread that the transaction removes.
    open: HashMap<ThreadKey, Option<Head>>,
}

// === impl Heads ===

impl Heads {
    /// The head as the current transaction sees it; `None` when there is no such thread.
    pub(super) fn get(
        &mut self,
        conn: &Connection,
        context: &Context,
        thread: ThreadKey,
    ) -> Result<Option<Head>, SqliteError> {
        if let Some(head) = self.open.get(&thread) {
            return Ok(*head);
        }
        if let Some(head) = self.committed.get(&thread) {
            return Ok(Some(*head));
        }
        let Some(row) = row::one::<ThreadRow>(conn, "WHERE key = ?1", [thread.0])? else {
            return Ok(None);
        };
        Ok(Some(Head { epoch: row.epoch, last: last(conn, context, thread)? }))
    }

    /// Notes the thread's head after the current transaction.
    pub(super) fn set(&mut self, thread: ThreadKey, head: Option<Head>) {
        self.open.insert(thread, head);
    }

    pub(super) fn commit(&mut self) {
        if self.committed.len() + self.open.len() > MAX_HEADS {
            self.committed.clear();
        }
        for (thread, head) in self.open.drain() {
            match head {
                Some(head) => self.committed.insert(thread, head),
                None => self.committed.remove(&thread),
            };
        }
    }

    pub(super) fn rollback(&mut self) {
        self.open.clear();
    }
}

/// The last number of a log: that of its newest frame or of a removed one behind it.
pub(super) fn last(
    conn: &Connection,
    context: &Context,
    thread: ThreadKey,
) -> Result<u64, SqliteError> {
    let newest = conn
        .prepare_cached(concat!(
            "SELECT thread, run, first, last, first_run, body FROM frames",
            " WHERE thread = ?1 ORDER BY first DESC LIMIT 1"
        ))?
        .query_row([thread.0], |row| Ok(stored_frame(row, thread, &context.reader)))
        .optional()?
        .transpose()?;
    let gap: Option<i64> = conn
        .prepare_cached("SELECT last FROM gaps WHERE thread = ?1 ORDER BY first DESC LIMIT 1")?
        .query_row([thread.0], |row| row.get(0))
        .optional()?;
    let newest = newest.map_or(0, |frame| frame.last());
    Ok(newest.max(gap.map_or(0, i64::cast_unsigned)))
}

/// The last number of a run of this thread, as its newest frame has it.
pub(super) fn last_of_run(
    conn: &Connection,
    context: &Context,
    thread: ThreadKey,
    run: RunKey,
) -> Result<u64, SqliteError> {
    let newest = conn
        .prepare_cached(concat!(
            "SELECT thread, run, first, last, first_run, body FROM frames",
            " WHERE run = ?1 ORDER BY first_run DESC LIMIT 1"
        ))?
        .query_row([run.0], |row| Ok(stored_frame(row, thread, &context.reader)))
        .optional()?
        .transpose()?;
    Ok(newest.filter(|frame| frame.thread() == thread).map_or(0, |frame| frame.last_run()))
}

/// Reads a frame from `thread, run, first, last, first_run, body` and checks it.
pub(super) fn stored_frame(
    row: &Row<'_>,
    thread: ThreadKey,
    reader: &Arc<dyn ReadOriginal>,
) -> Result<Frame, SqliteError> {
    let run: Option<i64> = row.get(1)?;
    let [first, last, first_run] = [row.get::<_, i64>(2)?, row.get(3)?, row.get(4)?];
    let body = row.get_ref(5)?.as_blob().unwrap_or_default();
    let frame = Frame::from_stored(
        ThreadKey(row.get(0)?),
        run.map(RunKey),
        first.cast_unsigned(),
        last.cast_unsigned(),
        first_run.cast_unsigned(),
        Bytes::copy_from_slice(body),
        reader,
    );
    // Blame the requested thread even when the column names another.
    frame.map_err(|error| SqliteError::Damaged(Some(thread), error))
}
