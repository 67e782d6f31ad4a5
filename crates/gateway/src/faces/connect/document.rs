//! The OpenAPI documents of this face: its own, and one for each agent.

use std::sync::OnceLock;

use http::StatusCode;
use serde_json::{Value, json};
use trilogue_domain::Code;
use trilogue_domain::error::Result;
use trilogue_mapping::connect::{self as mapping, Security};
use trilogue_wire::agent_connect as wire;

use super::{BASE, ConnectCall, ConnectRoute, authentication, look_up};
use crate::faces::common::openapi::{self, Failures};
use crate::http::reply::Reply;
use crate::route::{Access, json_response, of};

const DOCUMENT: ConnectRoute = BASE
    .at("/openapi.json", |call| Box::pin(async move { Ok(of_face(&call)) }))
    .access(Access::Public)
    .describe("connect_get_openapi", "This document")
    .answers(&[json_response(200, "An OpenAPI document.", of::<Value>)]);

pub(crate) const ROUTES: &[ConnectRoute] = &[
    DOCUMENT,
    DOCUMENT
        .at("/agents/{agent_id}/openapi", |call| Box::pin(of_agent(call)))
        .describe(
            "connect_get_agent_openapi",
            "This document for one agent: its schemas in their places, and only what it does",
        )
        .errors(&[Code::AgentNotFound]),
];

pub(super) fn of_face(call: &ConnectCall) -> Reply {
    let schemes = call.authenticator.own_schemes();
    let mut document = document_with_address(call);
    document["components"]["securitySchemes"] = Value::Object(authentication::objects(schemes));
    document["security"] = Value::Array(authentication::security(schemes));
    shared(call, &document)
}

async fn of_agent(call: ConnectCall) -> Result<Reply> {
    let card = look_up::public_agent(&call, call.param("agent_id")).await?;
    let schemes = authentication::schemes_of(&call, card);
    let security = Security {
        schemes: Value::Object(authentication::objects(schemes)),
        requirements: Value::Array(authentication::security(schemes)),
    };
    let card = call.state.runtime.visible_card(card);
    let document = mapping::openapi(document_with_address(&call), &card, &security);
    Ok(shared(&call, &document))
}

fn shared(call: &ConnectCall, document: &Value) -> Reply {
    let document = document.to_string().into_bytes();
    Reply::json_bytes(StatusCode::OK, call.state.common.documents.share(document))
}

/// Returns the document with the address by which this client reaches the mount.
fn document_with_address(call: &ConnectCall) -> Value {
    static BASE: OnceLock<Value> = OnceLock::new();
    let mut document = BASE.get_or_init(base).clone();
    document["servers"] = json!([{ "url": call.state.place.base_for(call) }]);
    document
}

/// Returns the part of the document that depends only on the route table.
fn base() -> Value {
    let mut generator = openapi::generator();
    let failures = Failures {
        schema: generator.subschema_for::<wire::ErrorBody>(),
        kind: "application/json",
        status: |code| mapping::of_code(code).http_status,
        code: |code| mapping::of_code(code).code,
    };
    // No response names the schemas of streams, so add them here.
    let _streams = generator.subschema_for::<wire::RunOutputStream>();
    let paths = openapi::paths(&super::routes(), &mut generator, &failures);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Agent Connect Protocol",
            "version": wire::SPEC_VERSION,
            "description": "Agents of this server, as the Agent Connect Protocol has them, with the additions of this server.",
        },
        "paths": paths,
        "components": { "schemas": generator.take_definitions(true) },
    })
}
