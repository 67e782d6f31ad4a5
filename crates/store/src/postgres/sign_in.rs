//! Sign-in links, for all nodes.

use trilogue_domain::Timestamp;
use trilogue_domain::limits::{MAX_SIGN_IN_LINKS, MAX_SIGN_IN_LINKS_PER_TOKEN};

use super::connection::Connection;
use super::error::PostgresError;
use super::row;
use crate::core::sign_in::too_many_links;
use crate::rows::SignInLinkRow;

const EXPIRE: &str = "DELETE FROM sign_in_links WHERE expires_at <= $1";
/// Stores a link if the limits allow one more.
const PUT: &str = concat!(
    "INSERT INTO sign_in_links (code, token, expires_at) SELECT $1, $2, $3",
    " WHERE (SELECT count(*) FROM sign_in_links) < $4",
    " AND (SELECT count(*) FROM sign_in_links WHERE token = $2) < $5",
    " ON CONFLICT (code) DO UPDATE SET token = excluded.token"
);
const GET: &str = "SELECT token, expires_at FROM sign_in_links WHERE code = $1";
const TAKE: &str = "DELETE FROM sign_in_links WHERE code = $1 RETURNING token, expires_at";

pub(super) async fn put(
    conn: &Connection,
    link: &SignInLinkRow,
    now: Timestamp,
) -> Result<(), PostgresError> {
    row::execute(conn, EXPIRE, &[&now.as_micros()]).await?;
    let limit = |links: usize| i64::try_from(links).unwrap_or(i64::MAX);
    let (most, most_of_token) = (limit(MAX_SIGN_IN_LINKS), limit(MAX_SIGN_IN_LINKS_PER_TOKEN));
    let (code, token) = (link.code.as_slice(), link.token.as_slice());
    let params: &row::Params<'_> =
        &[&code, &token, &link.expires_at.as_micros(), &most, &most_of_token];
    if row::execute(conn, PUT, params).await? == 0 {
        return Err(too_many_links().into());
    }
    Ok(())
}

pub(super) async fn get(
    conn: &Connection,
    code: &[u8; 32],
    now: Timestamp,
) -> Result<Option<SignInLinkRow>, PostgresError> {
    let found = row::query_opt(conn, GET, &[&code.as_slice()]).await?;
    Ok(found.and_then(|row| link(code, &row, now)))
}

/// Takes a link. If several callers take it at once, one gets it; the others find its row deleted.
pub(super) async fn take(
    conn: &Connection,
    code: &[u8; 32],
    now: Timestamp,
) -> Result<Option<SignInLinkRow>, PostgresError> {
    let taken = row::query_opt(conn, TAKE, &[&code.as_slice()]).await?;
    Ok(taken.and_then(|row| link(code, &row, now)))
}

/// The link of a row, unless it has expired.
fn link(code: &[u8; 32], row: &tokio_postgres::Row, now: Timestamp) -> Option<SignInLinkRow> {
    let token = row.get::<_, &[u8]>(0).try_into().ok()?;
    let expires_at = Timestamp::from_micros(row.get(1));
    let link = SignInLinkRow { code: *code, token, expires_at };
    Some(link).filter(|link| now < link.expires_at)
}
