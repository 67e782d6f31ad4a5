//! Authenticates requests: looks a token up by its hash, finds its principal, and caches both for a short time.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use subtle::ConstantTimeEq;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use trilogue_domain::error::Result;
use trilogue_domain::port::Clock;
use trilogue_domain::{AgentName, Code, Error, Principal, Timestamp, TokenId};
use trilogue_store::rows::TokenRow;
use trilogue_store::{PeerMessage, PeerNews, Tokens};

use super::page_session::{require_new_sign_in, session_secret};
use super::schemes::{self, Challenge};
use super::secret::hash_secret;
use super::tickets::{Tickets, refused_ticket};
use crate::core::options::{Access, Options};
use crate::core::scheme::Scheme;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The longest accepted secret, in bytes.
const MAX_SECRET_BYTES: usize = 1024;
const MAX_REMEMBERED: usize = 10_000;

#[derive(Clone, Debug)]
pub struct Caller {
    pub principal: Arc<Principal>,
    /// How the caller authenticated; [`Scheme::None`] if no token is required.
    pub(crate) scheme: Scheme,
    /// Whether the caller has a page session, which every agent accepts.
    pub(crate) is_page: bool,
    /// The token's hash; `None` if no token is required.
    hash: Option<[u8; 32]>,
    /// The token's id; `None` if no token is required.
    pub(crate) token: Option<TokenId>,
}

pub(crate) struct Authenticator {
    open: Option<Arc<Principal>>,
    /// The principal of callers without a token, if some agent accepts them.
    anonymous: Option<Arc<Principal>>,
    /// The principal without rights, for public requests.
    nobody: Arc<Principal>,
    schemes: HashMap<AgentName, Vec<Scheme>>,
    public_agents: bool,
    basic: bool,
    tokens: Arc<dyn Tokens>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The longest age of a cached token. An older one is looked up again.
    pub(crate) recheck: Duration,
    cache: RwLock<TokenCache>,
    /// Notified after each revocation.
    pub(super) revoked: Notify,
    tickets: Tickets,
}

/// The tokens that were looked up last.
#[derive(Default)]
struct TokenCache {
    tokens: HashMap<[u8; 32], CachedToken>,
    /// The number of revocations so far. A look-up is repeated if a revocation overtakes it.
    revocations: u64,
}

/// The credential in a request.
struct RequestCredential<'a> {
    secret: Cow<'a, [u8]>,
    scheme: Scheme,
    is_session: bool,
}

#[derive(Clone)]
struct CachedToken {
    id: TokenId,
    principal: Arc<Principal>,
    is_session: bool,
    expires_at: Option<Timestamp>,
    read_at: Instant,
}

// === impl Caller ===

