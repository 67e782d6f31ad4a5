//! Configured instances of agents.

use trilogue_domain::error::{Code, Error};
use trilogue_domain::{ConfigurationId, Scope, Timestamp};

use super::{SqlConnection, SqlError, one, select, take, write};
use crate::core::already_exists;
use crate::core::page::PageBuilder;
use crate::core::search::{Candidates, matches};
use crate::core::table::columns;
use crate::rows::{ConfigurationFilter, ConfigurationRow, Listing, Page};

pub(crate) const CREATE: &str = concat!(
    "INSERT INTO configurations (tenant, id, owner, agent, expires_at, body)",
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING"
);
const BY_ID: &str = "WHERE tenant = ?1 AND id = ?2";

pub(crate) async fn create<C: SqlConnection>(
    conn: &C,
    row: &ConfigurationRow,
) -> Result<(), C::Error> {
    let sql = "DELETE FROM configurations WHERE tenant = ?1 AND id = ?2 AND expires_at <= ?3";
    conn.execute(sql, &columns![&row.tenant, &row.id, row.created_at]).await?;
    if write(conn, CREATE, row, &[]).await? == 0 {
        return Err(already_exists("configuration", row.id.as_str()).into());
    }
    Ok(())
}

/// Replaces an instance that the scope sees. Returns `false` if it sees none with this id.
pub(crate) async fn update<C: SqlConnection>(
    conn: &C,
    scope: &Scope,
    row: &ConfigurationRow,
) -> Result<bool, C::Error> {
    let locked = format!("{BY_ID}{}", C::LOCK);
    let found = visible(conn, &locked, scope, &row.id, row.updated_at).await?;
    if found.is_none() || row.tenant != scope.tenant {
        return Ok(false);
    }
    let sql = concat!(
        "UPDATE configurations SET owner = ?3, agent = ?4, expires_at = ?5, body = ?6",
        " WHERE tenant = ?1 AND id = ?2"
    );
    write(conn, sql, row, &[]).await?;
    Ok(true)
}

pub(crate) async fn get<C: SqlConnection>(
    conn: &C,
    scope: &Scope,
    id: &ConfigurationId,
    now: Timestamp,
) -> Result<Option<ConfigurationRow>, C::Error> {
    visible(conn, BY_ID, scope, id, now).await
}

/// Removes an instance of the scope. Returns `false` if it has none with this id.
pub(crate) async fn remove<C: SqlConnection>(
    conn: &C,
    scope: &Scope,
    id: &ConfigurationId,
) -> Result<bool, C::Error> {
    // Only the columns are compared, so that a damaged row can be removed too.
    let sql = concat!(
        "DELETE FROM configurations WHERE tenant = ?1 AND id = ?2",
        " AND (CAST(?3 AS TEXT) IS NULL OR owner = ?3)"
    );
    let values = columns![&scope.tenant, id, scope.owner.as_ref()];
    Ok(conn.execute(sql, &values).await? > 0)
}

/// Removes the instances that have expired longest. Returns how many.
pub(crate) async fn expire<C: SqlConnection>(
    conn: &C,
    now: Timestamp,
    limit: usize,
) -> Result<usize, C::Error> {
    let sql = concat!(
        "DELETE FROM configurations WHERE key IN",
        " (SELECT key FROM configurations WHERE expires_at <= ?1",
        " ORDER BY expires_at, key LIMIT ?2)"
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let removed = conn.execute(sql, &columns![now, limit]).await?;
    Ok(usize::try_from(removed).unwrap_or(usize::MAX))
}

pub(crate) async fn list<C: SqlConnection>(
    conn: &C,
    scope: &Scope,
    filter: &ConfigurationFilter,
    page: &Page,
    now: Timestamp,
) -> Result<Listing<ConfigurationRow>, C::Error> {
    let sql = select::<ConfigurationRow, C>(
        "WHERE tenant = ?1 AND agent = ?2 AND key < ?3 ORDER BY key DESC",
    );
    let values = columns![&scope.tenant, &filter.agent];
    let (mut pages, mut candidates) = (PageBuilder::new(page), Candidates::default());
    let visit = |key, found: &C::Row<'_>| {
        // A damaged row is left out here. Looking it up reports the damage.
        let Ok(row) = take::<ConfigurationRow, _>(found) else { return Ok(true) };
        if !row.is_seen(scope, now) {
            return Ok(true);
        }
        if !filter.metadata.is_empty() {
            candidates.add(1)?;
        }
        Ok(!matches(&row.metadata, &filter.metadata) || pages.add(key, row))
    };
    conn.scan(&sql, &values, page.before(), visit).await?;
    Ok(pages.finish())
}

async fn visible<C: SqlConnection>(
    conn: &C,
    rest: &str,
    scope: &Scope,
    id: &ConfigurationId,
    now: Timestamp,
) -> Result<Option<ConfigurationRow>, C::Error> {
    match one::<ConfigurationRow, _>(conn, rest, &columns![&scope.tenant, id]).await {
        Ok(found) => Ok(found.filter(|row| row.is_seen(scope, now))),
        Err(fail) => {
            let (_, error) = fail.into_damage()?;
            tracing::error!(%error, "a stored configuration is damaged");
            let message = format!("the stored configuration '{id}' is damaged");
            Err(Error::new(Code::Internal, message).hint("remove it and create it again").into())
        }
    }
}
