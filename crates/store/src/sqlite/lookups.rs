use rusqlite::{Connection, params};
use trilogue_domain::{
    AgentName, CheckpointId, CheckpointKey, InterruptId, MessageId, PrincipalId, RunId, Scope,
    ThreadId, ThreadKey,
};

use super::Context;
use super::error::SqliteError;
use super::row::one;
use crate::rows::{BindingRow, CheckpointRow, InterruptRow, MessageRow, RunRow, ThreadRow};

const BY_ID: &str = "WHERE tenant = ?1 AND id = ?2";
/// The oldest message of an id whose run an owner has created; of any owner where it is null.
pub(super) const OF_RUN_SEEN: &str = concat!(
    "WHERE tenant = ?1 AND id = ?2 AND EXISTS (SELECT 1 FROM runs",
    " WHERE runs.key = messages.run AND runs.tenant = ?1 AND (?3 IS NULL OR runs.principal = ?3))",
    " ORDER BY key LIMIT 1"
);
/// The oldest message that its agent knows by an id.
pub(super) const BY_ALIAS: &str = "WHERE thread = ?1 AND alias = ?2 ORDER BY key LIMIT 1";

pub(super) fn thread(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &ThreadId,
) -> Result<Option<ThreadRow>, SqliteError> {
    let found = one::<ThreadRow>(conn, BY_ID, params![scope.tenant.as_str(), id.as_str()])?;
    Ok(context.health.quarantine.visible(scope, found)?)
}

pub(super) fn thread_of(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    key: ThreadKey,
) -> Result<Option<ThreadRow>, SqliteError> {
    let found = one::<ThreadRow>(conn, "WHERE key = ?1", [key.0])?;
    Ok(context.health.quarantine.visible(scope, found)?)
}

pub(super) fn run(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &RunId,
) -> Result<Option<RunRow>, SqliteError> {
    let found = one::<RunRow>(conn, BY_ID, params![scope.tenant.as_str(), id.as_str()])?;
    Ok(context.health.quarantine.visible(scope, found)?)
}

pub(super) fn interrupt(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &InterruptId,
) -> Result<Option<InterruptRow>, SqliteError> {
    let found = one::<InterruptRow>(conn, BY_ID, params![scope.tenant.as_str(), id.as_str()])?;
    Ok(context.health.quarantine.visible(scope, found)?)
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

/// A message of a thread by its id, else the oldest that its agent knows by it.
pub(super) fn message_in(
    conn: &Connection,
    context: &Context,
    thread: ThreadKey,
    id: &MessageId,
) -> Result<Option<MessageRow>, SqliteError> {
    context.health.check_thread(thread)?;
    let key = id.as_str();
    match one(conn, "WHERE thread = ?1 AND id = ?2", params![thread.0, key])? {
        Some(row) => Ok(Some(row)),
        None => one(conn, BY_ALIAS, params![thread.0, key]),
    }
}

pub(super) fn checkpoint(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &ThreadId,
    checkpoint: &CheckpointId,
) -> Result<Option<CheckpointRow>, SqliteError> {
    let Some(thread) = thread(conn, context, scope, id)? else { return Ok(None) };
    one(conn, "WHERE thread = ?1 AND id = ?2", params![thread.key.0, checkpoint.as_str()])
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
    let Some(thread) = thread(&snapshot, context, scope, id)? else { return Ok(Vec::new()) };
    let mut path = Vec::new();
    let mut next = from.or(thread.head);
    while let Some(key) = next.filter(|_| path.len() < limit) {
        let rest = "WHERE key = ?1 AND thread = ?2";
        let found = one::<CheckpointRow>(&snapshot, rest, [key.0, thread.key.0])?;
        let Some(row) = found else { break };
        // A parent is older than its child; a damaged link could make an endless loop.
        next = row.parent.filter(|parent| *parent < row.key);
        path.push(row);
    }
    Ok(path)
}

pub(super) fn binding(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &ThreadId,
    agent: &AgentName,
) -> Result<Option<BindingRow>, SqliteError> {
    let Some(thread) = thread(conn, context, scope, id)? else { return Ok(None) };
    one(conn, "WHERE thread = ?1 AND agent = ?2", params![thread.key.0, agent.as_str()])
}
