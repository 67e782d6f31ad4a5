//! The OpenAPI document, and the shapes of refusals.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::rig::Rig;

#[test]
fn the_document_is_the_checked_in_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi/native.json");
    let document = trilogue_gateway::openapi_document();
    if std::env::var_os("TRILOGUE_BLESS").is_some() {
        std::fs::write(path, &document).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == document,
        "docs/reference/openapi/native.json is old: run the test with TRILOGUE_BLESS=1"
    );
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    fn check(node: &Value, document: &Value) {
        match node {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let target = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(target).is_some(), "{reference}");
                }
                members.values().for_each(|value| check(value, document));
            }
            Value::Array(items) => items.iter().for_each(|item| check(item, document)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_str(&trilogue_gateway::openapi_document()).unwrap();
    check(&document, &document);
    let mut seen = std::collections::HashSet::new();
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            assert!(seen.insert(operation["operationId"].as_str().unwrap().to_owned()));
            assert!(!operation["summary"].as_str().unwrap().is_empty());
        }
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for (member, about) in schema["properties"].as_object().into_iter().flatten() {
            let documented = about.get("description").is_some() || about.get("const").is_some();
            assert!(documented, "{name}.{member} has no description");
        }
    }
}

#[tokio::test]
async fn what_is_not_there_answers_in_one_shape() {
    let rig = Rig::start().await;
    for (method, path, status, code) in [
        (Method::GET, "/", 404, "not_found"),
        (Method::GET, "/api/v1/", 404, "not_found"),
        (Method::GET, "/api/v1/threads/", 404, "not_found"),
        (Method::GET, "/api/v1//threads", 404, "not_found"),
        (Method::GET, "/api/v2/threads", 404, "not_found"),
        (Method::PUT, "/api/v1/threads", 405, "method_not_allowed"),
        (Method::OPTIONS, "/api/v1/threads", 405, "method_not_allowed"),
        (Method::POST, "/healthz", 405, "method_not_allowed"),
        (Method::GET, "/api/v1/agents/nobody", 404, "agent_not_found"),
        (Method::GET, "/api/v1/agents/a%20b", 404, "agent_not_found"),
        (Method::GET, "/api/v1/threads/%00", 404, "thread_not_found"),
        (Method::GET, "/api/v1/threads/%ff/events", 404, "thread_not_found"),
        (Method::GET, "/api/v1/runs/x?limit=3", 400, "invalid_request"),
        (Method::GET, "/api/v1/runs?limit=0", 400, "invalid_request"),
        (Method::GET, "/api/v1/runs?after=x", 400, "invalid_cursor"),
        (Method::GET, "/api/v1/runs?status=gone", 400, "invalid_request"),
    ] {
        let reply = rig.alice().send(method.clone(), path, &[], Bytes::new()).await.unwrap();
        let problem = reply.json();
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{method} {path}");
        assert_eq!(problem["type"], format!("urn:trilogue:error:{code}"));
        assert_eq!(problem["status"], status);
        assert_eq!(reply.headers.contains_key("allow"), status == 405, "{path}");
        assert!(!problem["detail"].as_str().unwrap().chars().any(char::is_control));
    }
    let reply = rig.alice().send(Method::PUT, "/api/v1/threads", &[], Bytes::new()).await.unwrap();
    assert_eq!(reply.headers["allow"], "POST, GET");
    let head = rig.alice().send(Method::HEAD, "/api/v1/agents", &[], Bytes::new()).await.unwrap();
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[tokio::test]
async fn a_body_that_is_wrong_says_where() {
    let rig = Rig::start().await;
    for (body, status, code, said) in [
        ("{\"agent\":\n x}", 400, "invalid_json", "line 2 column 2"),
        ("{\"agent\": \"puppet\"", 400, "invalid_json", "line 1 column 18"),
        ("[]", 400, "invalid_request", "line 1 column"),
        ("{}", 400, "invalid_request", "missing field `agent`"),
        (
            r#"{"agent":"puppet","input":"x","thread":"t"}"#,
            400,
            "invalid_request",
            "unknown field `thread`",
        ),
        (
            r#"{"agent":"puppet","input":"x","mode":"later"}"#,
            400,
            "invalid_request",
            "unknown variant `later`",
        ),
        (r#"{"agent":"puppet","input":[]}"#, 400, "invalid_request", "no messages"),
        (
            r#"{"agent":"puppet","input":[{"parts":[{"content":"x","content_url":"y"}]}]}"#,
            400,
            "invalid_request",
            "both",
        ),
        (
            r#"{"agent":"puppet","input":[{"role":"system","parts":[]}]}"#,
            400,
            "invalid_request",
            "unknown role",
        ),
        (
            r#"{"agent":"puppet","input":[{"parts":[{"content":"?","content_encoding":"base64"}]}]}"#,
            400,
            "invalid_request",
            "base64",
        ),
        (
            r#"{"agent":"puppet","input":[{"parts":[{"content_type":"text"}]}]}"#,
            400,
            "invalid_request",
            "MIME",
        ),
        (
            r#"{"agent":"puppet","input":"x","metadata":[]}"#,
            400,
            "invalid_request",
            "'metadata' is not an object",
        ),
        (
            r#"{"agent":"puppet","input":"x","not_before":"soon"}"#,
            400,
            "invalid_request",
            "invalid time",
        ),
        (r#"{"agent":"puppet","input":"x","id":""}"#, 400, "invalid_id", "empty"),
        (r#"{"agent":"nobody","input":"x"}"#, 404, "agent_not_found", "nobody"),
        (r#"{"agent":"puppet","input":"x","thread_id":"none"}"#, 404, "thread_not_found", "none"),
    ] {
        let client = rig.alice();
        let send =
            client.send(Method::POST, "/api/v1/runs", &[], Bytes::from_static(body.as_bytes()));
        let reply = send.await.unwrap();
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (status, code),
            "{body}: {}",
            reply.json()
        );
        assert!(
            reply.json()["detail"].as_str().unwrap().contains(said),
            "{body}: {}",
            reply.json()
        );
    }
    let mut deep = json!(0);
    for _ in 0..100 {
        deep = json!({ "a": deep });
    }
    let reply =
        rig.alice().post("/api/v1/runs", &json!({"agent": "puppet", "input": deep})).await.unwrap();
    assert_eq!(reply.code(), "json_too_deep");
}
