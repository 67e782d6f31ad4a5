use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use rusqlite::params;
use tokio::sync::Notify;
use trilogue_domain::error::Result;
use trilogue_domain::{PrincipalId, Rights, Scope, TenantId, Timestamp, TokenId};

use super::error::SqliteError;
use super::job::{WorkKind, WriteContext};
use super::{SqliteStore, queue, row};
use crate::core::already_exists;
use crate::news::Peers;
use crate::port::{Queue, Tokens};
use crate::rows::{Claim, QueueKind, RetryDecision, SignInLinkRow, TokenRow};

#[async_trait]
impl Queue for SqliteStore {
    async fn claim(
        &self,
        kind: QueueKind,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Claim>> {
        // Workers poll an empty queue often, and a poll must not cost a write.
        match self.next_due(kind).await? {
            Some(due) if due <= now => {}
            _ => return Ok(Vec::new()),
        }
        self.write(WorkKind::VITAL, move |writer: &mut WriteContext<'_>| {
            queue::claim(writer.conn, kind, now, lease_until, limit)
        })
        .await
    }

    async fn bring_forward(&self, by: Duration) -> Result<()> {
        let mut behind = 0;
        let part = async |behind: i64| {
            self.write(WorkKind::VITAL, move |writer: &mut WriteContext<'_>| {
                queue::bring_forward(writer.conn, behind, by)
            })
            .await
        };
        while let Some(last) = part(behind).await? {
            behind = last;
        }
        Ok(())
    }

    async fn extend(&self, claim: &Claim, lease_until: Timestamp) -> Result<bool> {
        let claim = claim.clone();
        self.write(WorkKind::VITAL, move |writer: &mut WriteContext<'_>| {
            queue::extend(writer.conn, &claim, lease_until)
        })
        .await
    }

    async fn finish(&self, claim: &Claim) -> Result<bool> {
        let claim = claim.clone();
        self.write(WorkKind::VITAL, move |writer: &mut WriteContext<'_>| {
            queue::finish(writer.conn, &claim)
        })
        .await
    }

    async fn abandon(&self, claim: &Claim, how: RetryDecision, error: &str) -> Result<bool> {
        let (claim, error) = (claim.clone(), error.to_owned());
        let is_back = matches!(how, RetryDecision::RetryAt(_));
        let held = self
            .write(WorkKind::VITAL, move |writer: &mut WriteContext<'_>| {
                queue::abandon(writer.conn, &claim, &how, &error)
            })
            .await?;
        if held && is_back {
            self.context.offered.wake();
        }
        Ok(held)
    }

    async fn next_due(&self, kind: QueueKind) -> Result<Option<Timestamp>> {
        self.read(move |conn, _| queue::next_due(conn, kind)).await
    }

    async fn revive(&self, scope: &Scope, id: i64, now: Timestamp) -> Result<bool> {
        let scope = scope.clone();
        let is_back = self
            .write(WorkKind::USUAL, move |writer: &mut WriteContext<'_>| {
                queue::revive(writer.conn, &scope, id, now)
            })
            .await?;
        if is_back {
            self.context.offered.wake();
        }
        Ok(is_back)
    }

    fn offer_signal(&self) -> Arc<Notify> {
        Arc::clone(&self.context.offered.0)
    }
}

impl Peers for SqliteStore {}

#[async_trait]
impl Tokens for SqliteStore {
    async fn put_token(&self, token: TokenRow) -> Result<()> {
        self.write(WorkKind::USUAL, move |writer: &mut WriteContext<'_>| put(writer.conn, &token))
            .await
    }

    async fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>> {
        let hash = *hash;
        self.read(move |conn, _| readable(row::one(conn, "WHERE hash = ?1", params![hash]))).await
    }

    async fn tokens(&self, tenant: &TenantId) -> Result<Vec<TokenRow>> {
        let tenant = tenant.clone();
        self.read(move |conn, _| of_tenant(conn, "", params![tenant.as_str()])).await
    }

    async fn revoke_token(&self, tenant: &TenantId, id: &TokenId) -> Result<Option<TokenRow>> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.write(WorkKind::VITAL, move |writer: &mut WriteContext<'_>| {
            let params = params![tenant.as_str(), id.as_str()];
            let rest = "WHERE tenant = ?1 AND id = ?2";
            let found = readable(row::one(writer.conn, rest, params))?;
            // A damaged token can be removed too.
            writer
                .conn
                .prepare_cached("DELETE FROM tokens WHERE tenant = ?1 AND id = ?2")?
                .execute(params)?;
            Ok(found)
        })
        .await
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
    ) -> Result<Rights> {
        let (tenant, principal) = (tenant.clone(), principal.clone());
        let tokens = self.read(move |conn, _| {
            let params = params![tenant.as_str(), principal.as_str()];
            of_tenant(conn, "AND principal = ?2", params)
        });
        let is_valid = |token: &&TokenRow| token.is_valid(now);
        Ok(tokens.await?.iter().filter(is_valid).flat_map(|token| token.rights.iter()).collect())
    }
}

pub(super) fn put(conn: &Connection, token: &TokenRow) -> Result<(), SqliteError> {
    let sql = concat!(
        "INSERT INTO tokens (tenant, id, principal, hash, body)",
        " VALUES (?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING"
    );
    if row::write(conn, sql, token, &[])? == 0 {
        return Err(already_exists("token", token.id.as_str()).into());
    }
    Ok(())
}

fn of_tenant(
    conn: &rusqlite::Connection,
    and: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<TokenRow>, SqliteError> {
    let rest = format!("WHERE tenant = ?1 {and} ORDER BY key DESC");
    let mut statement = conn.prepare_cached(&row::select::<TokenRow>(&rest))?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.extend(readable(row::take(row).map(Some))?);
    }
    Ok(found)
}

/// A damaged token counts as absent.
fn readable(found: Result<Option<TokenRow>, SqliteError>) -> Result<Option<TokenRow>, SqliteError> {
    match found {
        Err(SqliteError::Damaged(_, error)) => {
            tracing::error!(%error, "a stored token is damaged and is refused");
            Ok(None)
        }
        found => found,
    }
}
