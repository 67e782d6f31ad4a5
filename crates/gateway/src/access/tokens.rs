//! Tokens: secrets to principals, looked up by hash, and forgotten soon enough.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, header};
use subtle::ConstantTimeEq;
use trilogue_domain::error::Result;
use trilogue_domain::port::Clock;
use trilogue_domain::{Code, Error, Principal, Timestamp};
use trilogue_store::Tokens;

use crate::access::secret::hash_secret;
use crate::options::{Access, Options};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The longest secret that is looked at, in bytes.
const MAX_SECRET_BYTES: usize = 1024;
/// The most tokens that are remembered at once.
const MAX_REMEMBERED: usize = 10_000;

/// Who calls.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) principal: Arc<Principal>,
    /// The token's hash; `None` where no token is asked for.
    hash: Option<[u8; 32]>,
}

/// Knows tokens.
pub(crate) struct Gatekeeper {
    open: Option<Arc<Principal>>,
    tokens: Arc<dyn Tokens>,
    clock: Arc<dyn Clock>,
    recheck: Duration,
    known: RwLock<HashMap<[u8; 32], Known>>,
}

/// What was read of a token, and when.
#[derive(Clone)]
struct Known {
    principal: Arc<Principal>,
    expires_at: Option<Timestamp>,
    read_at: Instant,
}

// === impl Gatekeeper ===

impl Gatekeeper {
    pub(crate) fn new(options: &Options, tokens: Arc<dyn Tokens>, clock: Arc<dyn Clock>) -> Self {
        let open = match &options.access {
            Access::Tokens => None,
            Access::Open(principal) => Some(Arc::new(principal.clone())),
        };
        let recheck = options.token_recheck;
        Self { open, tokens, clock, recheck, known: RwLock::default() }
    }

    /// Who sends a request with these headers.
    ///
    /// # Errors
    /// `unauthenticated`; the same for a missing, malformed, unknown, revoked and expired token but for the first.
    pub(crate) async fn admit(&self, headers: &HeaderMap) -> Result<Caller> {
        if let Some(principal) = &self.open {
            return Ok(Caller { principal: Arc::clone(principal), hash: None });
        }
        let secret = secret(headers)?;
        let hash = hash_secret(secret);
        let principal = self.look_up(&hash).await?.ok_or_else(unknown)?;
        Ok(Caller { principal, hash: Some(hash) })
    }

    /// Whether the caller's token still works, at most twice the recheck interval old.
    pub(crate) async fn still_admits(&self, caller: &Caller) -> bool {
        match &caller.hash {
            None => true,
            // A store that cannot answer revokes nothing: it ends streams by itself when it stops.
            Some(hash) => self.look_up(hash).await.map_or(true, |found| found.is_some()),
        }
    }

    /// Forgets a token at once.
    pub(crate) fn forget(&self, hash: &[u8; 32]) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(hash);
    }

    async fn look_up(&self, hash: &[u8; 32]) -> Result<Option<Arc<Principal>>> {
        if let Some(known) = self.remembered(hash) {
            return Ok(Some(known.principal).filter(|_| self.is_current(known.expires_at)));
        }
        let row = self.tokens.token(hash).await?;
        let Some(row) = row.filter(|row| bool::from(row.hash.ct_eq(hash))) else {
            self.forget(hash);
            return Ok(None);
        };
        let principal = Arc::new(Principal {
            tenant: row.tenant,
            id: row.principal,
            rights: row.rights,
            own: row.own,
        });
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        let remembered = Known {
            principal: Arc::clone(&principal),
            expires_at: row.expires_at,
            read_at: Instant::now(),
        };
        known.insert(*hash, remembered);
        Ok(Some(principal).filter(|_| self.is_current(row.expires_at)))
    }

    fn remembered(&self, hash: &[u8; 32]) -> Option<Known> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(hash).filter(|known| known.read_at.elapsed() < self.recheck).cloned()
    }

    fn is_current(&self, expires_at: Option<Timestamp>) -> bool {
        expires_at.is_none_or(|end| self.clock.now() < end)
    }
}

impl fmt::Debug for Gatekeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gatekeeper").field("open", &self.open.is_some()).finish_non_exhaustive()
    }
}

/// The secret of a request, in one of two headers.
fn secret(headers: &HeaderMap) -> Result<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).map(|value| bearer(value.as_bytes()));
    let key = headers.get(API_KEY).map(|value| Some(value.as_bytes()));
    match bearer.or(key) {
        Some(Some(secret)) if !secret.is_empty() && secret.len() <= MAX_SECRET_BYTES => Ok(secret),
        Some(_) => Err(unknown()),
        None => Err(Error::new(Code::Unauthenticated, "the request has no token").hint(
            "send 'Authorization: Bearer TOKEN' or 'x-api-key: TOKEN'; make one with: trilogue token create --label NAME",
        )),
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, secret) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(secret.trim_ascii())
}

fn unknown() -> Error {
    Error::new(Code::Unauthenticated, "the token is not known, was revoked or has expired")
        .hint("make one with: trilogue token create --label NAME")
}
