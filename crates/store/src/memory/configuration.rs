use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::{ConfigurationId, Scope, TenantId};

use super::size_estimate;
use crate::core::already_exists;
use crate::rows::ConfigurationRow;

/// The configured instances, by id and in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct ConfigurationRows {
    pub(super) rows: BTreeMap<i64, Arc<ConfigurationRow>>,
    by_id: HashMap<(TenantId, ConfigurationId), i64>,
    last_key: i64,
    bytes: usize,
}

// === impl ConfigurationRows ===

impl ConfigurationRows {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn put(&mut self, row: ConfigurationRow) -> Result<()> {
        let id = (row.tenant.clone(), row.id.clone());
        if let Some(held) = self.by_id.get(&id).copied() {
            let end = self.rows.get(&held).and_then(|held| held.expires_at);
            if end.is_none_or(|end| row.created_at < end) {
                return Err(already_exists("configuration", row.id.as_str()));
            }
            self.take(held);
        }
        self.last_key += 1;
        self.bytes += size_estimate::configuration(&row);
        self.by_id.insert(id, self.last_key);
        self.rows.insert(self.last_key, Arc::new(row));
        Ok(())
    }

    pub(super) fn visible(
        &self,
        scope: &Scope,
        id: &ConfigurationId,
    ) -> Option<(i64, &ConfigurationRow)> {
        let key = *self.by_id.get(&(scope.tenant.clone(), id.clone()))?;
        let row = self.rows.get(&key)?;
        scope.can_see(&row.tenant, &row.owner).then_some((key, &**row))
    }

    pub(super) fn replace(&mut self, scope: &Scope, row: ConfigurationRow) -> bool {
        let Some((key, held)) = self.visible(scope, &row.id) else { return false };
        if row.tenant != scope.tenant || !held.is_seen(scope, row.updated_at) {
            return false;
        }
        let (old, new) = (size_estimate::configuration(held), size_estimate::configuration(&row));
        self.bytes = self.bytes.saturating_sub(old) + new;
        self.rows.insert(key, Arc::new(row));
        true
    }

    pub(super) fn take(&mut self, key: i64) {
        let Some(row) = self.rows.remove(&key) else { return };
        self.bytes = self.bytes.saturating_sub(size_estimate::configuration(&row));
        self.by_id.remove(&(row.tenant.clone(), row.id.clone()));
    }
}
