use std::collections::HashMap;

use trilogue_domain::error::Result;
use trilogue_domain::{TenantId, TokenId};

use crate::core::already_exists;
use crate::rows::TokenRow;

/// The tokens by hash, each with its position in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct TokenRows {
    pub(super) rows: HashMap<[u8; 32], (u64, TokenRow)>,
    last_place: u64,
}

// === impl TokenRows ===

impl TokenRows {
    pub(super) fn put(&mut self, token: TokenRow) -> Result<()> {
        let has_id = self.of(&token.tenant).any(|(_, one)| one.id == token.id);
        if has_id || self.rows.contains_key(&token.hash) {
            return Err(already_exists("token", token.id.as_str()));
        }
        self.last_place += 1;
        self.rows.insert(token.hash, (self.last_place, token));
        Ok(())
    }

    pub(super) fn of<'a>(&'a self, tenant: &TenantId) -> impl Iterator<Item = &'a (u64, TokenRow)> {
        self.rows.values().filter(move |(_, token)| token.tenant == *tenant)
    }

    pub(super) fn take(&mut self, tenant: &TenantId, id: &TokenId) -> Option<TokenRow> {
        let hash = self.of(tenant).find(|(_, token)| token.id == *id)?.1.hash;
        self.rows.remove(&hash).map(|(_, token)| token)
    }
}
