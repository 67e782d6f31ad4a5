//! The ids that an abbreviation matches.
//!
//! No index is by the last group: it would cost every turn a page, for a look-up that people need now and then. So the newest ids are searched, in the index that has them.

use std::collections::BTreeSet;

use trilogue_domain::{PrincipalId, Scope, ShortId, limits};

use super::{SqlConnection, SqlRow};
use crate::core::table::Column;

const CANDIDATES: i64 = limits::MAX_SHORT_ID_CANDIDATES as i64;

/// The ids that a scope sees, found by two statements: by the beginning of the id, and by the beginning of its last group.
/// Parameters: tenant, the first text, the exclusive upper bound of texts, owner or null, rows, candidates.
pub(crate) async fn meant<C: SqlConnection>(
    conn: &C,
    [by_beginning, by_last_group]: [&str; 2],
    scope: &Scope,
    short: &ShortId,
    limit: usize,
) -> Result<Vec<String>, C::Error> {
    let found = find(conn, by_beginning, scope, short.as_str(), limit).await?;
    let mut ids: BTreeSet<_> = found.into_iter().collect();
    if let Some(whole) = ids.take(short.as_str()) {
        return Ok(vec![whole]);
    }
    ids.extend(find(conn, by_last_group, scope, short.of_last_group(), limit).await?);
    ids.retain(|id| short.means(id));
    Ok(ids.into_iter().take(limit).collect())
}

async fn find<C: SqlConnection>(
    conn: &C,
    sql: &str,
    scope: &Scope,
    text: &str,
    limit: usize,
) -> Result<Vec<String>, C::Error> {
    let owner = scope.owner.as_ref().map(PrincipalId::as_str);
    let behind = format!("{text}{}", char::MAX);
    let values = [
        Column::Text(scope.tenant.as_str()),
        Column::Text(text),
        Column::Text(&behind),
        owner.map_or(Column::Null, Column::Text),
        Column::Integer(i64::try_from(limit).unwrap_or(i64::MAX)),
        Column::Integer(CANDIDATES),
    ];
    conn.rows(sql, &values, |row| row.value(0)).await
}
