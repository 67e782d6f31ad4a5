use async_trait::async_trait;
use rusqlite::{Connection, params};
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{ConfigurationId, Scope, Timestamp};

use super::error::SqliteError;
use super::job::{WorkKind, WriteContext};
use super::{SqliteStore, row};
use crate::core::already_exists;
use crate::core::page::PageBuilder;
use crate::core::search::{Candidates, matches};
use crate::port::Configurations;
use crate::rows::{ConfigurationFilter, ConfigurationRow, Listing, Page};

// === impl SqliteStore ===

#[async_trait]
impl Configurations for SqliteStore {
    async fn create_configuration(&self, row: ConfigurationRow) -> Result<()> {
        row.check()?;
        let kind = WorkKind { bytes: row.config.as_bytes().len(), ..WorkKind::USUAL };
        self.write(kind, move |writer: &mut WriteContext<'_>| create(writer.conn, &row)).await
    }

    async fn update_configuration(&self, scope: &Scope, row: ConfigurationRow) -> Result<bool> {
        row.check()?;
        let scope = scope.clone();
        let kind = WorkKind { bytes: row.config.as_bytes().len(), ..WorkKind::USUAL };
        self.write(kind, move |writer: &mut WriteContext<'_>| {
            if visible(writer.conn, &scope, &row.id, row.updated_at)?.is_none()
                || row.tenant != scope.tenant
            {
                return Ok(false);
            }
            let sql = concat!(
                "UPDATE configurations SET owner = ?5, agent = ?6, expires_at = ?7, body = ?8",
                " WHERE tenant = ?3 AND id = ?4"
            );
            row::write(writer.conn, sql, &row, &[])?;
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
        let (scope, id) = (scope.clone(), id.clone());
        self.read(move |conn, _| visible(conn, &scope, &id, now)).await
    }

    async fn configurations(
        &self,
        scope: &Scope,
        filter: &ConfigurationFilter,
        page: &Page,
        now: Timestamp,
    ) -> Result<Listing<ConfigurationRow>> {
        let (scope, filter, page) = (scope.clone(), filter.clone(), page.clone());
        self.read(move |conn, _| listing(conn, &scope, &filter, &page, now)).await
    }

    async fn remove_configuration(&self, scope: &Scope, id: &ConfigurationId) -> Result<bool> {
        let (scope, id) = (scope.clone(), id.clone());
        self.write(WorkKind::VITAL, move |writer: &mut WriteContext<'_>| {
            // Only the columns are compared, so that a damaged row can be removed too.
            let owner = scope.owner.as_ref().map(|owner| owner.as_str().to_owned());
            let removed = writer
                .conn
                .prepare_cached(concat!(
                    "DELETE FROM configurations WHERE tenant = ?1 AND id = ?2",
                    " AND (?3 IS NULL OR owner = ?3)"
                ))?
                .execute(params![scope.tenant.as_str(), id.as_str(), owner])?;
            writer.threads.removes |= removed > 0;
            Ok(removed > 0)
        })
        .await
    }

    async fn expire_configurations(&self, now: Timestamp, limit: usize) -> Result<usize> {
        let (now, limit) = (now.as_micros(), i64::try_from(limit).unwrap_or(i64::MAX));
        let is_due = self.read(move |conn, _| {
            let sql = "SELECT 1 FROM configurations WHERE expires_at <= ?1 LIMIT 1";
            Ok(conn.prepare_cached(sql)?.exists([now])?)
        });
        if !is_due.await? {
            return Ok(0);
        }
        self.write(WorkKind::VITAL, move |writer: &mut WriteContext<'_>| {
            let sql = concat!(
                "DELETE FROM configurations WHERE key IN",
                " (SELECT key FROM configurations WHERE expires_at <= ?1",
                " ORDER BY expires_at, key LIMIT ?2)"
            );
            let removed = writer.conn.prepare_cached(sql)?.execute([now, limit])?;
            writer.threads.removes |= removed > 0;
            Ok(removed)
        })
        .await
    }
}

pub(super) fn create(conn: &Connection, row: &ConfigurationRow) -> Result<(), SqliteError> {
    let sql = "DELETE FROM configurations WHERE tenant = ?1 AND id = ?2 AND expires_at <= ?3";
    let expired = params![row.tenant.as_str(), row.id.as_str(), row.created_at.as_micros()];
    conn.prepare_cached(sql)?.execute(expired)?;
    let sql = concat!(
        "INSERT INTO configurations (tenant, id, owner, agent, expires_at, body)",
        " VALUES (?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING"
    );
    if row::write(conn, sql, row, &[])? == 0 {
        return Err(already_exists("configuration", row.id.as_str()).into());
    }
    Ok(())
}

fn visible(
    conn: &Connection,
    scope: &Scope,
    id: &ConfigurationId,
    now: Timestamp,
) -> Result<Option<ConfigurationRow>, SqliteError> {
    let params = params![scope.tenant.as_str(), id.as_str()];
    let found = row::one::<ConfigurationRow>(conn, "WHERE tenant = ?1 AND id = ?2", params);
    match found {
        Ok(found) => Ok(found.filter(|row| row.is_seen(scope, now))),
        Err(SqliteError::Damaged(_, error)) => Err(damaged(&error, id).into()),
        Err(fail) => Err(fail),
    }
}

fn damaged(error: &Error, id: &ConfigurationId) -> Error {
    tracing::error!(%error, "a stored configuration is damaged");
    Error::new(Code::Internal, format!("the stored configuration '{id}' is damaged"))
        .hint("remove it and create it again")
}

fn listing(
    conn: &Connection,
    scope: &Scope,
    filter: &ConfigurationFilter,
    page: &Page,
    now: Timestamp,
) -> Result<Listing<ConfigurationRow>, SqliteError> {
    let rest = "WHERE tenant = ?1 AND agent = ?2 AND key < ?3 ORDER BY key DESC";
    let mut statement = conn.prepare_cached(&row::select::<ConfigurationRow>(rest))?;
    let params = params![scope.tenant.as_str(), filter.agent.as_str(), page.before()];
    let mut rows = statement.query(params)?;
    let mut pages = PageBuilder::new(page);
    let mut candidates = Candidates::default();
    while let Some(found) = rows.next()? {
        let key = found.get(1)?;
        // A damaged row is left out here. Looking it up reports the damage.
        let Ok(row) = row::take::<ConfigurationRow>(found) else { continue };
        if !row.is_seen(scope, now) {
            continue;
        }
        if !filter.metadata.is_empty() {
            candidates.add(1)?;
        }
        if matches(&row.metadata, &filter.metadata) && !pages.add(key, row) {
            break;
        }
    }
    Ok(pages.finish())
}
