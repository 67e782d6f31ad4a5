use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::{PrincipalId, TenantId, Timestamp, TokenId};

use super::SqliteStore;
use super::job::WorkKind;
use crate::port::Tokens;
use crate::rows::{PrincipalRights, SignInLinkRow, TokenRow};
use crate::sql::tokens;

#[async_trait]
impl Tokens for SqliteStore {
    async fn put_token(&self, token: TokenRow) -> Result<()> {
        self.write_kind(WorkKind::USUAL, async move |conn| tokens::put(conn, &token).await).await
    }

    async fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>> {
        let hash = *hash;
        self.look_up(async move |conn, _| tokens::by_hash(conn, &hash).await).await
    }

    async fn tokens(&self, tenant: &TenantId) -> Result<Vec<TokenRow>> {
        let tenant = tenant.clone();
        self.look_up(async move |conn, _| tokens::of_tenant(conn, &tenant).await).await
    }

    async fn revoke_token(&self, tenant: &TenantId, id: &TokenId) -> Result<Option<TokenRow>> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.write_vital(async move |conn| tokens::revoke(conn, &tenant, &id).await).await
    }

    async fn put_sign_in_link(&self, link: SignInLinkRow, now: Timestamp) -> Result<()> {
        self.context.sign_in_links.put(link, now)
    }

    async fn sign_in_link(&self, code: &[u8; 32], now: Timestamp) -> Result<Option<SignInLinkRow>> {
        Ok(self.context.sign_in_links.get(code, now))
    }

    async fn take_sign_in_link(
        &self,
        code: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<SignInLinkRow>> {
        Ok(self.context.sign_in_links.take(code, now))
    }

    async fn rights_of(
        &self,
        tenant: &TenantId,
        principal: &PrincipalId,
        now: Timestamp,
    ) -> Result<PrincipalRights> {
        let (tenant, principal) = (tenant.clone(), principal.clone());
        self.look_up(async move |conn, _| tokens::rights_of(conn, &tenant, &principal, now).await)
            .await
    }
}
