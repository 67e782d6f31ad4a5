//! Applying one batch inside a transaction.

use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, PrepFlags, Statement, params};
use smallvec::SmallVec;
use trilogue_domain::limits::IDEMPOTENCY_KEPT;
use trilogue_domain::{AgentName, Json, MessageId, ThreadKey};

use super::error::SqliteError;
use super::job::WriteContext;
use super::row::{one, run_to_end, write, write_encoded};
use super::{blob, queue, remove, search, thread_agents, thread_removal};
use crate::core::batch::Head;
use crate::core::table::TableRow;
use crate::core::{already_exists, damaged};
use crate::port::{Batch, Change};
use crate::record::Frame;
use crate::rows::{
    BindingRow, CheckpointRow, IdempotencyRow, InterruptRow, MessageRow, RunRow, ThreadRow,
};

/// Writes frames, with one prepared statement of the writer's connection.
#[derive(Debug, Default)]
pub(super) struct InsertFrame<'c> {
    statement: Option<Statement<'c>>,
    newest: Option<i64>,
}

/// The kinds of rows that cannot exist yet: those of a thread that the batch creates.
struct NewRows<'a> {
    thread: bool,
    run: bool,
    /// The agents whose runs may be new in the thread.
    agents: SmallVec<[&'a AgentName; 1]>,
}

/// Updates a row whose indexed columns and metadata do not change: an insert would rewrite every index.
pub(super) const UPDATE_THREAD: &str = concat!(
    "UPDATE threads SET owner_node = ?6, epoch = ?7, body = ?9",
    " WHERE key = ?1 AND tenant = ?3 AND id = ?4 AND owner = ?5 AND ephemeral = ?8",
    " AND searched = ?10"
);
/// As [`UPDATE_THREAD`], for a run. It rewrites only the indexes of the run's status and end.
pub(super) const UPDATE_RUN: &str = concat!(
    "UPDATE runs SET status = ?7, ended_at = ?8, body = ?10 WHERE key = ?2",
    " AND tenant = ?3 AND id = ?4 AND thread = ?1 AND principal = ?5",
    " AND agent = ?6 AND stateless = ?9 AND searched = ?11"
);

/// Checks epoch and expected number before any statement of the batch. Returns whether the batch creates its thread.
pub(super) fn check_head(writer: &WriteContext<'_>, batch: &Batch) -> Result<bool, SqliteError> {
    // A damaged thread can still be erased.
    if !batch.removes_thread() {
        writer.context.health.check_thread(batch.thread)?;
    }
    let head = writer.heads.get(writer.conn, writer.context, batch.thread)?;
    batch.check_head(head)?;
    Ok(head.is_none())
}

/// Writes the rows of a batch whose frames are already written.
pub(super) fn batch(
    writer: &mut WriteContext<'_>,
    batch: &Batch,
    is_new: bool,
) -> Result<(), SqliteError> {
    let (conn, last) = (writer.conn, batch.last());
    // Before the changes: the removal of the thread then replaces this head with none.
    writer.heads.set(batch.thread, Some(Head { epoch: batch.epoch, last }));
    let mut new = NewRows { thread: is_new, run: is_new, agents: SmallVec::new() };
    // A thread's first row must precede its blob references, and these must precede a removal.
    let mut has_named = batch.blobs.is_empty();
    for change in &batch.changes {
        match change {
            Change::Thread(row) => {
                // The row may begin an epoch: later appends of the group are compared with it.
                writer.heads.set(batch.thread, Some(Head { epoch: row.epoch, last }));
            }
            Change::RemoveRun(_) | Change::RemoveThread if !has_named => {
                blob::refer(conn, writer.blobs, batch)?;
                has_named = true;
            }
            _ => {}
        }
        write_change(writer, batch.thread, change, &mut new)?;
    }
    if !has_named {
        blob::refer(conn, writer.blobs, batch)?;
    }
    thread_agents::note_all(conn, batch, &new.agents)
}

// === impl InsertFrame ===

impl<'c> InsertFrame<'c> {
    const SQL: &'static str = concat!(
        "INSERT INTO frames (thread, run, first, last, first_run, body)",
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
    );

    pub(super) fn all(
        &mut self,
        conn: &'c Connection,
        frames: &[Arc<Frame>],
    ) -> Result<(), SqliteError> {
        frames.iter().try_for_each(|frame| self.frame(conn, frame))
    }

    pub(super) fn frame(&mut self, conn: &'c Connection, frame: &Frame) -> Result<(), SqliteError> {
        let statement = match self.statement.take() {
            Some(statement) => statement,
            None => conn.prepare_with_flags(Self::SQL, PrepFlags::SQLITE_PREPARE_PERSISTENT)?,
        };
        self.statement.insert(statement).execute(params![
            frame.thread().0,
            frame.run().map(|run| run.0),
            frame.first().cast_signed(),
            frame.last().cast_signed(),
            frame.first_run().cast_signed(),
            frame.bytes().as_ref(),
        ])?;
        // Read at once, because the next insert on this connection replaces it.
        self.newest = Some(conn.last_insert_rowid());
        Ok(())
    }

    /// The id of the last frame that was written since the last call.
    pub(super) fn take_newest(&mut self) -> Option<i64> {
        self.newest.take()
    }
}

