use std::collections::HashSet;

use rusqlite::{Connection, params};
use trilogue_domain::{CheckpointKey, MessageId, PrincipalId, Scope, ThreadId, ThreadKey};

use super::Context;
use super::error::SqliteError;
use super::row::one;
use crate::core::health::OwnedRow;
use crate::core::table::TableRow;
use crate::rows::{CheckpointRow, MessageRow, RunRow, ThreadRow};

/// The oldest message of an id whose run an owner has created; of any owner where it is null. A message of a removed thread may still be there.
pub(super) const OF_RUN_SEEN: &str = concat!(
    "WHERE tenant = ?1 AND id = ?2 AND EXISTS (SELECT 1 FROM runs",
    " WHERE runs.key = messages.run AND runs.tenant = ?1 AND (?3 IS NULL OR runs.principal = ?3))",
    " AND EXISTS (SELECT 1 FROM threads WHERE threads.key = messages.thread)",
    " ORDER BY key LIMIT 1"
);
/// The oldest message that its agent knows by an id.
pub(super) const BY_ALIAS: &str = "WHERE thread = ?1 AND alias = ?2 ORDER BY key LIMIT 1";

pub(super) fn by_id<R: TableRow + OwnedRow>(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &str,
) -> Result<Option<R>, SqliteError> {
    let rest = "WHERE tenant = ?1 AND id = ?2";
    let found = one(conn, rest, params![scope.tenant.as_str(), id])?;
    Ok(context.health.visible(scope, found)?)
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

/// The oldest message of this id whose run the scope sees.
pub(super) fn message(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &MessageId,
) -> Result<Option<MessageRow>, SqliteError> {
    let owner = scope.owner.as_ref().map(PrincipalId::as_str);
    let params = params![scope.tenant.as_str(), id.as_str(), owner];
    let Some(row) = one::<MessageRow>(conn, OF_RUN_SEEN, params)? else { return Ok(None) };
    // The run's columns are checked against its row.
    let run = one::<RunRow>(conn, "WHERE key = ?1", [row.run.0])?;
    if !run.is_some_and(|run| scope.sees(&run.tenant, &run.principal)) {
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
