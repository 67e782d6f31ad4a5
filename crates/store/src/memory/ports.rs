use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use trilogue_domain::error::Result;
use trilogue_domain::{ConfigurationId, PrincipalId, Scope, TenantId, Timestamp, TokenId};

use super::MemoryStore;
use super::listing::MetadataFilter;
use crate::core::page::PageBuilder;
use crate::news::Peers;
use crate::port::{Configurations, Queue, Tokens};
use crate::rows::{
    Claim, ConfigurationFilter, ConfigurationRow, Listing, Page, PrincipalRights, QueueKind,
    RetryDecision, SignInLinkRow, TokenRow,
};

// === impl MemoryStore ===

#[async_trait]
impl Queue for MemoryStore {
    async fn claim(
        &self,
        kind: QueueKind,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Claim>> {
        Ok(self.open()?.queue.claim(kind, now, lease_until, limit))
    }

    async fn bring_forward(&self, by: Duration) -> Result<()> {
        self.open()?.queue.bring_forward(by);
        Ok(())
    }

    async fn extend(&self, claim: &Claim, lease_until: Timestamp) -> Result<bool> {
        let mut state = self.open()?;
        let extended = state.queue.update_held(claim, |entry| entry.free_at = Some(lease_until));
        Ok(extended.is_some())
    }

    async fn finish(&self, claim: &Claim) -> Result<bool> {
        Ok(self.open()?.queue.finish(claim))
    }

    async fn abandon(&self, claim: &Claim, how: RetryDecision, error: &str) -> Result<bool> {
        let mut state = self.open()?;
        Ok(state.queue.update_held(claim, |entry| entry.abandon(&how, error)).is_some())
    }

    async fn next_due(&self, kind: QueueKind) -> Result<Option<Timestamp>> {
        Ok(self.open()?.queue.next_due(kind))
    }

    async fn revive(&self, scope: &Scope, id: i64, now: Timestamp) -> Result<bool> {
        let is_back = self.open()?.queue.revive(scope, id, now);
        if is_back {
            self.inner.offered.notify_waiters();
        }
        Ok(is_back)
    }

    fn offer_signal(&self) -> Arc<Notify> {
        Arc::clone(&self.inner.offered)
    }
}

impl Peers for MemoryStore {}

#[async_trait]
impl Tokens for MemoryStore {
    async fn put_token(&self, token: TokenRow) -> Result<()> {
        self.open()?.tokens.put(token)
    }

    async fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>> {
        Ok(self.open()?.tokens.rows.get(hash).map(|(_, token)| token.clone()))
    }

    async fn tokens(&self, tenant: &TenantId) -> Result<Vec<TokenRow>> {
        let mut tokens: Vec<_> = self.open()?.tokens.of(tenant).cloned().collect();
        tokens.sort_by_key(|(place, _)| Reverse(*place));
        Ok(tokens.into_iter().map(|(_, token)| token).collect())
    }

    async fn revoke_token(&self, tenant: &TenantId, id: &TokenId) -> Result<Option<TokenRow>> {
        Ok(self.open()?.tokens.take(tenant, id))
    }

    async fn put_sign_in_link(&self, link: SignInLinkRow, now: Timestamp) -> Result<()> {
        // Only checks that the store is open.
        drop(self.open()?);
        self.inner.sign_in_links.put(link, now)
    }

    async fn sign_in_link(&self, code: &[u8; 32], now: Timestamp) -> Result<Option<SignInLinkRow>> {
        // Only checks that the store is open.
        drop(self.open()?);
        Ok(self.inner.sign_in_links.get(code, now))
    }

    async fn take_sign_in_link(
        &self,
        code: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<SignInLinkRow>> {
        // Only checks that the store is open.
        drop(self.open()?);
        Ok(self.inner.sign_in_links.take(code, now))
    }

    async fn rights_of(
        &self,
        tenant: &TenantId,
        principal: &PrincipalId,
        now: Timestamp,
    ) -> Result<PrincipalRights> {
        let state = self.open()?;
        let tokens = state.tokens.of(tenant).map(|(_, token)| token);
        let tokens = tokens.filter(|token| token.principal == *principal);
        Ok(PrincipalRights::of_tokens(tokens, now))
    }
}

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
        let mut residual = MetadataFilter::new(&filter.metadata);
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
