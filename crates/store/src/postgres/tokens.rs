use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use tokio::sync::{Notify, broadcast};
use trilogue_domain::error::Result;
use trilogue_domain::{PrincipalId, Rights, Scope, TenantId, Timestamp, TokenId};

use super::error::PostgresError;
use super::news::News;
use super::row::{self, bind, insert, refs};
use super::{PostgresStore, queue, sign_in};
use crate::core::already_exists;
use crate::core::table::TableRow;
use crate::news::{PeerMessage, PeerNews, Peers};
use crate::port::{Queue, Tokens};
use crate::rows::{Claim, QueueKind, RetryDecision, SignInLinkRow, TokenRow};

pub(super) static PUT: LazyLock<String> =
    LazyLock::new(|| insert::<TokenRow>(false, "ON CONFLICT DO NOTHING"));

#[async_trait]
impl Queue for PostgresStore {
    async fn claim(
        &self,
        kind: QueueKind,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Claim>> {
        // Workers poll an empty queue often, and a poll must not cost a transaction.
        match self.next_due(kind).await? {
            Some(due) if due <= now => {}
            _ => return Ok(Vec::new()),
        }
        let database = &self.database;
        database
            .write(|conn| async move {
                queue::claim(&conn, database, kind, now, lease_until, limit).await
            })
            .await
    }

    async fn extend(&self, claim: &Claim, lease_until: Timestamp) -> Result<bool> {
        self.database
            .write(|conn| async move { queue::extend(&conn, claim, lease_until).await })
            .await
    }

    async fn finish(&self, claim: &Claim) -> Result<bool> {
        self.database.write(|conn| async move { queue::finish(&conn, claim).await }).await
    }

    async fn abandon(&self, claim: &Claim, how: RetryDecision, error: &str) -> Result<bool> {
        let (how, is_back) = (&how, matches!(how, RetryDecision::RetryAt(_)));
        let held = self
            .database
            .write(|conn| async move { queue::abandon(&conn, claim, how, error).await })
            .await?;
        if held && is_back {
            self.database.offered.wake();
        }
        Ok(held)
    }

    async fn next_due(&self, kind: QueueKind) -> Result<Option<Timestamp>> {
        let database = &self.database;
        database.read(|conn| async move { queue::next_due(&conn, database, kind).await }).await
    }

    async fn revive(&self, scope: &Scope, id: i64, now: Timestamp) -> Result<bool> {
        let is_back = self
            .database
            .write(|conn| async move { queue::revive(&conn, scope, id, now).await })
            .await?;
        if is_back {
            self.database.offered.wake();
        }
        Ok(is_back)
    }

    fn offer_signal(&self) -> Arc<Notify> {
        Arc::clone(&self.database.offered.0)
    }
}

impl Peers for PostgresStore {
    fn has_peers(&self) -> bool {
        self.database.news.as_ref().is_some_and(News::is_connected)
    }

    fn publish(&self, note: PeerMessage) {
        if let Some(news) = &self.database.news {
            news.publish_message(note);
        }
    }

    fn subscribe(&self) -> Option<broadcast::Receiver<PeerNews>> {
        self.database.node.as_ref().map(|_| self.database.peer_news.subscribe())
    }
}

#[async_trait]
impl Tokens for PostgresStore {
    async fn put_token(&self, token: TokenRow) -> Result<()> {
        let token = &token;
        self.database
            .write_once(|conn| async move {
                let columns = token.columns();
                let params = bind(token, columns.as_ref());
                if row::execute(&conn, &PUT, &refs(&params)).await? == 0 {
                    return Err(already_exists("token", token.id.as_str()).into());
                }
                Ok(())
            })
            .await
    }

    async fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>> {
        let rest = "WHERE hash = $1";
        self.database
            .read(|conn| async move { readable(row::one(&conn, rest, &[&hash.as_slice()]).await) })
            .await
    }

    async fn tokens(&self, tenant: &TenantId) -> Result<Vec<TokenRow>> {
        self.of_tenant("WHERE tenant = $1 ORDER BY key DESC", &[&tenant.as_str()]).await
    }

    async fn revoke_token(&self, tenant: &TenantId, id: &TokenId) -> Result<Option<TokenRow>> {
        let revoked = self
            .database
            .write_once(|conn| async move {
                // A damaged token can be removed too.
                let sql = format!(
                    "DELETE FROM tokens WHERE tenant = $1 AND id = $2 RETURNING {}",
                    row::columns::<TokenRow>()
                );
                let removed =
                    row::query_opt(&conn, &sql, &[&tenant.as_str(), &id.as_str()]).await?;
                readable(removed.map(|row| row::take(&row)).transpose())
            })
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
    ) -> Result<Rights> {
        let rest = "WHERE tenant = $1 AND principal = $2";
        let tokens = self.of_tenant(rest, &[&tenant.as_str(), &principal.as_str()]).await?;
        let is_valid = |token: &&TokenRow| token.is_valid(now);
        Ok(tokens.iter().filter(is_valid).flat_map(|token| token.rights.iter()).collect())
    }
}

impl PostgresStore {
    async fn of_tenant(&self, rest: &str, params: &row::Params<'_>) -> Result<Vec<TokenRow>> {
        let sql = &row::select::<TokenRow>(rest);
        let rows =
            self.database.read(|conn| async move { row::query(&conn, sql, params).await }).await?;
        let tokens = rows.iter().filter_map(|row| readable(row::take(row).map(Some)).transpose());
        tokens.collect::<Result<_, PostgresError>>().map_err(|fail| self.database.settle(fail))
    }
}

/// A damaged token counts as absent.
fn readable(
    found: Result<Option<TokenRow>, PostgresError>,
) -> Result<Option<TokenRow>, PostgresError> {
    match found {
        Err(PostgresError::Damaged(_, error)) => {
            tracing::error!(%error, "a stored token is damaged and is refused");
            Ok(None)
        }
        found => found,
    }
}
