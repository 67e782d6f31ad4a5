//! Applying one batch inside a transaction.

use rusqlite::{Connection, ErrorCode, PrepFlags, Statement, params};

use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::limits::IDEMPOTENCY_KEPT;
use trilogue_domain::{MessageId, ThreadKey};

use super::Context;
use super::fault::Fail;
use super::heads::{Head, Heads};
use super::row::{ended_at, one};
use super::{blob, queue, remove, search, thread_agents};
use crate::port::{Batch, Change};
use crate::record::{Frame, Record};
use crate::rows::{
    BindingRow, CheckpointRow, IdempotencyRow, InterruptRow, MessageRow, RunRow, ThreadRow,
};

/// What writes frames: prepared once, for the writer's connection.
#[derive(Debug, Default)]
pub(super) struct InsertFrame<'c>(Option<Statement<'c>>);

/// Passes when the batch makes sense by itself; what it meets in the store is checked later. Gives the bytes of its frames.
pub(super) fn check_form(batch: &Batch) -> Result<usize> {
    let mut last = batch.expected_last;
    for frame in &batch.frames {
        if frame.thread() != batch.thread || frame.first() != last.saturating_add(1) {
            let message = format!("frames for thread {} do not continue its log", batch.thread);
            return Err(Error::new(Code::OwnershipLost, message));
        }
        last = frame.last();
    }
    let foreign = |change: &Change| match change {
        Change::Thread(row) => row.key != batch.thread,
        Change::Run(row) => row.thread != batch.thread,
        Change::Message(row) => row.thread != batch.thread,
        Change::Checkpoint(row) => row.thread != batch.thread,
        Change::Interrupt(row) => row.thread != batch.thread,
        Change::Binding(row) => row.thread != batch.thread,
        Change::Idempotency(row) => row.thread != batch.thread,
        Change::Offer(item) => item.thread.is_some_and(|thread| thread != batch.thread),
        Change::Alias(..) | Change::Withdraw(..) | Change::RemoveRun(_) | Change::RemoveThread => {
            false
        }
    };
    if batch.changes.iter().any(foreign) {
        return Err(misuse("a row of another thread"));
    }
    batch.frame_bytes().ok_or_else(|| misuse("frames of too many bytes"))
}

/// Passes when epoch and expected number fit: before any statement of the batch.
pub(super) fn check_head(
    conn: &Connection,
    context: &Context,
    heads: &mut Heads,
    batch: &Batch,
) -> Result<(), Fail> {
    let erases = || batch.changes.iter().any(|change| matches!(change, Change::RemoveThread));
    if let Err(error) = context.health.check_thread(batch.thread)
        && !erases()
    {
        return Err(error.into());
    }
    match heads.get(conn, context, batch.thread)? {
        Some(head) if head.epoch == batch.epoch && head.last == batch.expected_last => Ok(()),
        Some(head) => Err(lost(batch, Some(head)).into()),
        None if batch.expected_last == 0 && creates(batch) => Ok(()),
        None => Err(lost(batch, None).into()),
    }
}

/// Whether the batch brings its thread's row, under its own epoch.
fn creates(batch: &Batch) -> bool {
    let is_row =
        |change: &Change| matches!(change, Change::Thread(row) if row.epoch == batch.epoch);
    batch.changes.iter().any(is_row)
}

/// Writes the batch.
pub(super) fn batch<'c>(
    conn: &'c Connection,
    insert: &mut InsertFrame<'c>,
    heads: &mut Heads,
    blobs: &mut blob::Pending,
    batch: &Batch,
) -> Result<(), Fail> {
    for frame in &batch.frames {
        insert.frame(conn, frame)?;
    }
    let last = batch.frames.last().map_or(batch.expected_last, |frame| frame.last());
    heads.set(batch.thread, Some(Head { epoch: batch.epoch, last }));
    // A thread's first row comes before the names of its blobs, and what is removed takes them along.
    let mut has_named = batch.blobs.is_empty();
    for change in &batch.changes {
        match change {
            Change::Thread(row) => {
                heads.set(batch.thread, Some(Head { epoch: row.epoch, last }));
            }
            Change::RemoveRun(_) | Change::RemoveThread if !has_named => {
                blob::refer(conn, blobs, batch)?;
                has_named = true;
            }
            _ => {}
        }
        write_change(conn, heads, blobs, batch.thread, change)?;
    }
    if !has_named {
        blob::refer(conn, blobs, batch)?;
    }
    thread_agents::note_of_batch(conn, batch)
}

// === impl InsertFrame ===

impl<'c> InsertFrame<'c> {
    const SQL: &'static str = concat!(
        "INSERT INTO frames (thread, run, first, last, first_run, body)",
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
    );

    fn frame(&mut self, conn: &'c Connection, frame: &Frame) -> Result<(), Fail> {
        let statement = match self.0.take() {
            Some(statement) => statement,
            None => conn.prepare_with_flags(Self::SQL, PrepFlags::SQLITE_PREPARE_PERSISTENT)?,
        };
        self.0.insert(statement).execute(params![
            frame.thread().0,
            frame.run().map(|run| run.0),
            frame.first().cast_signed(),
            frame.last().cast_signed(),
            frame.first_run().cast_signed(),
            frame.bytes().as_ref(),
        ])?;
        Ok(())
    }
}

