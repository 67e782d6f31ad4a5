//! The ids that an abbreviation matches.
//!
//! No index is by the last group: it would cost every turn a page, for a look-up that people need now and then. So the newest ids are searched, in the index that has them.

use std::collections::BTreeSet;

use trilogue_domain::{IdKind, PrincipalId, Scope, ShortId, limits};

use super::connection::Connection;
use super::error::PostgresError;
use super::row;

const CANDIDATES: i64 = limits::MAX_SHORT_ID_CANDIDATES as i64;

/// The statements for a table and the column that names the owner, by the beginning of the id and by the beginning of its last group. Parameters: tenant, the first text, the exclusive upper bound of texts, owner or null, rows, candidates.
macro_rules! statements {
    ($table:literal, $owner:literal) => {
        [
            concat!(
                "SELECT id FROM (SELECT id, ",
                $owner,
                " AS creator FROM ",
                $table,
                " WHERE tenant = $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $6) AS found",
                " WHERE $4::text IS NULL OR creator = $4 LIMIT $5"
            ),
            concat!(
                "SELECT id FROM (SELECT id, ",
                $owner,
                " AS creator FROM ",
                $table,
                " WHERE tenant = $1 AND id >= '0' AND id < 'g' ORDER BY id DESC LIMIT $6) AS found",
                " WHERE length(id) = 36 AND substr(id, 25) >= $2 AND substr(id, 25) < $3",
                " AND ($4::text IS NULL OR creator = $4) LIMIT $5"
            ),
        ]
    };
}

const THREADS: [&str; 2] = statements!("threads", "owner");
const RUNS: [&str; 2] = statements!("runs", "principal");
const INTERRUPTS: [&str; 2] = statements!("interrupts", "principal");

pub(super) async fn resolve(
    conn: &Connection,
    scope: &Scope,
    kind: IdKind,
    short: &ShortId,
    limit: usize,
) -> Result<Vec<String>, PostgresError> {
    let [by_beginning, by_last_group] = match kind {
        IdKind::Thread => THREADS,
        IdKind::Run => RUNS,
        IdKind::Interrupt => INTERRUPTS,
    };
    let find = async |sql: &str, text: &str| {
        let owner = scope.owner.as_ref().map(PrincipalId::as_str);
        let behind = format!("{text}{}", char::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let tenant = scope.tenant.as_str();
        let rows =
            row::query(conn, sql, &[&tenant, &text, &behind, &owner, &limit, &CANDIDATES]).await?;
        Ok::<Vec<String>, PostgresError>(rows.iter().map(|row| row.get(0)).collect())
    };
    let mut ids: BTreeSet<_> = find(by_beginning, short.as_str()).await?.into_iter().collect();
    if let Some(whole) = ids.take(short.as_str()) {
        return Ok(vec![whole]);
    }
    ids.extend(find(by_last_group, short.of_last_group()).await?);
    ids.retain(|id| short.matches(id));
    Ok(ids.into_iter().take(limit).collect())
}
