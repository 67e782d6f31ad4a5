use std::collections::HashSet;

use rusqlite::{Connection, params};
use trilogue_domain::{CheckpointKey, MessageId, Scope, ThreadId, ThreadKey};

use super::Context;
use super::error::SqliteError;
use super::row::one;
use crate::core::health::OwnedRow;
use crate::core::table::TableRow;
use crate::rows::{CheckpointRow, MessageRow, RunRow, ThreadRow};

/// A thread's message by its id.
pub(super) const BY_ID: &str = "WHERE thread = ?1 AND id = ?2";
/// The oldest message with this alias, the id that its agent gave it.
pub(super) const BY_ALIAS: &str = "WHERE thread = ?1 AND alias = ?2 ORDER BY key LIMIT 1";

pub(super) fn by_id<R: TableRow + OwnedRow>(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &str,
) -> Result<Option<R>, SqliteError> {
    Ok(context.health.visible(scope, row_with_id(conn, scope, id)?)?)
}

/// The row with an id in the scope's tenant, without a check whether the scope sees it.
fn row_with_id<R: TableRow>(
    conn: &Connection,
    scope: &Scope,
    id: &str,
) -> Result<Option<R>, SqliteError> {
    one(conn, "WHERE tenant = ?1 AND id = ?2", params![scope.tenant.as_str(), id])
}

/// As [`by_id`], but only for a quarantined thread.
pub(super) fn damaged_thread(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &ThreadId,
) -> Result<Option<ThreadRow>, SqliteError> {
    let found: Option<ThreadRow> = row_with_id(conn, scope, id.as_str())?;
    let is_damaged = |row: &ThreadRow| context.health.quarantine.check(row.key).is_err();
    let is_shown = |row: &ThreadRow| row.is_seen(scope) && !context.health.hidden.contains(row.key);
    Ok(found.filter(|row| is_damaged(row) && is_shown(row)))
}

pub(super) fn thread_of(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    key: ThreadKey,
) -> Result<Option<ThreadRow>, SqliteError> {
    let found = one::<ThreadRow>(conn, "WHERE key = ?1", [key.0])?;
    Ok(context.health.visible(scope, found)?)
}

/// The message of a thread with this id, if the scope sees its run.
pub(super) fn message(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    thread: &ThreadId,
    id: &MessageId,
) -> Result<Option<MessageRow>, SqliteError> {
    // The run decides whether the scope sees the message: the thread may belong to another principal.
    let tenant = Scope::of_tenant(&scope.tenant);
    let thread = by_id::<ThreadRow>(conn, context, &tenant, thread.as_str())?;
    let Some(thread) = thread else { return Ok(None) };
    let found = one::<MessageRow>(conn, BY_ID, params![thread.key.0, id.as_str()])?;
    let Some(row) = found else { return Ok(None) };
    let run = one::<RunRow>(conn, "WHERE key = ?1", [row.run.0])?;
    if !run.is_some_and(|run| scope.can_see(&run.tenant, &run.principal)) {
        return Ok(None);
    }
    context.health.check_thread(row.thread)?;
    Ok(Some(row))
}

/// The path of a thread that the scope sees, newest first.
pub(super) fn path(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &ThreadId,
    from: Option<CheckpointKey>,
    limit: usize,
) -> Result<Vec<CheckpointRow>, SqliteError> {
    // One snapshot for the whole path.
    let snapshot = conn.unchecked_transaction()?;
    let Some(thread) = by_id::<ThreadRow>(&snapshot, context, scope, id.as_str())? else {
        return Ok(Vec::new());
    };
    // A damaged link can lead in a circle.
    let (mut path, mut passed) = (Vec::new(), HashSet::new());
    let mut next = from.or(thread.head);
    while let Some(key) = next.filter(|key| path.len() < limit && passed.insert(*key)) {
        let rest = "WHERE key = ?1 AND thread = ?2";
        let found = one::<CheckpointRow>(&snapshot, rest, [key.0, thread.key.0])?;
        let Some(row) = found else { break };
        next = row.parent;
        path.push(row);
    }
    Ok(path)
}
