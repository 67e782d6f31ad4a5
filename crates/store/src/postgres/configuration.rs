use std::sync::LazyLock;

use async_trait::async_trait;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{ConfigurationId, Scope, Timestamp};

use super::PostgresStore;
use super::connection::Connection;
use super::error::PostgresError;
use super::row::{self, bind, insert, refs};
use crate::core::already_exists;
use crate::core::page::PageBuilder;
use crate::core::search::{Candidates, matches};
use crate::core::table::TableRow;
use crate::port::Configurations;
use crate::rows::{ConfigurationFilter, ConfigurationRow, Listing, Page};

/// The most rows of one statement of a listing.
const PART: i64 = 256;

pub(super) static CREATE: LazyLock<String> =
    LazyLock::new(|| insert::<ConfigurationRow>(false, "ON CONFLICT DO NOTHING"));

// === impl PostgresStore ===

#[async_trait]
impl Configurations for PostgresStore {
    async fn create_configuration(&self, row: ConfigurationRow) -> Result<()> {
        row.check()?;
        let row = &row;
        self.database
            .write_once(|conn| async move {
                let sql = concat!(
                    "DELETE FROM configurations",
                    " WHERE tenant = $1 AND id = $2 AND expires_at <= $3"
                );
                let created_at = row.created_at.as_micros();
                row::execute(&conn, sql, &[&row.tenant.as_str(), &row.id.as_str(), &created_at])
                    .await?;
                let columns = row.columns();
                let params = bind(row, columns.as_ref());
                if row::execute(&conn, &CREATE, &refs(&params)).await? == 0 {
                    return Err(already_exists("configuration", row.id.as_str()).into());
                }
                Ok(())
            })
            .await
    }

    async fn update_configuration(&self, scope: &Scope, row: ConfigurationRow) -> Result<bool> {
        row.check()?;
        let row = &row;
        let sql = concat!(
            "UPDATE configurations SET owner = $3, agent = $4, expires_at = $5, body = $6",
            " WHERE tenant = $1 AND id = $2"
        );
        self.database
            .write_once(|conn| async move {
                let rest = "WHERE tenant = $1 AND id = $2 FOR UPDATE";
                let found = visible(&conn, rest, scope, &row.id, row.updated_at).await?;
                if found.is_none() || row.tenant != scope.tenant {
                    return Ok(false);
                }
                let columns = row.columns();
                row::execute(&conn, sql, &refs(&bind(row, columns.as_ref()))).await?;
                Ok(true)
            })
            .await
    }

    async fn configuration(
        &self,
        scope: &Scope,
        id: &ConfigurationId,
        now: Timestamp,
    ) -> Result<Option<ConfigurationRow>> {
        let rest = "WHERE tenant = $1 AND id = $2";
        self.database.read(|conn| async move { visible(&conn, rest, scope, id, now).await }).await
    }

    async fn configurations(
        &self,
        scope: &Scope,
        filter: &ConfigurationFilter,
        page: &Page,
        now: Timestamp,
    ) -> Result<Listing<ConfigurationRow>> {
        self.database
            .read(|conn| async move { listing(&conn, scope, filter, page, now).await })
            .await
    }

    async fn remove_configuration(&self, scope: &Scope, id: &ConfigurationId) -> Result<bool> {
        // Only the columns are compared, so that a damaged row can be removed too.
        let sql = concat!(
            "DELETE FROM configurations WHERE tenant = $1 AND id = $2",
            " AND ($3::text IS NULL OR owner = $3)"
        );
        self.database
            .write_once(|conn| async move {
                let owner = scope.owner.as_ref().map(|owner| owner.as_str());
                let params: &row::Params<'_> = &[&scope.tenant.as_str(), &id.as_str(), &owner];
                Ok(row::execute(&conn, sql, params).await? > 0)
            })
            .await
    }

    async fn expire_configurations(&self, now: Timestamp, limit: usize) -> Result<usize> {
        let (now, limit) = (now.as_micros(), i64::try_from(limit).unwrap_or(i64::MAX));
        let sql = concat!(
            "DELETE FROM configurations WHERE key IN",
            " (SELECT key FROM configurations WHERE expires_at <= $1",
            " ORDER BY expires_at, key LIMIT $2)"
        );
        let removed = self
            .database
            .write(|conn| async move { row::execute(&conn, sql, &[&now, &limit]).await })
            .await?;
        Ok(usize::try_from(removed).unwrap_or(usize::MAX))
    }
}

async fn visible(
    conn: &Connection,
    rest: &str,
    scope: &Scope,
    id: &ConfigurationId,
    now: Timestamp,
) -> Result<Option<ConfigurationRow>, PostgresError> {
    let params: &row::Params<'_> = &[&scope.tenant.as_str(), &id.as_str()];
    match row::one::<ConfigurationRow>(conn, rest, params).await {
        Ok(found) => Ok(found.filter(|row| row.is_seen(scope, now))),
        Err(PostgresError::Damaged(_, error)) => Err(damaged(&error, id).into()),
        Err(fail) => Err(fail),
    }
}

fn damaged(error: &Error, id: &ConfigurationId) -> Error {
    tracing::error!(%error, "a stored configuration is damaged");
    Error::new(Code::Internal, format!("the stored configuration '{id}' is damaged"))
        .hint("remove it and create it again")
}

async fn listing(
    conn: &Connection,
    scope: &Scope,
    filter: &ConfigurationFilter,
    page: &Page,
    now: Timestamp,
) -> Result<Listing<ConfigurationRow>, PostgresError> {
    let rest = "WHERE tenant = $1 AND agent = $2 AND key < $3 ORDER BY key DESC LIMIT $4";
    let sql = row::select::<ConfigurationRow>(rest);
    let (mut pages, mut candidates) = (PageBuilder::new(page), Candidates::default());
    let mut before = page.before();
    loop {
        let params: &row::Params<'_> =
            &[&scope.tenant.as_str(), &filter.agent.as_str(), &before, &PART];
        let rows = row::query(conn, &sql, params).await?;
        for found in &rows {
            before = found.get(1);
            // A damaged row is left out here. Looking it up reports the damage.
            let Ok(row) = row::take::<ConfigurationRow>(found) else { continue };
            if !row.is_seen(scope, now) {
                continue;
            }
            if !filter.metadata.is_empty() {
                candidates.add(1)?;
            }
            if matches(&row.metadata, &filter.metadata) && !pages.add(before, row) {
                return Ok(pages.finish());
            }
        }
        if (rows.len() as i64) < PART {
            return Ok(pages.finish());
        }
    }
}
