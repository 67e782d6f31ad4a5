//! The OpenAPI documents of the protocol and of its agents.

use http::Method;
use serde_json::Value;

use crate::connect::{BASE, Face};
use crate::connect_document::official;
use crate::rig::text;

/// Asserts that every reference of a document resolves.
fn check_references(document: &Value, at: &Value) {
    match at {
        Value::Object(members) => {
            for (key, value) in members {
                if key == "$ref"
                    && let Some(to) = value.as_str()
                {
                    let place = to.strip_prefix('#').unwrap_or_else(|| panic!("{to} leads out"));
                    assert!(document.pointer(place).is_some(), "{to} leads nowhere");
                }
                check_references(document, value);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| check_references(document, item)),
        _ => {}
    }
}

async fn document(face: &Face, path: &str) -> Value {
    // The protocol's own document is public; those of agents need a token.
    let reader = if path.contains("/agents/") { face.rig.alice() } else { face.rig.stranger() };
    let reply = face.send_as(&reader, Method::GET, path, &Value::Null).await;
    assert_eq!(reply.status, 200, "{path}");
    let document = reply.json();
    assert!(text(&document, "/servers/0/url").ends_with(BASE));
    check_references(&document, &document);
    document
}

#[tokio::test]
async fn every_operation_of_the_official_document_is_there() {
    let face = Face::start().await;
    let ours = document(&face, "/openapi.json").await;
    let Some(official) = official() else { return };
    let (mut operations, verbs) = (0, ["get", "post", "patch", "delete"]);
    for (path, item) in official["paths"].as_object().unwrap() {
        for verb in item.as_object().unwrap().keys().filter(|it| verbs.contains(&it.as_str())) {
            operations += 1;
            assert!(ours["paths"][path][verb].is_object(), "{verb} {path}");
        }
    }
    assert_eq!(operations, 30);
    assert_eq!(ours["components"]["securitySchemes"]["x-api-key"]["name"], "x-api-key");
}

#[tokio::test]
async fn an_agents_document_has_its_schemas_and_what_it_does() {
    let face = Face::start().await;
    let actor = document(&face, "/agents/actor/openapi").await;
    let schemas = &actor["components"]["schemas"];
    assert_eq!(schemas["InputSchema"]["required"][0], "do");
    assert_eq!(schemas["OutputSchema"]["required"][0], "message");
    assert!(actor["paths"]["/threads"].is_object());
    assert!(actor["paths"]["/runs/{run_id}"]["post"].is_object());
    assert!(schemas["RunCreate"]["properties"]["webhook"].is_object());
    assert_eq!(text(&actor, "/info/title"), "org.test.actor");
    let plain = document(&face, "/agents/plain/openapi").await;
    assert!(plain["paths"].get("/threads").is_none());
    assert!(plain["paths"].get("/runs/stream").is_none());
    assert!(plain["paths"]["/runs/{run_id}"].get("post").is_none());
    let request = &plain["components"]["schemas"]["RunCreate"]["properties"];
    for member in ["webhook", "callback", "stream_mode", "configuration_id"] {
        assert!(request.get(member).is_none(), "{member}");
    }
    assert_eq!(request["agent_id"]["default"], face.get_ok("/agents/plain").await["agent_id"]);
}