fn write_change(
    conn: &Connection,
    heads: &mut Heads,
    blobs: &mut blob::Pending,
    thread: ThreadKey,
    change: &Change,
) -> Result<(), Fail> {
    match change {
        Change::Thread(row) => write_thread(conn, row),
        Change::Run(row) => write_run(conn, row),
        Change::Message(row) => write_message(conn, row),
        Change::Alias(message, alias) => write_alias(conn, thread, message, alias),
        Change::Checkpoint(row) => write_checkpoint(conn, row),
        Change::Interrupt(row) => write_interrupt(conn, row),
        Change::Binding(row) => write_binding(conn, row),
        Change::Idempotency(row) => write_idempotency(conn, row),
        Change::Offer(item) => queue::offer(conn, item),
        Change::Withdraw(kind, key) => queue::withdraw(conn, thread, *kind, key),
        Change::RemoveRun(run) => remove::run(conn, blobs, thread, *run),
        Change::RemoveThread => {
            heads.set(thread, None);
            remove::thread(conn, blobs, thread)
        }
    }
}

/// Writes a thread row and its search rows.
pub(super) fn write_thread(conn: &Connection, row: &ThreadRow) -> Result<(), Fail> {
    if !rewrite_thread(conn, row)? {
        insert_thread(conn, row)?;
    }
    let is_new = search::write(conn, search::Kind::Thread, row.key.0, &row.tenant, &row.metadata)?;
    if is_new {
        thread_agents::renew(conn, row)?;
    }
    Ok(())
}

/// Writes a row that is there and whose names stay: every index over them would be written as well, though it stays the same. `false` when there is none.
fn rewrite_thread(conn: &Connection, row: &ThreadRow) -> Result<bool, Fail> {
    let written = conn
        .prepare_cached(concat!(
            "UPDATE threads SET owner_node = ?2, epoch = ?3, body = ?4 WHERE key = ?1",
            " AND tenant = ?5 AND id = ?6 AND owner = ?7 AND ephemeral = ?8"
        ))?
        .execute(params![
            row.key.0,
            row.owner_node,
            row.epoch.cast_signed(),
            row.encode(),
            row.tenant.as_str(),
            row.id.as_str(),
            row.owner.as_str(),
            row.ephemeral,
        ])?;
    Ok(written > 0)
}

fn insert_thread(conn: &Connection, row: &ThreadRow) -> Result<(), Fail> {
    conn.prepare_cached(concat!(
        "INSERT INTO threads (key, tenant, id, owner, owner_node, epoch, ephemeral, body)",
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        " ON CONFLICT (key) DO UPDATE SET tenant = ?2, id = ?3, owner = ?4, owner_node = ?5,",
        " epoch = ?6, ephemeral = ?7, body = ?8"
    ))?
    .execute(params![
        row.key.0,
        row.tenant.as_str(),
        row.id.as_str(),
        row.owner.as_str(),
        row.owner_node,
        row.epoch.cast_signed(),
        row.ephemeral,
        row.encode(),
    ])
    .map_err(|error| taken(error, "thread", row.id.as_str()))?;
    Ok(())
}

fn write_run(conn: &Connection, row: &RunRow) -> Result<(), Fail> {
    if !rewrite_run(conn, row)? {
        insert_run(conn, row)?;
    }
    search::write(conn, search::Kind::Run, row.key.0, &row.tenant, &row.metadata)?;
    Ok(())
}

/// As [`rewrite_thread`]: of the indexes, those over the status and the end change.
fn rewrite_run(conn: &Connection, row: &RunRow) -> Result<bool, Fail> {
    let written = conn
        .prepare_cached(concat!(
            "UPDATE runs SET status = ?2, ended_at = ?3, body = ?4 WHERE key = ?1",
            " AND tenant = ?5 AND id = ?6 AND thread = ?7 AND principal = ?8",
            " AND agent = ?9 AND stateless = ?10"
        ))?
        .execute(params![
            row.key.0,
            row.status.as_str(),
            ended_at(row),
            row.encode(),
            row.tenant.as_str(),
            row.id.as_str(),
            row.thread.0,
            row.principal.as_str(),
            row.agent.as_str(),
            row.stateless,
        ])?;
    Ok(written > 0)
}

fn insert_run(conn: &Connection, row: &RunRow) -> Result<(), Fail> {
    conn.prepare_cached(concat!(
        "INSERT INTO runs (key, tenant, id, thread, principal, agent, status, ended_at, body,",
        " stateless) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        " ON CONFLICT (key) DO UPDATE SET tenant = ?2, id = ?3, thread = ?4, principal = ?5,",
        " agent = ?6, status = ?7, ended_at = ?8, body = ?9, stateless = ?10"
    ))?
    .execute(params![
        row.key.0,
        row.tenant.as_str(),
        row.id.as_str(),
        row.thread.0,
        row.principal.as_str(),
        row.agent.as_str(),
        row.status.as_str(),
        ended_at(row),
        row.encode(),
        row.stateless,
    ])
    .map_err(|error| taken(error, "run", row.id.as_str()))?;
    Ok(())
}

