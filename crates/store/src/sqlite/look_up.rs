//! Looking single things up.

use rusqlite::{Connection, params};
use trilogue_domain::{
    AgentName, CheckpointId, CheckpointKey, InterruptId, MessageId, RunId, Scope, ThreadId,
    ThreadKey,
};

use super::Context;
use super::fault::Fail;
use super::row::one;
use crate::rows::{BindingRow, CheckpointRow, InterruptRow, MessageRow, RunRow, ThreadRow};

const BY_ID: &str = "WHERE tenant = ?1 AND id = ?2";

/// A thread that the scope sees.
pub(super) fn thread(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &ThreadId,
) -> Result<Option<ThreadRow>, Fail> {
    let found = one::<ThreadRow>(conn, BY_ID, params![scope.tenant.as_str(), id.as_str()])?;
    let Some(row) = found.filter(|row| scope.sees(&row.tenant, &row.owner)) else {
        return Ok(None);
    };
    context.health.check_thread(row.key)?;
    Ok(Some(row))
}

/// A thread that the scope sees, by key.
pub(super) fn thread_of(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    key: ThreadKey,
) -> Result<Option<ThreadRow>, Fail> {
    let found = one::<ThreadRow>(conn, "WHERE key = ?1", [key.0])?;
    let Some(row) = found.filter(|row| scope.sees(&row.tenant, &row.owner)) else {
        return Ok(None);
    };
    context.health.check_thread(row.key)?;
    Ok(Some(row))
}

/// A run that the scope sees.
pub(super) fn run(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &RunId,
) -> Result<Option<RunRow>, Fail> {
    let found = one::<RunRow>(conn, BY_ID, params![scope.tenant.as_str(), id.as_str()])?;
    let Some(row) = found.filter(|row| scope.sees(&row.tenant, &row.principal)) else {
        return Ok(None);
    };
    context.health.check_thread(row.thread)?;
    Ok(Some(row))
}

/// An interrupt that the scope sees.
pub(super) fn interrupt(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &InterruptId,
) -> Result<Option<InterruptRow>, Fail> {
    let found = one::<InterruptRow>(conn, BY_ID, params![scope.tenant.as_str(), id.as_str()])?;
    let Some(row) = found.filter(|row| scope.sees(&row.tenant, &row.principal)) else {
        return Ok(None);
    };
    context.health.check_thread(row.thread)?;
    Ok(Some(row))
}

/// A message of a run that the scope sees.
pub(super) fn message(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &MessageId,
) -> Result<Option<MessageRow>, Fail> {
    let found = one::<MessageRow>(conn, BY_ID, params![scope.tenant.as_str(), id.as_str()])?;
    let Some(row) = found.filter(|row| row.tenant == scope.tenant) else { return Ok(None) };
    let run = one::<RunRow>(conn, "WHERE key = ?1", [row.run.0])?;
    if !run.is_some_and(|run| scope.sees(&run.tenant, &run.principal)) {
        return Ok(None);
    }
    context.health.check_thread(row.thread)?;
    Ok(Some(row))
}

/// A checkpoint of a thread that the scope sees.
pub(super) fn checkpoint(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &ThreadId,
    checkpoint: &CheckpointId,
) -> Result<Option<CheckpointRow>, Fail> {
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
) -> Result<Vec<CheckpointRow>, Fail> {
    // One snapshot for the whole path.
    let snapshot = conn.unchecked_transaction()?;
    let Some(thread) = thread(&snapshot, context, scope, id)? else { return Ok(Vec::new()) };
    let mut path = Vec::new();
    let mut next = from.or(thread.head);
    while let Some(key) = next.filter(|_| path.len() < limit) {
        let rest = "WHERE key = ?1 AND thread = ?2";
        let found = one::<CheckpointRow>(&snapshot, rest, [key.0, thread.key.0])?;
        let Some(row) = found else { break };
        // A parent is older than its child; what says otherwise would never end.
        next = row.parent.filter(|parent| *parent < row.key);
        path.push(row);
    }
    Ok(path)
}

/// How an agent knows a thread that the scope sees.
pub(super) fn binding(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &ThreadId,
    agent: &AgentName,
) -> Result<Option<BindingRow>, Fail> {
    let Some(thread) = thread(conn, context, scope, id)? else { return Ok(None) };
    one(conn, "WHERE thread = ?1 AND agent = ?2", params![thread.key.0, agent.as_str()])
}
