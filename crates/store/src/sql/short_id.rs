//! The ids that an abbreviation matches.
//!
//! No index is by the last group: it would cost every turn a page, for a look-up that people need now and then. So the newest ids are searched, in the index that has them.

use std::collections::BTreeSet;

use trilogue_domain::{IdKind, Scope, ShortId, limits};

use super::{SqlConnection, SqlRow};
use crate::core::table::columns;

const CANDIDATES: i64 = limits::MAX_SHORT_ID_CANDIDATES as i64;

/// The ids that a scope sees, found by two statements for each kind: by the beginning of the id, and by the beginning of its last group.
/// Parameters: tenant, the first text, the exclusive upper bound of texts, owner or null, rows, candidates.
pub(crate) async fn resolve<C: SqlConnection>(
    conn: &C,
    [threads, runs, interrupts]: [[&str; 2]; 3],
    scope: &Scope,
    kind: IdKind,
    short: &ShortId,
    limit: usize,
) -> Result<Vec<String>, C::Error> {
    let [by_beginning, by_last_group] = match kind {
        IdKind::Thread => threads,
        IdKind::Run => runs,
        IdKind::Interrupt => interrupts,
    };
    let found = find(conn, by_beginning, scope, short.as_str(), limit).await?;
    let mut ids: BTreeSet<_> = found.into_iter().collect();
    if let Some(whole) = ids.take(short.as_str()) {
        return Ok(vec![whole]);
    }
    ids.extend(find(conn, by_last_group, scope, short.of_last_group(), limit).await?);
    ids.retain(|id| short.matches(id));
    Ok(ids.into_iter().take(limit).collect())
}

async fn find<C: SqlConnection>(
    conn: &C,
    sql: &str,
    scope: &Scope,
    text: &str,
    limit: usize,
) -> Result<Vec<String>, C::Error> {
    let behind = format!("{text}{}", char::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let owner = scope.owner.as_ref();
    let values = columns![&scope.tenant, text, &behind, owner, limit, CANDIDATES];
    conn.rows(sql, &values, |row| row.value(0)).await
}
