//! Browser sessions: a link that works once, and the cookie that replaces it.

use std::time::Duration;

use http::{StatusCode, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, TokenId};
use trilogue_mapping::native::token::right;
use trilogue_store::rows::{SignInLinkRow, TokenRow};
use trilogue_wire::native::{Caller, PageSession, SignIn, SignInLink, SignInOwner, Ticket};

use super::{NativeCall, NativeRoute};
use crate::access::page_session::{LINK_LIFE, PAGE, SESSION_LIFE, SessionSecret, set_cookie};
use crate::access::secret::{hash_secret, new_secret};
use crate::access::tickets::only_origin;
use crate::core::audit::{AuditActor, AuditEvent, audit};
use crate::core::options::is_encrypted;
use crate::http::reply::Reply;
use crate::route::{Access, json_response, no_content, of};

/// The name of a session in the list of tokens.
const SESSION_LABEL: &str = "browser";

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(caller(call)));

pub(crate) const ROUTES: &[NativeRoute] = &[
    BASE.path("/api/v1/caller")
        .describe("get_caller", "Who the caller is, and what it may do")
        .answers(&[json_response(200, "The caller.", of::<Caller>)]),
    BASE.post("/api/v1/sign-in-links", |call| Box::pin(link(call)))
        .for_people()
        .new_sign_in()
        .describe(
            "create_sign_in_link",
            "Make a link that signs a browser in to the inspector with the caller's rights, once and within ten minutes",
        )
        .answers(&[json_response(201, "The link.", of::<SignInLink>)])
        .errors(&[Code::NotFound]),
    BASE.post("/api/v1/sign-in-links/look-up", |call| Box::pin(look_up(call)))
        .access(Access::Public)
        .describe(
            "look_up_sign_in_link",
            "In whose name a link signs in: a page asks its user before it signs in as somebody else. The link stays as it is",
        )
        .request(of::<SignIn>)
        .answers(&[json_response(200, "The owner of the link.", of::<SignInOwner>)]),
    BASE.post("/api/v1/sign-in", |call| Box::pin(sign_in(call)))
        .access(Access::Public)
        .describe("sign_in", "Begin a browser's session with the code of a link")
        .request(of::<SignIn>)
        .answers(&[json_response(
            200,
            "The page's half of the session's secret; the cookie has the other half.",
            of::<PageSession>,
        )]),
    BASE.post("/api/v1/tickets", |call| Box::pin(ticket(call)))
        .for_people()
        .describe(
            "create_ticket",
            "Make a ticket with which the calling page opens one WebSocket below /client within 30 seconds, because a browser sends no token with it",
        )
        .answers(&[json_response(201, "The ticket.", of::<Ticket>)])
        .errors(&[Code::InvalidRequest, Code::Overloaded]),
    BASE.post("/api/v1/sign-out", |call| Box::pin(sign_out(call)))
        .describe("sign_out", "End the caller's session")
        .answers(&[no_content("The session and its cookie are gone.")])
        .errors(&[Code::InvalidRequest]),
];

async fn caller(call: NativeCall) -> Result<Reply> {
    let token = call.authenticator.token(&call.caller).await?;
    let session = token.filter(|token| token.session_of.is_some());
    let principal = call.principal();
    Ok(Reply::ok(&Caller {
        tenant: principal.tenant.as_str().to_owned(),
        principal: principal.id.as_str().to_owned(),
        rights: principal.rights.iter().map(right).collect(),
        own: principal.own,
        session_expires_at: session.and_then(|it| it.expires_at).map(|at| at.to_string()),
    }))
}

async fn link(call: NativeCall) -> Result<Reply> {
    let Some(prefix) = &call.state.inspector else {
        return Err(Error::new(Code::NotFound, "this server has no inspector")
            .hint("remove `enabled = false` from [inspector] and start the server again"));
    };
    let base = match (&call.state.public_url, call.host()) {
        (Some(url), _) => url.trim_end_matches('/').to_owned(),
        (None, Some(host)) => format!("http://{host}"),
        (None, None) => return Err(Error::new(Code::InvalidRequest, "the request names no host")),
    };
    let page = format!("{base}{prefix}/");
    let token = call.authenticator.token(&call.caller).await?;
    let link = match token {
        None => SignInLink { url: page, expires_at: None },
        Some(token) => {
            let now = call.state.clock.now();
            let expires_at = now.after(LINK_LIFE);
            let code = new_secret()?;
            let link =
                SignInLinkRow { code: hash_secret(code.as_bytes()), token: token.hash, expires_at };
            call.state.tokens.put_sign_in_link(link, now).await?;
            // The part after '#' stays in the browser: no request and no log contains it.
            let url = format!("{page}#sign-in={code}");
            SignInLink { url, expires_at: Some(expires_at.to_string()) }
        }
    };
    Ok(Reply::json(StatusCode::CREATED, &link))
}

