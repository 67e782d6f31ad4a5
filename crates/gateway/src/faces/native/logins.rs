//! Logins of programs on other machines: begun without a token, approved by a person who may make tokens, and collected once.

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Right};
use trilogue_wire::native::{
    LoginApproval, LoginBegin, LoginBegun, LoginCode, LoginSecret, LoginState, LoginView, Token,
    TokenCreate, TokenCreated,
};

use super::rows::token;
use super::tokens::{check_label, new_token, token_detail};
use super::{NativeCall, NativeRoute};
use crate::access::logins::{ApprovedToken, LOGIN_INTERVAL, login_ended};
use crate::core::audit::{AuditActor, AuditEvent, audit};
use crate::http::reply::Reply;
use crate::route::{Access, json_response, of};

/// The label of a login, and of its token, that names none.
const LABEL: &str = "login";

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(begin(call)));

pub(crate) const ROUTES: &[NativeRoute] = &[
    BASE.post("/api/v1/logins", |call| Box::pin(begin(call)))
        .access(Access::Public)
        .describe(
            "begin_login",
            "Begin to log in from another machine: a person approves the code on the server within ten minutes",
        )
        .request(of::<LoginBegin>)
        .answers(&[json_response(201, "The code, and the secret to collect the token with.", of::<LoginBegun>)])
        .errors(&[Code::Overloaded]),
    BASE.post("/api/v1/logins/collect", |call| Box::pin(collect(call)))
        .access(Access::Public)
        .describe("collect_login", "Collect the token of a login; the same one again for a minute")
        .request(of::<LoginSecret>)
        .answers(&[json_response(200, "The token, or that the login is not approved yet.", of::<LoginState>)]),
    BASE.post("/api/v1/logins/look-up", |call| Box::pin(look_up(call)))
        .access(Access::Right(Right::Admin))
        .for_people()
        .describe("look_up_login", "What asks for a token with a code, before the approval")
        .request(of::<LoginCode>)
        .answers(&[json_response(200, "The login.", of::<LoginView>)])
        .errors(&[Code::NotFound, Code::Overloaded]),
    BASE.post("/api/v1/logins/approve", |call| Box::pin(approve(call)))
        .access(Access::Right(Right::Admin))
        .new_sign_in()
        .describe("approve_login", "Make a token in the caller's tenant for the program with a code")
        .request(of::<LoginApproval>)
        .answers(&[json_response(201, "The token. Only the program gets its secret.", of::<Token>)])
        .errors(&[Code::NotFound, Code::Overloaded]),
];

async fn begin(call: NativeCall) -> Result<Reply> {
    let LoginBegin { label } = call.json()?;
    let label = label.filter(|label| !label.is_empty()).unwrap_or_else(|| LABEL.to_owned());
    check_label(&label)?;
    let address = call.agent_check.peer().map(|peer| peer.ip());
    let login = call.state.logins.begin(label, address, call.state.clock.now())?;
    Ok(Reply::json(
        StatusCode::CREATED,
        &LoginBegun {
            code: login.code,
            secret: login.secret,
            expires_at: login.expires_at.to_string(),
            interval_seconds: LOGIN_INTERVAL.as_secs(),
        },
    ))
}

async fn look_up(call: NativeCall) -> Result<Reply> {
    let LoginCode { code } = call.json()?;
    let from = call.agent_check.peer().map(|peer| peer.ip());
    let login = call.state.logins.view(&code, from, call.state.clock.now())?;
    Ok(Reply::ok(&LoginView {
        label: login.label,
        address: login.address.map(|address| address.to_string()),
        expires_at: login.expires_at.to_string(),
    }))
}

async fn approve(call: NativeCall) -> Result<Reply> {
    let LoginApproval { code, label, principal, rights, own, expires_at } = call.json()?;
    let from = call.agent_check.peer().map(|peer| peer.ip());
    let now = call.state.clock.now();
    let login = call.state.logins.view(&code, from, now)?;
    let label = label.filter(|label| !label.is_empty()).unwrap_or(login.label);
    let new = TokenCreate { label, principal, rights, own, expires_at };
    let (row, secret) = new_token(&call, new)?;
    let approved = token(&row);
    let token = ApprovedToken { row, secret, by: call.caller.clone() };
    call.state.logins.approve(&code, from, now, token)?;
    Ok(Reply::json(StatusCode::CREATED, &approved))
}

async fn collect(call: NativeCall) -> Result<Reply> {
    let LoginSecret { secret } = call.json()?;
    let logins = &call.state.logins;
    let Some(collected) = logins.collect(&secret, call.state.clock.now())? else {
        return Ok(Reply::ok(&LoginState { status: "pending".to_owned(), token: None }));
    };
    let ApprovedToken { row, secret: token_secret, by } = &*collected.token;
    // The token of the approval may have been revoked in between.
    if !call.authenticator.still_admits(by).await {
        logins.end(&secret);
        return Err(login_ended());
    }
    if collected.is_first {
        if let Err(error) = call.state.tokens.put_token(row.clone()).await {
            logins.end(&secret);
            return Err(error);
        }
        let actor = AuditActor::new(&by.principal, by.token.as_ref());
        let detail = format!("{}; of a login", token_detail(row));
        audit(AuditEvent::TokenCreated, Some(actor), row.id.as_str(), &detail);
    }
    let created = TokenCreated { token: token(row), secret: token_secret.clone() };
    Ok(Reply::ok(&LoginState { status: "approved".to_owned(), token: Some(created) }))
}
