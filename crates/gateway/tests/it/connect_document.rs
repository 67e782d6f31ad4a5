//! Validates every response against the protocol's official document.

use std::sync::LazyLock;

use http::Method;
use jsonschema::Validator;
use serde_json::{Value, json};
use trilogue_testkit::{Reply, specs};

/// Statuses that the document does not list for every operation, but any server may return.
const EVERYWHERE: [u16; 8] = [401, 403, 405, 413, 429, 500, 503, 507];

/// Statuses that the protocol's other document requires, or that are more specific than the official one allows.
const DEPARTURES: [(&str, &str, u16); 5] = [
    // A wait that times out.
    ("GET", "/runs/{run_id}/wait", 204),
    ("POST", "/runs/wait", 204),
    ("GET", "/threads/{thread_id}/runs/{run_id}/wait", 204),
    ("POST", "/threads/{thread_id}/runs/wait", 204),
    // The state of a busy thread cannot be changed.
    ("PATCH", "/threads/{thread_id}", 409),
];

struct Operation {
    method: String,
    path: Vec<String>,
    answers: Vec<(u16, Option<Validator>)>,
}

pub(crate) fn official() -> Option<&'static Value> {
    static DOCUMENT: LazyLock<Option<Value>> = LazyLock::new(|| {
        let file = specs::document("agent_connect/openapi-0.2.3.json")?;
        Some(serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap())
    });
    DOCUMENT.as_ref()
}

static OPERATIONS: LazyLock<Option<Vec<Operation>>> = LazyLock::new(|| official().map(operations));

fn operations(document: &Value) -> Vec<Operation> {
    let verbs = ["get", "post", "patch", "delete"];
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (verb, operation) in item.as_object().unwrap() {
            if !verbs.contains(&verb.as_str()) {
                continue;
            }
            let answers = operation["responses"].as_object().unwrap();
            all.push(Operation {
                method: verb.to_uppercase(),
                path: path.split('/').map(str::to_owned).collect(),
                answers: answers.iter().map(|(status, it)| answer(document, status, it)).collect(),
            });
        }
    }
    assert_eq!(all.len(), 30, "the document has 30 operations");
    all
}

fn answer(document: &Value, status: &str, answer: &Value) -> (u16, Option<Validator>) {
    let content = answer.get("content").and_then(|kinds| kinds.get("application/json"));
    let validator = content.map(|content| {
        let mut schema = json!({"allOf": [content["schema"]]});
        schema["components"] = document["components"].clone();
        jsonschema::validator_for(&schema).unwrap()
    });
    (status.parse().unwrap(), validator)
}

/// Validates a response against the document. Validates an error's body only if the mount returns errors as `strings`.
pub(crate) fn hold(method: &Method, path: &str, reply: &Reply, strings: bool) {
    let Some(operations) = OPERATIONS.as_ref() else { return };
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<&str> = path.split('/').collect();
    let fits = |operation: &&Operation| {
        operation.method == method.as_str()
            && operation.path.len() == segments.len()
            && operation
                .path
                .iter()
                .zip(&segments)
                .all(|(wanted, it)| wanted == it || (wanted.starts_with('{') && !it.is_empty()))
    };
    // A path without parameters takes precedence over one with parameters.
    let literal = |operation: &&Operation| {
        operation.path.iter().filter(|segment| segment.starts_with('{')).count()
    };
    let Some(operation) = operations.iter().filter(fits).min_by_key(literal) else { return };
    let status = reply.status;
    let what = || format!("{method} {path}: {status} {}", String::from_utf8_lossy(&reply.body));
    let Some((_, schema)) = operation.answers.iter().find(|(it, _)| *it == status) else {
        let place = operation.path.join("/");
        let departs = DEPARTURES.contains(&(method.as_str(), &place, status));
        assert!(departs || EVERYWHERE.contains(&status), "no such answer: {}", what());
        return;
    };
    if status >= 400 && !strings {
        return;
    }
    match schema {
        None => {}
        Some(schema) => {
            let body: Value =
                serde_json::from_slice(&reply.body).unwrap_or_else(|_| panic!("{}", what()));
            if let Some(error) = schema.iter_errors(&body).next() {
                panic!("{error} at {}: {}", error.instance_path(), what());
            }
        }
    }
    if status == 204 {
        assert!(reply.body.is_empty(), "{}", what());
    }
}

/// Asserts that an event of a stream is one of the document's.
pub(crate) fn hold_event(event: &Value) {
    static SCHEMA: LazyLock<Option<Validator>> = LazyLock::new(|| {
        let schema = json!({
            "$ref": "#/components/schemas/RunOutputStream",
            "components": official()?["components"],
        });
        Some(jsonschema::validator_for(&schema).unwrap())
    });
    if let Some(schema) = SCHEMA.as_ref()
        && let Some(error) = schema.iter_errors(event).next()
    {
        panic!("{error} at {}: {event}", error.instance_path());
    }
}