/// Fails with `invalid_request` without the inspector's header.
fn require_page(call: &NativeCall) -> Result<()> {
    if call.headers.contains_key(PAGE) {
        return Ok(());
    }
    let message = format!("the header '{PAGE}' is missing: only the inspector signs in");
    Err(Error::new(Code::InvalidRequest, message)
        .hint("a program sends its token with every request, and needs no session"))
}

async fn look_up(call: NativeCall) -> Result<Reply> {
    require_page(&call)?;
    let SignIn { code } = call.json()?;
    let (now, tokens) = (call.state.clock.now(), &call.state.tokens);
    let link = tokens.sign_in_link(&hash_secret(code.as_bytes()), now).await?;
    let token = tokens.token(&link.ok_or_else(stale_link)?.token).await?.ok_or_else(stale_link)?;
    Ok(Reply::ok(&SignInOwner {
        tenant: token.tenant.as_str().to_owned(),
        principal: token.principal.as_str().to_owned(),
    }))
}

async fn sign_in(call: NativeCall) -> Result<Reply> {
    require_page(&call)?;
    let SignIn { code } = call.json()?;
    let now = call.state.clock.now();
    let tokens = &call.state.tokens;
    let link = tokens.take_sign_in_link(&hash_secret(code.as_bytes()), now).await?;
    let hash = link.ok_or_else(stale_link)?.token;
    let parent = tokens.token(&hash).await?.ok_or_else(stale_link)?;
    let end = now.after(SESSION_LIFE);
    let secret = SessionSecret::generate()?;
    let session = TokenRow {
        id: TokenId::generate(),
        label: SESSION_LABEL.to_owned(),
        hash: secret.hash(),
        created_at: now,
        expires_at: Some(parent.expires_at.map_or(end, |other| other.min(end))),
        session_of: Some(parent.session_of.clone().unwrap_or_else(|| parent.id.clone())),
        ..parent
    };
    let (id, principal) = (session.id.clone(), session.to_principal());
    let made_by = session.session_of.clone();
    tokens.put_token(session).await?;
    // Revoking a token ends its sessions afterwards, so either this check or the revocation sees the other.
    if tokens.token(&hash).await?.is_none() {
        tokens.revoke_token(&principal.tenant, &id).await?;
        return Err(stale_link());
    }
    let actor = AuditActor::new(&principal, made_by.as_ref());
    audit(AuditEvent::SignedIn, Some(actor), id.as_str(), "of a browser");
    let cookie = cookie(&call, &secret.cookie, SESSION_LIFE)?;
    Ok(Reply::ok(&PageSession { page_secret: secret.page }).header(header::SET_COOKIE, cookie))
}

async fn ticket(call: NativeCall) -> Result<Reply> {
    let Some(origin) = only_origin(&call.headers) else {
        return Err(Error::new(
            Code::InvalidRequest,
            "a ticket is for a page: the request names no origin",
        )
        .hint("a program sends its token with the request for the WebSocket"));
    };
    // What a session may do is bound to its page, and a connection outlives it.
    if call.caller.is_page {
        return Err(Error::new(Code::Forbidden, "a browser's session gets no tickets")
            .hint("use a token: trilogue token create --label NAME"));
    }
    let (protocol, expires_at) = call.authenticator.issue_ticket(&call.caller, origin)?;
    Ok(Reply::json(StatusCode::CREATED, &Ticket { protocol, expires_at: expires_at.to_string() }))
}

async fn sign_out(call: NativeCall) -> Result<Reply> {
    let token = call.authenticator.token(&call.caller).await?;
    let Some(session) = token.filter(|token| token.session_of.is_some()) else {
        return Err(Error::new(Code::InvalidRequest, "the caller has no session")
            .hint("revoke a token with: trilogue token revoke ID"));
    };
    call.state.tokens.revoke_token(&session.tenant, &session.id).await?;
    call.audit(AuditEvent::SignedOut, session.id.as_str(), "of a browser");
    call.authenticator.forget(&session.hash);
    Ok(Reply::no_content().header(header::SET_COOKIE, cookie(&call, "", Duration::ZERO)?))
}

fn cookie(call: &NativeCall, secret: &str, life: Duration) -> Result<http::HeaderValue> {
    set_cookie(call.host(), secret, life, is_encrypted(call.state.public_url.as_deref()))
}

fn stale_link() -> Error {
    Error::new(Code::Unauthenticated, "the link is not known, was used or has expired")
        .hint("make another one with: trilogue ui")
}
