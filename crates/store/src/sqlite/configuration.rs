use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::{ConfigurationId, Scope, Timestamp};

use super::SqliteStore;
use super::job::{WorkKind, WriteContext};
use super::row::run_to_end;
use crate::port::Configurations;
use crate::rows::{ConfigurationFilter, ConfigurationRow, Listing, Page};
use crate::sql::configurations;

// === impl SqliteStore ===

#[async_trait]
impl Configurations for SqliteStore {
    async fn create_configuration(&self, row: ConfigurationRow) -> Result<()> {
        row.check()?;
        self.write_kind(kind(&row), async move |conn| configurations::create(conn, &row).await)
            .await
    }

    async fn update_configuration(&self, scope: &Scope, row: ConfigurationRow) -> Result<bool> {
        row.check()?;
        let scope = scope.clone();
        self.write_kind(kind(&row), async move |conn| {
            configurations::update(conn, &scope, &row).await
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
        self.look_up(async move |conn, _| configurations::get(conn, &scope, &id, now).await).await
    }

    async fn configurations(
        &self,
        scope: &Scope,
        filter: &ConfigurationFilter,
        page: &Page,
        now: Timestamp,
    ) -> Result<Listing<ConfigurationRow>> {
        let (scope, filter, page) = (scope.clone(), filter.clone(), page.clone());
        self.look_up(async move |conn, _| {
            configurations::list(conn, &scope, &filter, &page, now).await
        })
        .await
    }

    async fn remove_configuration(&self, scope: &Scope, id: &ConfigurationId) -> Result<bool> {
        let (scope, id) = (scope.clone(), id.clone());
        self.write(WorkKind::VITAL, move |writer: &mut WriteContext<'_>| {
            let is_removed = run_to_end(configurations::remove(writer.conn, &scope, &id))?;
            writer.threads.removes |= is_removed;
            Ok(is_removed)
        })
        .await
    }

    async fn expire_configurations(&self, now: Timestamp, limit: usize) -> Result<usize> {
        let is_due = self.read(move |conn, _| {
            let sql = "SELECT 1 FROM configurations WHERE expires_at <= ?1 LIMIT 1";
            Ok(conn.prepare_cached(sql)?.exists([now.as_micros()])?)
        });
        if !is_due.await? {
            return Ok(0);
        }
        self.write(WorkKind::VITAL, move |writer: &mut WriteContext<'_>| {
            let removed = run_to_end(configurations::expire(writer.conn, now, limit))?;
            writer.threads.removes |= removed > 0;
            Ok(removed)
        })
        .await
    }
}

fn kind(row: &ConfigurationRow) -> WorkKind {
    WorkKind { bytes: row.config.as_bytes().len(), ..WorkKind::USUAL }
}
