//! The ends of logs. An append is compared with them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rusqlite::{Connection, OptionalExtension};
use trilogue_domain::ThreadKey;
use trilogue_domain::port::ReadOriginal;

use super::Context;
use super::error::{SqliteError, lock};
use super::row;
use crate::core::batch::Head;
use crate::rows::ThreadRow;
use crate::sql::frames::stored;

/// The most remembered heads. Beyond that all are forgotten and looked up again.
const MAX_HEADS: usize = 65_536;

/// The durable heads of the logs that were written last. Only the writer changes them. They save readers a look-up.
#[derive(Debug, Default)]
pub(super) struct DurableHeads(Mutex<HashMap<ThreadKey, Head>>);

/// The heads after the current transaction, and the threads that cannot exist yet.
#[derive(Debug)]
pub(super) struct Heads {
    /// `None` for a thread that the transaction removes.
    changed: HashMap<ThreadKey, Option<Head>>,
    /// No thread with a greater key was ever stored: keys grow, and only the writer stores threads.
    newest: ThreadKey,
}

// === impl DurableHeads ===

impl DurableHeads {
    fn get(&self, thread: ThreadKey) -> Option<Head> {
        lock(&self.0).get(&thread).copied()
    }

    /// The last number of a log, if it was written recently.
    pub(super) fn last(&self, thread: ThreadKey) -> Option<u64> {
        self.get(thread).map(|head| head.last)
    }
}

// === impl Heads ===

impl Heads {
    /// `newest` is the greatest key that may be stored.
    pub(super) fn new(newest: ThreadKey) -> Self {
        Self { changed: HashMap::new(), newest }
    }

    /// The head as the current transaction sees it. `None` if the thread does not exist.
    pub(super) fn get(
        &self,
        conn: &Connection,
        context: &Context,
        thread: ThreadKey,
    ) -> Result<Option<Head>, SqliteError> {
        // First, because earlier jobs of the transaction may have moved this head.
        if let Some(head) = self.changed.get(&thread) {
            return Ok(*head);
        }
        // Most appends that create a thread end here, without a look-up.
        if thread > self.newest {
            return Ok(None);
        }
        if let Some(head) = context.heads.get(thread) {
            return Ok(Some(head));
        }
        let Some(row) = row::one::<ThreadRow>(conn, "WHERE key = ?1", [thread.0])? else {
            return Ok(None);
        };
        Ok(Some(Head { epoch: row.epoch, last: last(conn, context, thread)? }))
    }

    /// Notes the thread's head after the current transaction.
    pub(super) fn set(&mut self, thread: ThreadKey, head: Option<Head>) {
        // A rollback keeps this key as the newest, which costs a look-up and is never wrong.
        self.newest = self.newest.max(thread);
        self.changed.insert(thread, head);
    }

    /// Makes the heads of the current transaction durable heads, after its commit.
    pub(super) fn commit(&mut self, durable: &DurableHeads) {
        let mut durable = lock(&durable.0);
        if durable.len() + self.changed.len() > MAX_HEADS {
            // This loses nothing: a missing head is read from the database.
            durable.clear();
        }
        for (thread, head) in self.changed.drain() {
            match head {
                Some(head) => durable.insert(thread, head),
                None => durable.remove(&thread),
            };
        }
    }

    pub(super) fn rollback(&mut self) {
        self.changed.clear();
    }
}

/// The last number of a log: that of its newest frame, or of a removed frame after it.
pub(super) fn last(
    conn: &Connection,
    context: &Context,
    thread: ThreadKey,
) -> Result<u64, SqliteError> {
    if context.health.hidden.contains(thread) {
        return Ok(0);
    }
    last_stored(conn, &context.reader, thread)
}

/// As [`last`], for a thread that is not hidden.
pub(super) fn last_stored(
    conn: &Connection,
    reader: &Arc<dyn ReadOriginal>,
    thread: ThreadKey,
) -> Result<u64, SqliteError> {
    let newest = conn
        .prepare_cached(concat!(
            "SELECT thread, run, first, last, first_run, body FROM frames",
            " WHERE thread = ?1 ORDER BY first DESC LIMIT 1"
        ))?
        .query_row([thread.0], |row| Ok(stored(row, thread, reader)))
        .optional()?
        .transpose()?;
    let gap: Option<i64> = conn
        .prepare_cached("SELECT last FROM gaps WHERE thread = ?1 ORDER BY first DESC LIMIT 1")?
        .query_row([thread.0], |row| row.get(0))
        .optional()?;
    let newest = newest.map_or(0, |frame| frame.last());
    // The newest frames may be removed, and their numbers must not be given again.
    Ok(newest.max(gap.map_or(0, i64::cast_unsigned)))
}
