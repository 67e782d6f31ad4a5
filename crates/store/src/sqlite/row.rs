//! Reading rows: the body is decoded and the searched columns are checked against it.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Params, Row};
use trilogue_domain::error::{Code, Error};
use trilogue_domain::{MessageId, ThreadKey, Timestamp};

use super::fault::Fail;
use crate::record::Record;
use crate::rows::{
    BindingRow, CheckpointRow, ConfigurationRow, IdempotencyRow, InterruptRow, MessageRow,
    QueueItem, RunRow, ThreadRow, TokenRow,
};

/// A row as it is stored: `SELECT` gives the thread (or null), an integer to page by, the body, then the other checked columns.
pub(super) trait Stored: Record {
    /// What stands before `FROM`.
    const COLUMNS: &'static str;
    /// The table.
    const TABLE: &'static str;
    /// The integer of the table to page by.
    const ORDER: &'static str = "key";

    /// The thread that the row belongs to.
    fn thread(&self) -> Option<ThreadKey>;
    /// Whether the columns from the fourth on, and the paging integer where it is part of the row, say what the row says.
    fn fits(&self, row: &Columns<'_, '_>) -> bool;
}

/// Rows with their integers, in its order; those that are damaged as what they are.
pub(super) type Stretch<R> = Vec<(i64, Result<R, Fail>)>;

/// The columns of one row.
#[derive(Debug)]
pub(super) struct Columns<'a, 'b>(&'a Row<'b>);

/// Reads one row.
pub(super) fn take<R: Stored>(row: &Row<'_>) -> Result<R, Fail> {
    let columns = Columns(row);
    let found = columns.thread();
    let body = match row.get_ref(2) {
        Ok(ValueRef::Blob(body)) => body,
        _ => return Err(damaged::<R>(found)),
    };
    let decoded = R::decode(body).map_err(|error| Fail::Damaged(found, error))?;
    let fits = decoded.thread() == found && decoded.fits(&columns);
    if fits { Ok(decoded) } else { Err(damaged::<R>(decoded.thread())) }
}

/// Reads at most one row: `rest` is what stands behind `FROM table`.
pub(super) fn one<R: Stored>(
    conn: &Connection,
    rest: &str,
    params: impl Params,
) -> Result<Option<R>, Fail> {
    let mut statement = conn.prepare_cached(&select::<R>(rest))?;
    statement.query_row(params, |row| Ok(take(row))).optional()?.transpose()
}

/// Reads rows: `rest` is what stands behind `FROM table`.
pub(super) fn many<R: Stored>(
    conn: &Connection,
    rest: &str,
    params: impl Params,
) -> Result<Vec<R>, Fail> {
    let mut statement = conn.prepare_cached(&select::<R>(rest))?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(take(row)?);
    }
    Ok(found)
}

/// Reads a stretch of a whole table in the order of its integer, damaged rows included.
pub(super) fn all<R: Stored>(
    conn: &Connection,
    after: i64,
    limit: i64,
) -> Result<Stretch<R>, Fail> {
    let rest = format!("WHERE {0} > ?1 ORDER BY {0} LIMIT ?2", R::ORDER);
    let mut statement = conn.prepare_cached(&select::<R>(&rest))?;
    let mut rows = statement.query([after, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((row.get(1)?, take(row)));
    }
    Ok(found)
}

/// The statement that reads rows of this kind.
pub(super) fn select<R: Stored>(rest: &str) -> String {
    format!("SELECT {} FROM {} {rest}", R::COLUMNS, R::TABLE)
}

fn damaged<R: Stored>(thread: Option<ThreadKey>) -> Fail {
    let message = format!("a stored {} row does not match its columns", R::NAME);
    let error = Error::new(Code::ThreadQuarantined, message).hint(
        "restore the store from a backup, or erase its thread; other threads are not affected",
    );
    Fail::Damaged(thread, error)
}

// === impl Columns ===

impl Columns<'_, '_> {
    fn thread(&self) -> Option<ThreadKey> {
        self.0.get::<_, Option<i64>>(0).ok().flatten().map(ThreadKey)
    }

    fn order(&self, expected: i64) -> bool {
        self.int(1, expected)
    }

    fn int(&self, index: usize, expected: i64) -> bool {
        matches!(self.0.get_ref(index), Ok(ValueRef::Integer(found)) if found == expected)
    }

    fn optional(&self, index: usize, expected: Option<i64>) -> bool {
        match expected {
            Some(expected) => self.int(index, expected),
            None => matches!(self.0.get_ref(index), Ok(ValueRef::Null)),
        }
    }

    fn text(&self, index: usize, expected: &str) -> bool {
        matches!(self.0.get_ref(index), Ok(ValueRef::Text(found)) if found == expected.as_bytes())
    }

    fn optional_text(&self, index: usize, expected: Option<&str>) -> bool {
        match expected {
            Some(expected) => self.text(index, expected),
            None => matches!(self.0.get_ref(index), Ok(ValueRef::Null)),
        }
    }

    fn blob(&self, index: usize, expected: &[u8]) -> bool {
        matches!(self.0.get_ref(index), Ok(ValueRef::Blob(found)) if found == expected)
    }
}

// === impl Stored ===

impl Stored for ThreadRow {
    const COLUMNS: &'static str = "key, key, body, tenant, id, owner, owner_node, epoch, ephemeral";
    const TABLE: &'static str = "threads";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.key)
    }

    fn fits(&self, row: &Columns<'_, '_>) -> bool {
        row.text(3, self.tenant.as_str())
            && row.text(4, self.id.as_str())
            && row.text(5, self.owner.as_str())
            && row.text(6, &self.owner_node)
            && row.int(7, self.epoch.cast_signed())
            && row.int(8, i64::from(self.ephemeral))
    }
}

