//! Tells callers how to authenticate; no token is needed.

use serde_json::{Map, Value, json};
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Code};
use trilogue_mapping::connect as mapping;
use trilogue_wire::agent_connect as wire;

use super::{BASE, ConnectCall, ConnectRoute, look_up};
use crate::core::scheme::Scheme;
use crate::http::reply::Reply;
use crate::route::{Access, json_response, of};

pub(crate) const ROUTES: &[ConnectRoute] = &[
    BASE.at("/authentication", |call| Box::pin(async move { Ok(of_server(&call)) }))
        .access(Access::Public)
        .describe(
            "connect_get_authentication",
            "How callers show who they are; with valid credentials, also what these permit",
        )
        .answers(&[json_response(200, "The schemes.", of::<wire::Authentication>)]),
    BASE.at("/agents/{agent_id}/authentication", |call| Box::pin(of_agent(call)))
        .access(Access::Public)
        .describe(
            "connect_get_agent_authentication",
            "How callers of an agent show who they are; with valid credentials, also what \
             these permit",
        )
        .answers(&[json_response(200, "The schemes.", of::<wire::Authentication>)])
        .errors(&[Code::AgentNotFound]),
];

fn of_server(call: &ConnectCall) -> Reply {
    authentication_of(call, call.authenticator.own_schemes(), None)
}

/// Returns an agent's schemes to every caller, because a caller needs them before it has a token.
/// Without a valid token, an unknown id gets the schemes of most agents, so that the response does not reveal which ids exist.
async fn of_agent(call: ConnectCall) -> Result<Reply> {
    let card = match look_up::agent(&call, call.param("agent_id")).await {
        Ok(card) => card,
        Err(error) if error.code() == Code::Unauthenticated => return Ok(of_server(&call)),
        Err(error) => return Err(error),
    };
    let is_hidden = call.authenticator.hides(&call.caller, Some(&card.name));
    Ok(authentication_of(&call, schemes_of(&call, card), (!is_hidden).then_some(card)))
}

fn authentication_of(call: &ConnectCall, schemes: &[Scheme], card: Option<&AgentCard>) -> Reply {
    let named = objects(schemes).into_iter();
    let object =
        |value: &Value| wire::Object::new(wire::Json::from_value(value)).unwrap_or_default();
    let alternative = |scheme: &Scheme| {
        name(*scheme).map(|name| (name.to_owned(), Vec::new())).into_iter().collect()
    };
    Reply::ok(&wire::Authentication {
        agent_id: card.map(mapping::agent_id),
        required: !schemes.contains(&Scheme::None),
        security: schemes.iter().map(alternative).collect(),
        schemes: named.map(|(name, scheme)| (name, object(&scheme))).collect(),
        permissions: permissions(call, card),
    })
}

/// Returns the permissions of the request's credentials; none if the agent does not accept this scheme.
fn permissions(call: &ConnectCall, card: Option<&AgentCard>) -> Option<Vec<String>> {
    if !call.caller.is_known() {
        return None;
    }
    let authenticator = &call.authenticator;
    if card.is_some_and(|card| !authenticator.takes(&call.caller, &card.name)) {
        return Some(Vec::new());
    }
    Some(call.principal().rights.iter().map(|right| right.as_str().to_owned()).collect())
}

pub(super) fn schemes_of<'a>(call: &'a ConnectCall, card: &AgentCard) -> &'a [Scheme] {
    call.authenticator.schemes_of(&card.name)
}

/// Returns the schemes as alternative security requirements.
pub(super) fn security(schemes: &[Scheme]) -> Vec<Value> {
    let alternative = |scheme: &Scheme| match name(*scheme) {
        None => json!({}),
        Some(name) => json!({ name: [] }),
    };
    schemes.iter().map(alternative).collect()
}

pub(super) fn objects(schemes: &[Scheme]) -> Map<String, Value> {
    let named = |scheme: &Scheme| Some((name(*scheme)?.to_owned(), object(*scheme)));
    schemes.iter().filter_map(named).collect()
}

fn name(scheme: Scheme) -> Option<&'static str> {
    match scheme {
        Scheme::None => None,
        Scheme::ApiKey => Some("x-api-key"),
        Scheme::Basic => Some("basic"),
        Scheme::Bearer => Some("bearer"),
    }
}

fn object(scheme: Scheme) -> Value {
    match scheme {
        Scheme::None => Value::Null,
        Scheme::ApiKey => json!({ "type": "apiKey", "in": "header", "name": "x-api-key" }),
        Scheme::Basic => json!({
            "type": "http",
            "scheme": "basic",
            "description": "The password is the token; the user's name is not looked at.",
        }),
        Scheme::Bearer => json!({ "type": "http", "scheme": "bearer" }),
    }
}
