//! Configured instances.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::{ConfigurationId, Scope, TenantId, Timestamp};

use super::listing::Residual;
use super::{MemoryStore, weight};
use crate::core::already_exists;
use crate::core::page::PageBuilder;
use crate::port::Configurations;
use crate::rows::{ConfigurationFilter, ConfigurationRow, Listing, Page};

/// The configured instances, by id and in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct ConfigurationRows {
    rows: BTreeMap<i64, Arc<ConfigurationRow>>,
    by_id: HashMap<(TenantId, ConfigurationId), i64>,
    last_key: i64,
    bytes: usize,
}

// === impl ConfigurationRows ===

impl ConfigurationRows {
    /// Estimate of what they hold.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn put(&mut self, row: ConfigurationRow) -> Result<()> {
        let id = (row.tenant.clone(), row.id.clone());
        if let Some(held) = self.by_id.get(&id).copied() {
            let end = self.rows.get(&held).and_then(|held| held.expires_at);
            if end.is_none_or(|end| row.created_at < end) {
                return Err(already_exists("configuration", row.id.as_str()));
            }
            self.take(held);
        }
        self.last_key += 1;
        self.bytes += weight::configuration(&row);
        self.by_id.insert(id, self.last_key);
        self.rows.insert(self.last_key, Arc::new(row));
        Ok(())
    }

    fn visible(&self, scope: &Scope, id: &ConfigurationId) -> Option<(i64, &ConfigurationRow)> {
        let key = *self.by_id.get(&(scope.tenant.clone(), id.clone()))?;
        let row = self.rows.get(&key)?;
        scope.sees(&row.tenant, &row.owner).then_some((key, &**row))
    }

    fn replace(&mut self, scope: &Scope, row: ConfigurationRow) -> bool {
        let Some((key, held)) = self.visible(scope, &row.id) else { return false };
        if row.tenant != scope.tenant || !held.is_seen(scope, row.updated_at) {
            return false;
        }
        let (old, new) = (weight::configuration(held), weight::configuration(&row));
        self.bytes = self.bytes.saturating_sub(old) + new;
        self.rows.insert(key, Arc::new(row));
        true
    }

    fn take(&mut self, key: i64) {
        let Some(row) = self.rows.remove(&key) else { return };
        self.bytes = self.bytes.saturating_sub(weight::configuration(&row));
        self.by_id.remove(&(row.tenant.clone(), row.id.clone()));
    }
}

// === impl MemoryStore ===

#[async_trait]
impl Configurations for MemoryStore {
    async fn create_configuration(&self, row: ConfigurationRow) -> Result<()> {
        row.check()?;
        let mut state = self.open()?;
        self.check_room(&state, false)?;
        state.configurations.put(row)
    }

    async fn update_configuration(&self, scope: &Scope, row: ConfigurationRow) -> Result<bool> {
        row.check()?;
        let mut state = self.open()?;
        self.check_room(&state, false)?;
        Ok(state.configurations.replace(scope, row))
    }

    async fn configuration(
        &self,
        scope: &Scope,
        id: &ConfigurationId,
        now: Timestamp,
    ) -> Result<Option<ConfigurationRow>> {
        let state = self.open()?;
        let found = state.configurations.visible(scope, id).map(|(_, row)| row);
        Ok(found.filter(|row| row.is_seen(scope, now)).cloned())
    }

    async fn configurations(
        &self,
        scope: &Scope,
        filter: &ConfigurationFilter,
        page: &Page,
        now: Timestamp,
    ) -> Result<Listing<ConfigurationRow>> {
        let candidates: Vec<_> = {
            let state = self.open()?;
            let rows = state.configurations.rows.range(..page.before()).rev();
            let rows = rows.filter(|(_, row)| row.agent == filter.agent && row.is_seen(scope, now));
            rows.map(|(key, row)| (*key, Arc::clone(row))).collect()
        };
        let mut residual = Residual::new(&filter.metadata);
        let mut pages = PageBuilder::new(page);
        for (key, row) in candidates {
            if residual.fits(&row.metadata)? && !pages.add(key, row) {
                break;
            }
        }
        Ok(pages.finish().map(Arc::unwrap_or_clone))
    }

    async fn remove_configuration(&self, scope: &Scope, id: &ConfigurationId) -> Result<bool> {
        let mut state = self.open()?;
        let Some((key, _)) = state.configurations.visible(scope, id) else { return Ok(false) };
        state.configurations.take(key);
        Ok(true)
    }

    async fn expire_configurations(&self, now: Timestamp, limit: usize) -> Result<usize> {
        let mut state = self.open()?;
        let rows = state.configurations.rows.iter();
        let ends = rows.filter_map(|(key, row)| row.expires_at.map(|end| (end, *key)));
        let mut over: Vec<_> = ends.filter(|(end, _)| *end <= now).collect();
        over.sort_unstable();
        over.truncate(limit);
        for (_, key) in &over {
            state.configurations.take(*key);
        }
        Ok(over.len())
    }
}
