use std::collections::HashSet;

use rusqlite::{Connection, params};
use trilogue_domain::{CheckpointKey, Scope, ThreadId};

use super::Context;
use super::error::SqliteError;
use super::row::{one, run_to_end};
use crate::core::health::OwnedRow;
use crate::rows::{CheckpointRow, ThreadRow};
use crate::sql::lookups;

/// A thread's message by its id.
pub(super) const BY_ID: &str = lookups::IN_THREAD;
/// The oldest message with this alias, the id that its agent gave it.
pub(super) const BY_ALIAS: &str = "WHERE thread = ?1 AND alias = ?2 ORDER BY key LIMIT 1";

/// As [`lookups::by_id`], but only for a quarantined thread.
pub(super) fn damaged_thread(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    id: &ThreadId,
) -> Result<Option<ThreadRow>, SqliteError> {
    let params = params![scope.tenant.as_str(), id.as_str()];
    let found: Option<ThreadRow> = one(conn, "WHERE tenant = ?1 AND id = ?2", params)?;
    let is_damaged = |row: &ThreadRow| context.health.quarantine.check(row.key).is_err();
    let is_shown = |row: &ThreadRow| row.is_seen(scope) && !context.health.hidden.contains(row.key);
    Ok(found.filter(|row| is_damaged(row) && is_shown(row)))
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
    let by_id = lookups::by_id(&*snapshot, &context.health, scope, id.as_str());
    let found: Option<ThreadRow> = run_to_end(by_id)?;
    let Some(thread) = found else { return Ok(Vec::new()) };
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
