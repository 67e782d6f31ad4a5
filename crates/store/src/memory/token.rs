//! Tokens.

use std::cmp::Reverse;
use std::collections::HashMap;

use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::{PrincipalId, Rights, TenantId, Timestamp, TokenId};

use super::MemoryStore;
use crate::core::already_exists;
use crate::port::Tokens;
use crate::rows::TokenRow;

/// The tokens by hash, each with its place in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct TokenRows {
    rows: HashMap<[u8; 32], (u64, TokenRow)>,
    last_place: u64,
}

// === impl TokenRows ===

impl TokenRows {
    fn put(&mut self, token: TokenRow) -> Result<()> {
        let has_id = self.of(&token.tenant).any(|(_, one)| one.id == token.id);
        if has_id || self.rows.contains_key(&token.hash) {
            return Err(already_exists("token", token.id.as_str()));
        }
        self.last_place += 1;
        self.rows.insert(token.hash, (self.last_place, token));
        Ok(())
    }

    fn of<'a>(&'a self, tenant: &TenantId) -> impl Iterator<Item = &'a (u64, TokenRow)> {
        self.rows.values().filter(move |(_, token)| token.tenant == *tenant)
    }

    fn take(&mut self, tenant: &TenantId, id: &TokenId) -> Option<TokenRow> {
        let hash = self.of(tenant).find(|(_, token)| token.id == *id)?.1.hash;
        self.rows.remove(&hash).map(|(_, token)| token)
    }
}

// === impl MemoryStore ===

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

    async fn rights_of(
        &self,
        tenant: &TenantId,
        principal: &PrincipalId,
        now: Timestamp,
    ) -> Result<Rights> {
        let state = self.open()?;
        let tokens = state.tokens.of(tenant).map(|(_, token)| token);
        let valid = tokens.filter(|token| token.principal == *principal && token.is_valid(now));
        Ok(valid.flat_map(|token| token.rights.iter()).collect())
    }
}
