use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::{ConfigurationId, Scope, Timestamp};

use super::PostgresStore;
use crate::port::Configurations;
use crate::rows::{ConfigurationFilter, ConfigurationRow, Listing, Page};
use crate::sql::configurations;

// === impl PostgresStore ===

#[async_trait]
impl Configurations for PostgresStore {
    async fn create_configuration(&self, row: ConfigurationRow) -> Result<()> {
        row.check()?;
        let row = &row;
        self.database
            .write_once(|conn| async move { configurations::create(&**conn, row).await })
            .await
    }

    async fn update_configuration(&self, scope: &Scope, row: ConfigurationRow) -> Result<bool> {
        row.check()?;
        let row = &row;
        self.database
            .write_once(|conn| async move { configurations::update(&**conn, scope, row).await })
            .await
    }

    async fn configuration(
        &self,
        scope: &Scope,
        id: &ConfigurationId,
        now: Timestamp,
    ) -> Result<Option<ConfigurationRow>> {
        self.database
            .read(|conn| async move { configurations::get(&conn, scope, id, now).await })
            .await
    }

    async fn configurations(
        &self,
        scope: &Scope,
        filter: &ConfigurationFilter,
        page: &Page,
        now: Timestamp,
    ) -> Result<Listing<ConfigurationRow>> {
        self.database
            .read(|conn| async move { configurations::list(&conn, scope, filter, page, now).await })
            .await
    }

    async fn remove_configuration(&self, scope: &Scope, id: &ConfigurationId) -> Result<bool> {
        self.database
            .write_once(|conn| async move { configurations::remove(&**conn, scope, id).await })
            .await
    }

    async fn expire_configurations(&self, now: Timestamp, limit: usize) -> Result<usize> {
        self.database
            .write(|conn| async move { configurations::expire(&**conn, now, limit).await })
            .await
    }
}
