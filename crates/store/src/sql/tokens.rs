//! Tokens. A damaged one counts as absent, and can be removed.

use trilogue_domain::{PrincipalId, TenantId, Timestamp, TokenId};

use super::{SqlConnection, SqlError, select, take, write};
use crate::core::already_exists;
use crate::core::table::{Column, columns};
use crate::rows::{PrincipalRights, TokenRow};

pub(crate) const PUT: &str = concat!(
    "INSERT INTO tokens (tenant, id, principal, hash, body)",
    " VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING"
);

pub(crate) async fn put<C: SqlConnection>(conn: &C, token: &TokenRow) -> Result<(), C::Error> {
    if write(conn, PUT, token, &[]).await? == 0 {
        return Err(already_exists("token", token.id.as_str()).into());
    }
    Ok(())
}

pub(crate) async fn by_hash<C: SqlConnection>(
    conn: &C,
    hash: &[u8; 32],
) -> Result<Option<TokenRow>, C::Error> {
    let sql = select::<TokenRow, C>("WHERE hash = ?1");
    Ok(readable(conn, &sql, &columns![hash.as_slice()]).await?.pop())
}

/// The tokens of a tenant, newest first.
pub(crate) async fn of_tenant<C: SqlConnection>(
    conn: &C,
    tenant: &TenantId,
) -> Result<Vec<TokenRow>, C::Error> {
    let sql = select::<TokenRow, C>("WHERE tenant = ?1 ORDER BY key DESC");
    readable(conn, &sql, &columns![tenant]).await
}

/// Removes a token and returns it.
pub(crate) async fn revoke<C: SqlConnection>(
    conn: &C,
    tenant: &TenantId,
    id: &TokenId,
) -> Result<Option<TokenRow>, C::Error> {
    let columns = C::columns::<TokenRow>();
    let sql = format!("DELETE FROM tokens WHERE tenant = ?1 AND id = ?2 RETURNING {columns}");
    Ok(readable(conn, &sql, &columns![tenant, id]).await?.pop())
}

/// What the valid tokens of a principal permit.
pub(crate) async fn rights_of<C: SqlConnection>(
    conn: &C,
    tenant: &TenantId,
    principal: &PrincipalId,
    now: Timestamp,
) -> Result<PrincipalRights, C::Error> {
    let sql = select::<TokenRow, C>("WHERE tenant = ?1 AND principal = ?2");
    let tokens = readable(conn, &sql, &columns![tenant, principal]).await?;
    Ok(PrincipalRights::of_tokens(tokens.iter(), now))
}

/// Reads the tokens that are not damaged.
async fn readable<C: SqlConnection>(
    conn: &C,
    sql: &str,
    values: &[Column<'_>],
) -> Result<Vec<TokenRow>, C::Error> {
    let read = |row: &C::Row<'_>| match take(row) {
        Ok(token) => Ok(Some(token)),
        Err(fail) => {
            let fail: C::Error = fail;
            let (_, error) = fail.into_damage()?;
            tracing::error!(%error, "a stored token is damaged and is refused");
            Ok(None)
        }
    };
    Ok(conn.rows(sql, values, read).await?.into_iter().flatten().collect())
}