impl Caller {
    fn without_token(principal: &Arc<Principal>) -> Self {
        Self {
            principal: Arc::clone(principal),
            scheme: Scheme::None,
            is_page: false,
            hash: None,
            token: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn of_test(principal: &Arc<Principal>) -> Self {
        Self::without_token(principal)
    }

    /// Whether the caller shares one principal with all callers that show no token.
    pub(crate) fn is_anonymous(&self) -> bool {
        !self.is_known() && self.principal.own
    }

    pub(crate) fn is_known(&self) -> bool {
        self.hash.is_some()
    }
}

// === impl Authenticator ===

impl Authenticator {
    pub(crate) fn new(
        options: &Options,
        tokens: Arc<dyn Tokens>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let open = match &options.access {
            Access::Tokens => None,
            Access::Open(principal) => Some(Arc::new(principal.clone())),
        };
        let recheck = options.token_recheck;
        let named = |scheme| options.agent_schemes.values().any(|it| it.contains(&scheme));
        let anonymous = options.anonymous.clone().filter(|_| named(Scheme::None));
        Ok(Self {
            open,
            anonymous: anonymous.map(Arc::new),
            nobody: Arc::new(schemes::nobody()?),
            schemes: options.agent_schemes.clone(),
            public_agents: options.public_agents,
            basic: named(Scheme::Basic),
            tokens,
            clock,
            recheck,
            cache: RwLock::default(),
            revoked: Notify::new(),
            tickets: Tickets::default(),
        })
    }

    /// Errors: `unauthenticated`, with one message for a malformed, unknown, revoked or expired token and another for a missing one.
    pub(crate) async fn admit(&self, headers: &HeaderMap) -> Result<Caller> {
        if let Some(principal) = &self.open {
            return Ok(Caller::without_token(principal));
        }
        let credential = self.credential(headers)?.ok_or_else(no_token)?;
        let hash = hash_secret(&credential.secret);
        let found = self.look_up(&hash).await?;
        // A session's secret is never accepted as a token, nor a token as a session.
        let found = found.filter(|it| it.is_session == credential.is_session);
        let found = found.ok_or_else(unknown)?;
        Ok(Caller {
            principal: found.principal,
            token: Some(found.id),
            scheme: credential.scheme,
            is_page: credential.is_session,
            hash: Some(hash),
        })
    }

    /// Like [`Self::admit`], for a route to an agent: admits callers without a credential if some agent accepts them.
    pub(crate) async fn admit_to_agents(&self, headers: &HeaderMap) -> Result<Caller> {
        match &self.anonymous {
            Some(anonymous) if self.open.is_none() && !shows_token(headers) => {
                Ok(Caller::without_token(anonymous))
            }
            _ => self.admit(headers).await,
        }
    }

    /// Makes a ticket with which a page of this origin opens one WebSocket in the caller's name. Returns its subprotocol, and when it expires.
    /// Errors: `overloaded`.
    pub(crate) fn issue_ticket(
        &self,
        caller: &Caller,
        origin: &str,
    ) -> Result<(String, Timestamp)> {
        self.tickets.issue(caller.clone(), origin.to_owned(), self.clock.now())
    }

    /// Admits the request of a page for a WebSocket by its ticket, as long as the token works with which the page got it. Errors: `unauthenticated`.
    pub(crate) async fn admit_by_ticket(&self, headers: &HeaderMap) -> Result<Caller> {
        let caller = self.tickets.take(headers, self.clock.now())?;
        if self.still_admits(&caller).await { Ok(caller) } else { Err(refused_ticket()) }
    }

    /// Like [`Self::admit`], for a public route: a caller without a valid credential gets a principal without rights.
    pub(crate) async fn admit_to_public(&self, headers: &HeaderMap) -> Caller {
        match self.admit(headers).await {
            Ok(caller) => caller,
            Err(_) => self.nobody(),
        }
    }

    pub(crate) fn nobody(&self) -> Caller {
        Caller::without_token(&self.nobody)
    }

    pub(crate) fn schemes_of(&self, agent: &AgentName) -> &[Scheme] {
        match &self.open {
            Some(_) => &[Scheme::None],
            None => self.schemes.get(agent).map_or(Scheme::DEFAULT, Vec::as_slice),
        }
    }

    /// Returns the challenge for callers of an agent that did not authenticate, and a hint that explains it.
    pub(crate) fn challenge_of(&self, agent: &AgentName) -> (Challenge, String) {
        let schemes = self.schemes_of(agent);
        let ways = schemes.iter().filter_map(|scheme| scheme.challenge()).collect();
        let challenge = Challenge { agent: agent.clone(), ways };
        let ways: Vec<_> = schemes.iter().map(|scheme| scheme.instructions()).collect();
        (challenge, format!("send {}", ways.join(" or ")))
    }

    /// Whether this caller must not learn if the agent exists: it has shown no valid token, and the agent requires one.
    pub(crate) fn hides(&self, caller: &Caller, agent: Option<&AgentName>) -> bool {
        let is_open = |agent| self.schemes_of(agent).contains(&Scheme::None);
        !self.public_agents
            && self.open.is_none()
            && !caller.is_known()
            && !agent.is_some_and(is_open)
    }

    pub(crate) fn own_schemes(&self) -> &'static [Scheme] {
        if self.open.is_some() { &[Scheme::None] } else { Scheme::DEFAULT }
    }

    pub(crate) fn takes(&self, caller: &Caller, agent: &AgentName) -> bool {
        let schemes = self.schemes_of(agent);
        caller.is_page
            || schemes.contains(&caller.scheme)
            || (schemes.contains(&Scheme::None) && caller.is_known())
    }

    /// Returns the credential in a request, or `None` if it has none.
    fn credential<'a>(&self, headers: &'a HeaderMap) -> Result<Option<RequestCredential<'a>>> {
        let authorization = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let shown = |secret, scheme| Some(RequestCredential { secret, scheme, is_session: false });
        let found = match (authorization, headers.get(API_KEY)) {
            (Some(value), _) => match (schemes::bearer(value), session_secret(value)) {
                (Some(secret), _) => shown(Cow::Borrowed(secret), Scheme::Bearer),
                (None, Some(secret)) => Some(RequestCredential {
                    secret: Cow::Borrowed(secret),
                    scheme: Scheme::Bearer,
                    is_session: true,
                }),
                (None, None) if self.basic => {
                    schemes::basic(value).and_then(|it| shown(Cow::Owned(it), Scheme::Basic))
                }
                (None, None) => None,
            },
            (None, Some(value)) => shown(Cow::Borrowed(value.as_bytes()), Scheme::ApiKey),
            (None, None) => return Ok(None),
        };
        match found {
            Some(found) if (1..=MAX_SECRET_BYTES).contains(&found.secret.len()) => Ok(Some(found)),
            _ => Err(unknown()),
        }
    }

    /// Returns the caller's token, or `None` if it has none or the token was removed.
    pub(crate) async fn token(&self, caller: &Caller) -> Result<Option<TokenRow>> {
        match &caller.hash {
            Some(hash) => self.tokens.token(hash).await,
            None => Ok(None),
        }
    }

    /// Fails with `forbidden` if the caller is a page whose sign-in is not new.
    pub(crate) async fn require_new_sign_in(&self, caller: &Caller) -> Result<()> {
        if !caller.is_page {
            return Ok(());
        }
        let session = self.token(caller).await?;
        require_new_sign_in(session.as_ref(), self.clock.now())
    }

    /// Whether the caller's token still works, at most twice the recheck interval old.
    pub(crate) async fn still_admits(&self, caller: &Caller) -> bool {
        match &caller.hash {
            None => true,
            // A store that cannot answer does not count as a revocation: streams end anyway when the store stops.
            Some(hash) => self.look_up(hash).await.map_or(true, |found| found.is_some()),
        }
    }

    /// Forgets a revoked token. A look-up that runs at this moment does not restore it.
    pub(crate) fn forget(&self, hash: &[u8; 32]) {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        cache.revocations += 1;
        cache.tokens.remove(hash);
        drop(cache);
        self.revoked.notify_waiters();
    }

    /// Forgets all tokens, so that each is looked up again: the revoked ones are unknown.
    fn forget_all(&self) {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        cache.revocations += 1;
        cache.tokens.clear();
        drop(cache);
        self.revoked.notify_waiters();
    }

    /// Forgets the tokens that other nodes revoke, until the channel closes.
    pub(crate) async fn hear_revocations(&self, mut heard: Receiver<PeerNews>) {
        loop {
            match heard.recv().await {
                Ok(PeerNews::Message(PeerMessage::Revoked(hash))) => self.forget(&hash),
                Ok(PeerNews::Message(_)) => {}
                Ok(PeerNews::Missed) | Err(RecvError::Lagged(_)) => self.forget_all(),
                Err(RecvError::Closed) => return,
            }
        }
    }

    async fn look_up(&self, hash: &[u8; 32]) -> Result<Option<CachedToken>> {
        loop {
            let (cached, revocations) = self.cached(hash);
            if let Some(cached) = cached {
                return Ok(Some(cached).filter(|it| self.is_current(it.expires_at)));
            }
            let row = self.tokens.token(hash).await?;
            let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
            if cache.revocations != revocations {
                // The row may have been read before its token was revoked.
                continue;
            }
            let Some(row) = row.filter(|row| bool::from(row.hash.ct_eq(hash))) else {
                cache.tokens.remove(hash);
                return Ok(None);
            };
            if cache.tokens.len() >= MAX_REMEMBERED {
                cache.tokens.clear();
            }
            let cached = CachedToken {
                id: row.id.clone(),
                principal: Arc::new(row.to_principal()),
                is_session: row.session_of.is_some(),
                expires_at: row.expires_at,
                read_at: Instant::now(),
            };
            cache.tokens.insert(*hash, cached.clone());
            return Ok(Some(cached).filter(|it| self.is_current(it.expires_at)));
        }
    }

    /// Returns the token, unless its last look-up is too long ago, and the number of revocations so far.
    fn cached(&self, hash: &[u8; 32]) -> (Option<CachedToken>, u64) {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        let token = cache.tokens.get(hash).filter(|it| it.read_at.elapsed() < self.recheck);
        (token.cloned(), cache.revocations)
    }

    fn is_current(&self, expires_at: Option<Timestamp>) -> bool {
        expires_at.is_none_or(|end| self.clock.now() < end)
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("open", &self.open.is_some()).finish_non_exhaustive()
    }
}

pub(crate) fn shows_token(headers: &HeaderMap) -> bool {
    headers.contains_key(header::AUTHORIZATION) || headers.contains_key(API_KEY)
}

pub(crate) fn no_token() -> Error {
    Error::new(Code::Unauthenticated, "the request has no token").hint(
        "send 'Authorization: Bearer TOKEN' or 'x-api-key: TOKEN'; make one with: trilogue token create --label NAME",
    )
}

/// The error for a token that was accepted before and no longer works: everything begun with it ends.
pub(crate) fn revoked() -> Error {
    Error::new(Code::Unauthenticated, "the token was revoked or has expired")
}

fn unknown() -> Error {
    Error::new(Code::Unauthenticated, "the token is not known, was revoked or has expired")
        .hint("make one with: trilogue token create --label NAME")
}
