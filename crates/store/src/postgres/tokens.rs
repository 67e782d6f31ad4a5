use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::{PrincipalId, TenantId, Timestamp, TokenId};

use super::{PostgresStore, sign_in};
use crate::news::{PeerMessage, Peers};
use crate::port::Tokens;
use crate::rows::{PrincipalRights, SignInLinkRow, TokenRow};
use crate::sql::tokens;

#[async_trait]
impl Tokens for PostgresStore {
    async fn put_token(&self, token: TokenRow) -> Result<()> {
        let token = &token;
        self.database.write_once(|conn| async move { tokens::put(&**conn, token).await }).await
    }

    async fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>> {
        self.database.read(|conn| async move { tokens::by_hash(&conn, hash).await }).await
    }

    async fn tokens(&self, tenant: &TenantId) -> Result<Vec<TokenRow>> {
        self.database.read(|conn| async move { tokens::of_tenant(&conn, tenant).await }).await
    }

    async fn revoke_token(&self, tenant: &TenantId, id: &TokenId) -> Result<Option<TokenRow>> {
        let revoked = self
            .database
            .write_once(|conn| async move { tokens::revoke(&**conn, tenant, id).await })
            .await?;
        if let Some(token) = &revoked {
            self.publish(PeerMessage::Revoked(token.hash));
        }
        Ok(revoked)
    }

    async fn put_sign_in_link(&self, link: SignInLinkRow, now: Timestamp) -> Result<()> {
        let link = &link;
        self.database.write(|conn| async move { sign_in::put(&conn, link, now).await }).await
    }

    async fn sign_in_link(&self, code: &[u8; 32], now: Timestamp) -> Result<Option<SignInLinkRow>> {
        self.database.read(|conn| async move { sign_in::get(&conn, code, now).await }).await
    }

    async fn take_sign_in_link(
        &self,
        code: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<SignInLinkRow>> {
        self.database.write_once(|conn| async move { sign_in::take(&conn, code, now).await }).await
    }

    async fn rights_of(
        &self,
        tenant: &TenantId,
        principal: &PrincipalId,
        now: Timestamp,
    ) -> Result<PrincipalRights> {
        self.database
            .read(|conn| async move { tokens::rights_of(&conn, tenant, principal, now).await })
            .await
    }
}