/// Writes a row of a copy into a table that does not have it yet.
pub(super) fn write_new(conn: &Connection, change: &Change) -> Result<(), SqliteError> {
    match change {
        Change::Thread(row) => write_thread(conn, row, true),
        Change::Run(row) => write_run(conn, row, true).map(drop),
        Change::Message(row) => write_message(conn, row),
        Change::Checkpoint(row) => write_checkpoint(conn, row),
        Change::Interrupt(row) => write_interrupt(conn, row),
        Change::Binding(row) => write_binding(conn, row),
        Change::Idempotency(row) => write_idempotency(conn, row),
        Change::Alias(..)
        | Change::Offer(_)
        | Change::Withdraw(..)
        | Change::RemoveRun(_)
        | Change::RemoveThread => Err(damaged("a copy has rows only").into()),
    }
}

fn write_change<'a>(
    writer: &mut WriteContext<'_>,
    thread: ThreadKey,
    change: &'a Change,
    new: &mut NewRows<'a>,
) -> Result<(), SqliteError> {
    let conn = writer.conn;
    match change {
        // Only the first row is new. A second one of the batch finds it.
        Change::Thread(row) => write_thread(conn, row, std::mem::take(&mut new.thread)),
        Change::Run(row) => {
            let is_update = write_run(conn, row, std::mem::take(&mut new.run))?;
            // Several agents in one batch are rare.
            if !is_update && new.agents.last() != Some(&&row.agent) {
                new.agents.push(&row.agent);
            }
            Ok(())
        }
        Change::Message(row) => write_message(conn, row),
        Change::Alias(message, alias) => write_alias(conn, thread, message, alias),
        Change::Checkpoint(row) => write_checkpoint(conn, row),
        Change::Interrupt(row) => write_interrupt(conn, row),
        Change::Binding(row) => write_binding(conn, row),
        Change::Idempotency(row) => write_idempotency(conn, row),
        Change::Offer(item) => queue::offer(conn, item),
        Change::Withdraw(kind, key) => {
            run_to_end(crate::sql::queue::withdraw(conn, thread, *kind, key))
        }
        Change::RemoveRun(run) => remove::run(conn, writer.blobs, thread, *run),
        Change::RemoveThread => thread_removal::remove(writer, &[thread]),
    }
}

/// `is_new` says that the row does not exist yet: then no statement looks it up.
pub(super) fn write_thread(
    conn: &Connection,
    row: &ThreadRow,
    is_new: bool,
) -> Result<(), SqliteError> {
    const INSERT: &str = concat!(
        "INSERT INTO threads (key, tenant, id, owner, owner_node, epoch, ephemeral, body)",
        " VALUES (?1, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        " ON CONFLICT (key) DO UPDATE SET tenant = ?3, id = ?4, owner = ?5, owner_node = ?6,",
        " epoch = ?7, ephemeral = ?8, body = ?9"
    );
    let update = (!is_new).then_some((UPDATE_THREAD, &row.metadata));
    if update_or_insert(conn, update, INSERT, row)
        .map_err(|error| to_conflict_error(error, "thread", row.id.as_str()))?
    {
        return Ok(());
    }
    let owner = (search::SearchKind::Thread, row.key.0);
    let has_changed = search::write(conn, owner, &row.tenant, &row.metadata, is_new)?;
    if has_changed {
        thread_agents::renew(conn, row)?;
    }
    Ok(())
}

/// Returns whether it updated a run that keeps its agent and its metadata.
pub(super) fn write_run(
    conn: &Connection,
    row: &RunRow,
    is_new: bool,
) -> Result<bool, SqliteError> {
    const INSERT: &str = concat!(
        "INSERT INTO runs (thread, key, tenant, id, principal, agent, status, ended_at, stateless,",
        " body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        " ON CONFLICT (key) DO UPDATE SET thread = ?1, tenant = ?3, id = ?4, principal = ?5,",
        " agent = ?6, status = ?7, ended_at = ?8, stateless = ?9, body = ?10"
    );
    let update = (!is_new).then_some((UPDATE_RUN, &row.metadata));
    if update_or_insert(conn, update, INSERT, row)
        .map_err(|error| to_conflict_error(error, "run", row.id.as_str()))?
    {
        return Ok(true);
    }
    let owner = (search::SearchKind::Run, row.key.0);
    search::write(conn, owner, &row.tenant, &row.metadata, is_new)?;
    Ok(false)
}