fn write_message(conn: &Connection, row: &MessageRow) -> Result<(), Fail> {
    conn.prepare_cached(concat!(
        "INSERT INTO messages (tenant, id, thread, run, alias, body)",
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        " ON CONFLICT (thread, id) DO UPDATE SET alias = ?5, body = ?6 WHERE run = ?4"
    ))?
    .execute(params![
        row.tenant.as_str(),
        row.id.as_str(),
        row.thread.0,
        row.run.0,
        row.alias.as_ref().map(MessageId::as_str),
        row.encode(),
    ])?;
    Ok(())
}

/// Notes another id by which a message's agent knows it.
fn write_alias(
    conn: &Connection,
    thread: ThreadKey,
    message: &MessageId,
    alias: &MessageId,
) -> Result<(), Fail> {
    let of = params![thread.0, message.as_str()];
    let Some(row) = one::<MessageRow>(conn, "WHERE thread = ?1 AND id = ?2", of)? else {
        return Ok(());
    };
    write_message(conn, &MessageRow { alias: Some(alias.clone()), ..row })
}

/// Writes a checkpoint row.
pub(super) fn write_checkpoint(conn: &Connection, row: &CheckpointRow) -> Result<(), Fail> {
    conn.prepare_cached(concat!(
        "INSERT INTO checkpoints (key, thread, id, parent, run, body)",
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        " ON CONFLICT (key) DO UPDATE SET thread = ?2, id = ?3, parent = ?4, run = ?5, body = ?6"
    ))?
    .execute(params![
        row.key.0,
        row.thread.0,
        row.id.as_str(),
        row.parent.map(|key| key.0),
        row.run.map(|key| key.0),
        row.encode(),
    ])
    .map_err(|error| taken(error, "checkpoint", row.id.as_str()))?;
    Ok(())
}

fn write_interrupt(conn: &Connection, row: &InterruptRow) -> Result<(), Fail> {
    let written = conn
        .prepare_cached(concat!(
            "INSERT INTO interrupts (tenant, id, principal, thread, run, pending, body)",
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            " ON CONFLICT (tenant, id) DO UPDATE SET principal = ?3, pending = ?6, body = ?7",
            " WHERE thread = ?4 AND run = ?5"
        ))?
        .execute(params![
            row.tenant.as_str(),
            row.interrupt.id.as_str(),
            row.principal.as_str(),
            row.thread.0,
            row.run.0,
            row.resolution.is_none(),
            row.encode(),
        ])?;
    if written == 0 {
        return Err(exists("interrupt", row.interrupt.id.as_str()).into());
    }
    Ok(())
}

fn write_binding(conn: &Connection, row: &BindingRow) -> Result<(), Fail> {
    conn.prepare_cached(concat!(
        "INSERT INTO bindings (thread, agent, body) VALUES (?1, ?2, ?3)",
        " ON CONFLICT (thread, agent) DO UPDATE SET body = ?3"
    ))?
    .execute(params![row.thread.0, row.agent.as_str(), row.encode()])?;
    Ok(())
}

fn write_idempotency(conn: &Connection, row: &IdempotencyRow) -> Result<(), Fail> {
    let forgotten = row.created_at.before(IDEMPOTENCY_KEPT).as_micros();
    let written = conn
        .prepare_cached(concat!(
            "INSERT INTO idempotency",
            " (tenant, principal, agent, text, thread, run, created_at, body)",
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            " ON CONFLICT (tenant, principal, agent, text)",
            " DO UPDATE SET thread = ?5, run = ?6, created_at = ?7, body = ?8",
            " WHERE created_at < ?9 OR (thread = ?5 AND run = ?6)"
        ))?
        .execute(params![
            row.key.tenant.as_str(),
            row.key.principal.as_str(),
            row.key.agent.as_str(),
            row.key.text,
            row.thread.0,
            row.run.as_str(),
            row.created_at.as_micros(),
            row.encode(),
            forgotten,
        ])?;
    if written == 0 {
        return Err(exists("idempotency key", &row.key.text).into());
    }
    Ok(())
}

fn lost(batch: &Batch, head: Option<Head>) -> Error {
    let found = match head {
        None => "it does not exist".to_owned(),
        Some(head) => format!("it is at epoch {}, number {}", head.epoch, head.last),
    };
    let message = format!(
        "an append to thread {} at epoch {}, number {} came too late: {found}",
        batch.thread, batch.epoch, batch.expected_last
    );
    Error::new(Code::OwnershipLost, message)
}

fn taken(error: rusqlite::Error, what: &str, id: &str) -> Fail {
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => exists(what, id).into(),
        _ => error.into(),
    }
}

fn exists(what: &str, id: &str) -> Error {
    Error::new(Code::AlreadyExists, format!("the {what} '{}' exists already", id.escape_debug()))
        .hint("use another id, or let the server choose one")
}

fn misuse(what: &str) -> Error {
    Error::new(Code::Internal, format!("a batch holds {what}"))
}