impl Stored for RunRow {
    const COLUMNS: &'static str =
        "thread, key, body, tenant, id, principal, agent, status, ended_at, stateless";
    const TABLE: &'static str = "runs";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.thread)
    }

    fn fits(&self, row: &Columns<'_, '_>) -> bool {
        row.order(self.key.0)
            && row.text(3, self.tenant.as_str())
            && row.text(4, self.id.as_str())
            && row.text(5, self.principal.as_str())
            && row.text(6, self.agent.as_str())
            && row.text(7, self.status.as_str())
            && row.optional(8, ended_at(self))
            && row.int(9, i64::from(self.stateless))
    }
}

/// When a run ended, for the column; open runs have none, whatever the row says.
pub(super) fn ended_at(run: &RunRow) -> Option<i64> {
    run.status.is_terminal().then(|| run.ended_at.unwrap_or(run.created_at).as_micros())
}

impl Stored for MessageRow {
    const COLUMNS: &'static str = "thread, key, body, tenant, id, run, alias";
    const TABLE: &'static str = "messages";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.thread)
    }

    fn fits(&self, row: &Columns<'_, '_>) -> bool {
        row.text(3, self.tenant.as_str())
            && row.text(4, self.id.as_str())
            && row.int(5, self.run.0)
            && row.optional_text(6, self.alias.as_ref().map(MessageId::as_str))
    }
}

impl Stored for CheckpointRow {
    const COLUMNS: &'static str = "thread, key, body, id, parent, run";
    const TABLE: &'static str = "checkpoints";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.thread)
    }

    fn fits(&self, row: &Columns<'_, '_>) -> bool {
        row.order(self.key.0)
            && row.text(3, self.id.as_str())
            && row.optional(4, self.parent.map(|key| key.0))
            && row.optional(5, self.run.map(|key| key.0))
    }
}

impl Stored for InterruptRow {
    const COLUMNS: &'static str = "thread, key, body, tenant, id, principal, run, pending";
    const TABLE: &'static str = "interrupts";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.thread)
    }

    fn fits(&self, row: &Columns<'_, '_>) -> bool {
        row.text(3, self.tenant.as_str())
            && row.text(4, self.interrupt.id.as_str())
            && row.text(5, self.principal.as_str())
            && row.int(6, self.run.0)
            && row.int(7, i64::from(self.resolution.is_none()))
    }
}

impl Stored for BindingRow {
    const COLUMNS: &'static str = "thread, key, body, agent";
    const TABLE: &'static str = "bindings";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.thread)
    }

    fn fits(&self, row: &Columns<'_, '_>) -> bool {
        row.text(3, self.agent.as_str())
    }
}

impl Stored for IdempotencyRow {
    const COLUMNS: &'static str =
        "thread, key, body, tenant, principal, agent, text, run, created_at";
    const TABLE: &'static str = "idempotency";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.thread)
    }

    fn fits(&self, row: &Columns<'_, '_>) -> bool {
        row.text(3, self.key.tenant.as_str())
            && row.text(4, self.key.principal.as_str())
            && row.text(5, self.key.agent.as_str())
            && row.text(6, &self.key.text)
            && row.text(7, self.run.as_str())
            && row.int(8, self.created_at.as_micros())
    }
}

impl Stored for QueueItem {
    const COLUMNS: &'static str = "thread, id, body, kind, key, tenant, due";
    const TABLE: &'static str = "queue";
    const ORDER: &'static str = "id";

    fn thread(&self) -> Option<ThreadKey> {
        self.thread
    }

    fn fits(&self, row: &Columns<'_, '_>) -> bool {
        row.text(3, self.kind.as_str())
            && row.text(4, &self.key)
            && row.text(5, self.tenant.as_str())
            && row.int(6, self.due.as_micros())
    }
}

impl Stored for ConfigurationRow {
    const COLUMNS: &'static str = "NULL, key, body, tenant, id, owner, agent, expires_at";
    const TABLE: &'static str = "configurations";

    fn thread(&self) -> Option<ThreadKey> {
        None
    }

    fn fits(&self, row: &Columns<'_, '_>) -> bool {
        row.text(3, self.tenant.as_str())
            && row.text(4, self.id.as_str())
            && row.text(5, self.owner.as_str())
            && row.text(6, self.agent.as_str())
            && row.optional(7, self.expires_at.map(Timestamp::as_micros))
    }
}

impl Stored for TokenRow {
    const COLUMNS: &'static str = "NULL, key, body, tenant, id, principal, hash";
    const TABLE: &'static str = "tokens";

    fn thread(&self) -> Option<ThreadKey> {
        None
    }

    fn fits(&self, row: &Columns<'_, '_>) -> bool {
        row.text(3, self.tenant.as_str())
            && row.text(4, self.id.as_str())
            && row.text(5, self.principal.as_str())
            && row.blob(6, &self.hash)
    }
}