/// Returns whether the update found the row with search rows of the same metadata.
fn update_or_insert<R: TableRow>(
    conn: &Connection,
    update: Option<(&str, &Json)>,
    insert: &str,
    row: &R,
) -> rusqlite::Result<bool> {
    let body = row.encode();
    if let Some((update, metadata)) = update
        && write_encoded(&mut conn.prepare_cached(update)?, row, &body, &[&search::mark(metadata)])?
            > 0
    {
        return Ok(true);
    }
    write_encoded(&mut conn.prepare_cached(insert)?, row, &body, &[])?;
    Ok(false)
}

fn write_message(conn: &Connection, row: &MessageRow) -> Result<(), SqliteError> {
    let sql = concat!(
        "INSERT INTO messages (thread, tenant, id, run, alias, body)",
        " VALUES (?1, ?3, ?4, ?5, ?6, ?7)",
        " ON CONFLICT (thread, id) DO UPDATE SET alias = ?6, body = ?7 WHERE run = ?5"
    );
    write(conn, sql, row, &[])?;
    Ok(())
}

fn write_alias(
    conn: &Connection,
    thread: ThreadKey,
    message: &MessageId,
    alias: &MessageId,
) -> Result<(), SqliteError> {
    let of = params![thread.0, message.as_str()];
    let Some(row) = one::<MessageRow>(conn, "WHERE thread = ?1 AND id = ?2", of)? else {
        return Ok(());
    };
    write_message(conn, &MessageRow { alias: Some(alias.clone()), ..row })
}

pub(super) fn write_checkpoint(conn: &Connection, row: &CheckpointRow) -> Result<(), SqliteError> {
    let sql = concat!(
        "INSERT INTO checkpoints (thread, key, id, parent, run, body)",
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        " ON CONFLICT (key) DO UPDATE SET thread = ?1, id = ?3, parent = ?4, run = ?5, body = ?6"
    );
    write(conn, sql, row, &[])
        .map_err(|error| to_conflict_error(error, "checkpoint", row.id.as_str()))?;
    Ok(())
}

fn write_interrupt(conn: &Connection, row: &InterruptRow) -> Result<(), SqliteError> {
    let sql = concat!(
        "INSERT INTO interrupts (thread, tenant, id, principal, run, pending, body)",
        " VALUES (?1, ?3, ?4, ?5, ?6, ?7, ?8)",
        " ON CONFLICT (tenant, id) DO UPDATE SET principal = ?5, pending = ?7, body = ?8",
        " WHERE thread = ?1 AND run = ?6"
    );
    if write(conn, sql, row, &[])? == 0 {
        return Err(already_exists("interrupt", row.interrupt.id.as_str()).into());
    }
    Ok(())
}

pub(super) fn write_binding(conn: &Connection, row: &BindingRow) -> Result<(), SqliteError> {
    let sql = concat!(
        "INSERT INTO bindings (thread, agent, body) VALUES (?1, ?3, ?4)",
        " ON CONFLICT (thread, agent) DO UPDATE SET body = ?4"
    );
    write(conn, sql, row, &[])?;
    Ok(())
}

fn write_idempotency(conn: &Connection, row: &IdempotencyRow) -> Result<(), SqliteError> {
    let forgotten = row.created_at.before(IDEMPOTENCY_KEPT).as_micros();
    let sql = concat!(
        "INSERT INTO idempotency",
        " (thread, tenant, principal, agent, text, run, created_at, body)",
        " VALUES (?1, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        " ON CONFLICT (tenant, principal, agent, text)",
        " DO UPDATE SET thread = ?1, run = ?7, created_at = ?8, body = ?9",
        " WHERE created_at < ?10 OR (thread = ?1 AND run = ?7)",
        // Its thread was removed, and its rows are being deleted.
        " OR NOT EXISTS (SELECT 1 FROM threads WHERE threads.key = idempotency.thread)"
    );
    if write(conn, sql, row, &[&forgotten])? == 0 {
        return Err(already_exists("idempotency key", &row.key.text).into());
    }
    Ok(())
}

fn to_conflict_error(error: rusqlite::Error, what: &str, id: &str) -> SqliteError {
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => already_exists(what, id).into(),
        _ => error.into(),
    }
}
