//! The token that a server makes for its own user at its first start.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use trilogue_domain::{Code, Error, PrincipalId, Rights, TenantId, Timestamp, TokenId};
use trilogue_gateway::{hash_secret, new_secret};
use trilogue_store::Tokens;
use trilogue_store::rows::TokenRow;

use crate::local::token_file;

const TENANT: &str = "default";
const PRINCIPAL: &str = "owner";

/// Makes sure that each address has a token file whose token works, and gives the files.
///
/// A token that an earlier start left is used again while it still works; all addresses get the same.
pub(crate) async fn ensure(
    tokens: &dyn Tokens,
    state: &Path,
    addresses: &[SocketAddr],
    now: Timestamp,
) -> Result<Vec<PathBuf>, Error> {
    let files: Vec<_> = addresses.iter().map(|address| token_file::path(state, *address)).collect();
    let mut working = None;
    for file in &files {
        let found = token_file::read(file).unwrap_or_else(|error| {
            // It counts as missing and is written again below.
            tracing::warn!(file = %file.display(), %error, "a token file was not used; if others could read it, revoke its token");
            None
        });
        let Some(secret) = found else { continue };
        if is_usable(tokens, &secret, now).await? {
            working = Some(secret);
            break;
        }
    }
    let secret = match working {
        Some(secret) => secret,
        None => make(tokens, now).await?,
    };
    for file in &files {
        if !matches!(token_file::read(file), Ok(Some(found)) if found == secret) {
            token_file::write(file, &secret).map_err(|error| unwritable(file, &error))?;
        }
    }
    Ok(files)
}

/// The user who runs the server.
///
/// # Errors
/// Never with the names above; they are checked like any other.
pub(crate) fn owner() -> Result<(TenantId, PrincipalId), Error> {
    Ok((TenantId::parse(TENANT)?, PrincipalId::parse(PRINCIPAL)?))
}

async fn is_usable(tokens: &dyn Tokens, secret: &str, now: Timestamp) -> Result<bool, Error> {
    let row = tokens.token(&hash_secret(secret.as_bytes())).await?;
    Ok(row.is_some_and(|row| {
        row.rights == Rights::all() && row.expires_at.is_none_or(|end| now < end)
    }))
}

async fn make(tokens: &dyn Tokens, now: Timestamp) -> Result<String, Error> {
    let secret = new_secret()?;
    let (tenant, principal) = owner()?;
    let row = TokenRow {
        id: TokenId::generate(),
        label: "the user who runs the server".to_owned(),
        hash: hash_secret(secret.as_bytes()),
        tenant,
        principal,
        rights: Rights::all(),
        own: false,
        created_at: now,
        expires_at: None,
        session_of: None,
    };
    tokens.put_token(row).await?;
    Ok(secret)
}

fn unwritable(file: &Path, error: &io::Error) -> Error {
    Error::new(Code::Internal, format!("cannot write the token file {}: {error}", file.display()))
        .hint("make its folder writable, or set XDG_STATE_HOME to another")
}
