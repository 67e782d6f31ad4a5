//! Search rows: they find the threads and runs with a certain value of a metadata member, and the threads of an agent.
//!
//! The row of a thread's agent may outlive the agent's membership but is never missing: a listing compares before it shows a thread.

use trilogue_domain::{AgentName, Json, TenantId, ThreadKey};

use super::change::RowStatement;
use super::row::Param;
use crate::core::search::value_hash;
use crate::rows::{RunRow, ThreadRow};

pub(super) const THREADS: i64 = 1;
pub(super) const RUNS: i64 = 2;
/// No sum of metadata has this value.
pub(super) const UNKNOWN_SUM: i64 = -1;

/// Makes the search rows of a row match its metadata. Rows that stay are not touched, because one statement cannot add a row that it removes.
macro_rules! rewrite {
    ($table:literal) => {
        concat!(
            "WITH wanted AS (SELECT DISTINCT * FROM unnest($4::bytea[], $5::bigint[]) AS w(name, hash)),",
            " gone AS (DELETE FROM search WHERE kind = $2 AND id = $3 AND NOT EXISTS",
            " (SELECT 1 FROM wanted WHERE wanted.name = search.name AND wanted.hash = search.hash)),",
            " marked AS (UPDATE ",
            $table,
            " SET searched = $6 WHERE key = $3)",
            " INSERT INTO search (tenant, kind, name, hash, id)",
            " SELECT $1, $2, name, hash, $3 FROM wanted ON CONFLICT DO NOTHING"
        )
    };
}

const FORGET_AGENTS: &str = concat!(
    "DELETE FROM search WHERE kind = 3 AND id = $1 AND NOT EXISTS (SELECT 1 FROM runs",
    " WHERE runs.thread = $1 AND convert_to(runs.agent, 'UTF8') = search.name)"
);
/// Listings show no ephemeral threads, so those have no rows.
const NOTE_AGENT: &str = concat!(
    "INSERT INTO search (tenant, kind, name, hash, id)",
    " SELECT tenant, 3, $2, 0, key FROM threads WHERE key = $1 AND NOT ephemeral",
    " ON CONFLICT DO NOTHING"
);

/// The statements that follow a thread's row. `searched` is the sum of the metadata that the search rows were made from.
pub(super) fn of_thread(row: &ThreadRow, searched: i64) -> Vec<RowStatement<'_>> {
    let change =
        rewrite(rewrite!("threads"), THREADS, row.key.0, &row.tenant, &row.metadata, searched);
    let Some(statement) = change else { return Vec::new() };
    let forget = RowStatement::new(FORGET_AGENTS, vec![Param::integer(row.key.0)]);
    let mut statements = vec![statement, forget];
    if let Some(agent) = row.agent() {
        let name = agent.as_str().as_bytes().to_vec();
        statements.push(RowStatement::new(
            NOTE_AGENT,
            vec![Param::integer(row.key.0), Param::Body(name)],
        ));
    }
    statements
}

/// As [`of_thread`], for a run.
pub(super) fn of_run(row: &RunRow, searched: i64) -> Vec<RowStatement<'_>> {
    rewrite(rewrite!("runs"), RUNS, row.key.0, &row.tenant, &row.metadata, searched)
        .into_iter()
        .collect()
}

/// Notes an agent of a thread.
pub(super) fn note_agent<'a>(thread: ThreadKey, agent: &'a AgentName) -> RowStatement<'a> {
    let name = Param::bytes(agent.as_str().as_bytes());
    RowStatement::new(NOTE_AGENT, vec![Param::integer(thread.0), name])
}

fn rewrite<'a>(
    sql: &'static str,
    kind: i64,
    id: i64,
    tenant: &'a TenantId,
    metadata: &Json,
    searched: i64,
) -> Option<RowStatement<'a>> {
    // Zero means "never made". An object without members needs no rows.
    let sum = i64::from(crc32c::crc32c(metadata.as_bytes())) + 1;
    let is_empty = metadata.as_bytes().as_ref() == b"{}";
    if searched == sum || (searched == 0 && is_empty) {
        return None;
    }
    let (names, hashes) = metadata
        .scalars()
        .into_iter()
        .map(|(name, value)| (name.into_bytes(), value_hash(&value)))
        .unzip();
    let params = vec![
        Param::text(tenant.as_str()),
        Param::integer(kind),
        Param::integer(id),
        Param::Names(names),
        Param::Integers(hashes),
        Param::integer(sum),
    ];
    Some(RowStatement::new(sql, params))
}
