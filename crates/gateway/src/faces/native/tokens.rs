//! Tokens.

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, PrincipalId, Right, Rights, ShortId, TokenId};
use trilogue_mapping::native::token::read_right;
use trilogue_mapping::native::{escape_for_message, read_time};
use trilogue_store::rows::TokenRow;
use trilogue_wire::native::{List, Token, TokenCreate, TokenCreated};

use super::rows::token;
use super::short_ids::SHORT_ID;
use super::{NativeCall, NativeRoute};
use crate::access::secret::{hash_secret, new_secret};
use crate::core::audit::AuditEvent;
use crate::http::reply::Reply;
use crate::route::{Access, Verb, json_response, no_content, of};

const MAX_LABEL_BYTES: usize = 256;

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(list(call)))
    .path("/api/v1/tokens")
    .access(Access::Right(Right::Admin))
    .describe(
        "list_tokens",
        "The tokens of the caller's tenant, newest first; those of its principal where it \
             sees only its own",
    )
    .answers(&[json_response(
        200,
        "All tokens, on one page, without their secrets.",
        of::<List<Token>>,
    )])
    .query(&[SHORT_ID]);

pub(crate) const ROUTES: &[NativeRoute] = &[
    BASE,
    BASE.verb(Verb::Post)
        .handler(|call| Box::pin(create(call)))
        .new_sign_in()
        .describe("create_token", "Make a token in the caller's tenant")
        .query(&[])
        .request(of::<TokenCreate>)
        .answers(&[json_response(
            201,
            "The token with its secret, which is shown this once.",
            of::<TokenCreated>,
        )]),
    BASE.delete("/api/v1/tokens/{token_id}", |call| Box::pin(revoke(call)))
        .new_sign_in()
        .query(&[])
        .describe(
            "revoke_token",
            "Revoke a token: its requests are refused at once, its streams end within seconds",
        )
        .answers(&[no_content("It works no more.")])
        .errors(&[Code::NotFound]),
];

async fn list(call: NativeCall) -> Result<Reply> {
    let mut rows = visible_tokens(&call).await?;
    if let Some(text) = call.query(SHORT_ID.name) {
        let short = ShortId::parse(text);
        let is_whole = rows.iter().any(|row| row.id.as_str() == text);
        rows.retain(|row| match &short {
            Some(short) if !is_whole => short.matches(row.id.as_str()),
            _ => row.id.as_str() == text,
        });
    }
    Ok(Reply::ok(&List { items: rows.iter().map(token).collect(), next: None }))
}

/// Returns the tokens that the caller can see.
async fn visible_tokens(call: &NativeCall) -> Result<Vec<TokenRow>> {
    let scope = call.scope();
    let mut rows = call.state.tokens.tokens(&scope.tenant).await?;
    rows.retain(|row| scope.can_see(&row.tenant, &row.principal));
    Ok(rows)
}

async fn create(call: NativeCall) -> Result<Reply> {
    let (row, secret) = new_token(&call, call.json()?)?;
    let created = TokenCreated { token: token(&row), secret };
    let (id, detail) = (row.id.clone(), token_detail(&row));
    call.state.tokens.put_token(row).await?;
    call.audit(AuditEvent::TokenCreated, id.as_str(), &detail);
    Ok(Reply::json(StatusCode::CREATED, &created))
}

/// What the audit line of a new token says.
pub(super) fn token_detail(row: &TokenRow) -> String {
    let rights: Vec<_> = row.rights.iter().map(Right::as_str).collect();
    format!("for {}; rights {}; own {}", row.principal, rights.join(" "), row.own)
}

pub(super) fn check_label(label: &str) -> Result<()> {
    if label.len() <= MAX_LABEL_BYTES && !label.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::new(
        Code::InvalidRequest,
        format!("'label' is longer than {MAX_LABEL_BYTES} bytes or holds a control character"),
    ))
}

/// Makes a token that the caller may make, and its secret. It is not stored yet.
pub(super) fn new_token(call: &NativeCall, body: TokenCreate) -> Result<(TokenRow, String)> {
    check_label(&body.label)?;
    let now = call.state.clock.now();
    let expires_at = body.expires_at.map(|text| read_time(&text, "expires_at")).transpose()?;
    if expires_at.is_some_and(|end| end <= now) {
        return Err(Error::new(Code::InvalidRequest, "'expires_at' has passed"));
    }
    let principal = match body.principal.as_deref() {
        None => call.principal().id.clone(),
        Some(text) => PrincipalId::parse(text)?,
    };
    let rights: Rights = match body.rights {
        None => [Right::Read, Right::Run, Right::Answer].into_iter().collect(),
        Some(rights) => rights.into_iter().map(read_right).collect(),
    };
    // A caller that sees only its own data cannot create a token that sees more, or acts for others.
    let own = body.own || call.principal().own;
    if call.principal().own && principal != call.principal().id {
        return Err(Error::new(
            Code::Forbidden,
            "a token that sees only its own things makes none for another principal",
        ));
    }
    if own && rights.has(Right::Server) {
        return Err(Error::new(
            Code::InvalidRequest,
            "a token that sees only its own things cannot have the right 'server'",
        ));
    }
    // Rights cannot grow: a token created with a leaked one has at most its rights.
    if let Some(right) = rights.difference(call.principal().rights).next() {
        return Err(Error::new(
            Code::Forbidden,
            format!("this token lacks the right '{}' and cannot give it", right.as_str()),
        )
        .hint("name other rights with --right, or use a token that has this one"));
    }
    let secret = new_secret()?;
    let row = TokenRow {
        id: TokenId::generate(),
        label: body.label,
        hash: hash_secret(secret.as_bytes()),
        tenant: call.principal().tenant.clone(),
        principal,
        rights,
        own,
        created_at: now,
        expires_at,
        session_of: None,
    };
    Ok((row, secret))
}

async fn revoke(call: NativeCall) -> Result<Reply> {
    call.require_new_sign_in().await?;
    let text = call.param("token_id");
    let missing =
        || Error::new(Code::NotFound, format!("token '{}' not found", escape_for_message(text)));
    let id = TokenId::parse(text).map_err(|_| missing())?;
    let caller = call.principal();
    let visible = visible_tokens(&call).await?;
    let row = visible.iter().find(|row| row.id == id).ok_or_else(missing)?;
    // An administrator of a tenant cannot lock out the operator of the server.
    if row.rights.has(Right::Server) {
        caller.require(Right::Server)?;
    }
    let row = call.state.tokens.revoke_token(&caller.tenant, &id).await?.ok_or_else(missing)?;
    // Before the token is deleted: it may be the caller's own.
    let detail = format!("of {}", row.principal);
    call.audit(AuditEvent::TokenRevoked, id.as_str(), &detail);
    call.authenticator.forget(&row.hash);
    // A session that begins meanwhile ends by itself, because it checks its token again.
    for session in call.state.tokens.tokens(&caller.tenant).await? {
        if session.session_of.as_ref() == Some(&id) {
            call.state.tokens.revoke_token(&caller.tenant, &session.id).await?;
            call.authenticator.forget(&session.hash);
        }
    }
    Ok(Reply::no_content())
}
