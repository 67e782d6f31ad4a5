//! The agents of threads, for listings: search rows of a separate kind. Their name is the agent's and their hash is zero.
//!
//! Such a row may outlive the agent's membership but is never missing: a listing compares before it shows a thread.

use rusqlite::{Connection, params};
use trilogue_domain::{AgentName, TenantId, ThreadKey};

use super::error::SqliteError;
use crate::port::{Batch, Change};
use crate::rows::ThreadRow;

/// The kind of these search rows, in addition to those of [`super::search::SearchKind`].
pub(super) const KIND: i64 = 3;

/// Notes the agents of the runs that a batch adds. The thread's row must exist.
pub(super) fn note_all(
    conn: &Connection,
    batch: &Batch,
    agents: &[&AgentName],
) -> Result<(), SqliteError> {
    // Listings show no ephemeral threads, so those have no rows.
    let is_ephemeral = |change: &Change| matches!(change, Change::Thread(row) if row.ephemeral);
    if batch.changes.iter().any(is_ephemeral) {
        return Ok(());
    }
    agents.iter().try_for_each(|agent| note(conn, batch.thread, agent))
}

/// Rewrites the rows after a change of metadata. Removes an agent that only the old metadata named.
pub(super) fn renew(conn: &Connection, thread: &ThreadRow) -> Result<(), SqliteError> {
    conn.prepare_cached(concat!(
        "DELETE FROM search WHERE kind = ?2 AND id = ?1 AND NOT EXISTS",
        " (SELECT 1 FROM runs INDEXED BY runs_by_thread",
        " WHERE runs.thread = ?1 AND runs.agent = search.name)"
    ))?
    .execute([thread.key.0, KIND])?;
    match thread.agent() {
        Some(agent) => note(conn, thread.key, &agent),
        None => Ok(()),
    }
}

/// Whether an agent is one of a thread's; `row` is the thread's.
pub(super) fn has(
    conn: &Connection,
    row: &ThreadRow,
    agent: &AgentName,
) -> Result<bool, SqliteError> {
    if !may_have(conn, row.key, &row.tenant, agent)? {
        return Ok(false);
    }
    if row.agent().as_ref() == Some(agent) {
        return Ok(true);
    }
    let sql = "SELECT 1 FROM runs INDEXED BY runs_by_thread WHERE thread = ?1 AND agent = ?2";
    Ok(conn.prepare_cached(sql)?.exists(params![row.key.0, agent.as_str()])?)
}

/// Listings show no ephemeral threads, so these have no rows.
pub(super) fn note(
    conn: &Connection,
    thread: ThreadKey,
    agent: &AgentName,
) -> Result<(), SqliteError> {
    conn.prepare_cached(concat!(
        "INSERT OR IGNORE INTO search (tenant, kind, name, hash, id)",
        " SELECT tenant, ?3, ?2, 0, key FROM threads WHERE key = ?1 AND ephemeral = 0"
    ))?
    .execute(params![thread.0, agent.as_str(), KIND])?;
    Ok(())
}

fn may_have(
    conn: &Connection,
    thread: ThreadKey,
    tenant: &TenantId,
    agent: &AgentName,
) -> Result<bool, SqliteError> {
    let sql = concat!(
        "SELECT 1 FROM search WHERE tenant = ?1 AND kind = ?2 AND name = ?3 AND hash = 0",
        " AND id = ?4"
    );
    let params = params![tenant.as_str(), KIND, agent.as_str(), thread.0];
    Ok(conn.prepare_cached(sql)?.exists(params)?)
}
