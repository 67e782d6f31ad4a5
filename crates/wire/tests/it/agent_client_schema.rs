//! Checks our output against the official schema, and our table of methods against the schema's methods.

use std::collections::BTreeSet;
use std::path::Path;

use jsonschema::Validator;
use serde_json::{Value, json};
use trilogue_wire::agent_client::{
    AGENT_CAPABILITIES, AgentNotification, AgentRequest, CLIENT_CAPABILITIES, ClientNotification,
    ClientRequest, Kind, METHODS, Refusal, Rules, Side, Stability, UPDATES, message_id_schema,
};
use trilogue_wire::jsonrpc::{Encoder, Id, Incoming, parse};

use super::agent_client_samples::all;
use crate::specs;

/// Returns the schema with everything, stable or not.
pub(crate) fn unstable() -> Option<Value> {
    document("agent_client/v1.20.unstable.schema.json")
}

fn stable() -> Option<Value> {
    document("agent_client/v1.20.schema.json")
}

fn document(name: &str) -> Option<Value> {
    let path = specs::document(name)?;
    Some(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
}

/// Returns a validator for one of a document's definitions. The document itself accepts any value.
pub(crate) fn definition(document: &Value, name: &str) -> Validator {
    assert!(document["$defs"][name].is_object(), "no definition {name}");
    let root = json!({ "$ref": format!("#/$defs/{name}"), "$defs": document["$defs"] });
    jsonschema::options().should_validate_formats(true).build(&root).unwrap()
}

fn ids() -> Value {
    serde_json::from_str(&message_id_schema()).unwrap()
}

#[test]
fn everything_we_write_keeps_the_official_schema_and_comes_back() {
    let (stable, unstable) = (stable(), unstable());
    for sample in all() {
        assert!(sample.comes_back, "{} {}", sample.name, sample.json);
        let of_stable = stable.as_ref().filter(|_| sample.stability == Stability::Stable);
        for official in unstable.iter().chain(of_stable) {
            let kept = definition(official, sample.name).validate(&sample.json);
            assert!(kept.is_ok(), "{}: {} in {}", sample.name, kept.unwrap_err(), sample.json);
        }
    }
}

#[test]
fn every_method_of_the_schema_is_in_the_table_and_has_samples() {
    let Some(official) = stable() else { return };
    let samples = all();
    let (mut asked, mut answered) = (BTreeSet::new(), BTreeSet::new());
    for (name, schema) in official["$defs"].as_object().unwrap() {
        let Some(method) = schema["x-method"].as_str() else { continue };
        assert!(samples.iter().any(|sample| sample.name == name), "no sample of {name}");
        let side = match schema["x-side"].as_str().unwrap() {
            "agent" => Side::Agent,
            "client" => Side::Client,
            "protocol" => Side::Both,
            other => panic!("{other}"),
        };
        let kind = match name {
            name if name.ends_with("Response") => {
                answered.insert(method);
                continue;
            }
            name if name.ends_with("Notification") => Kind::Notification,
            _ => Kind::Request,
        };
        let ours = trilogue_wire::agent_client::method(method).unwrap();
        assert_eq!((ours.to, ours.kind), (side, kind), "{method}");
        asked.insert(method);
    }
    let of_schema = || METHODS.iter().filter(|method| method.stability == Stability::Stable);
    assert_eq!(asked, of_schema().map(|method| method.name).collect());
    let requests = of_schema().filter(|method| method.kind == Kind::Request);
    assert_eq!(answered, requests.map(|method| method.name).collect());
}

/// Returns the kinds of updates that a schema defines.
fn kinds(document: &Value) -> BTreeSet<&str> {
    let variants = document["$defs"]["SessionUpdate"]["oneOf"].as_array();
    let variants = variants.or_else(|| document["$defs"]["SessionUpdate"]["anyOf"].as_array());
    let kinds = variants.unwrap().iter().map(|it| &it["properties"]["sessionUpdate"]["const"]);
    kinds.filter_map(Value::as_str).collect()
}

/// The updates of version 1 that the types of the draft of version 2 refuse in at least one form.
const UNREAD_BY_DRAFT: [&str; 6] = [
    "agent_message_chunk",
    "agent_thought_chunk",
    "available_commands_update",
    "compaction_update",
    "config_option_update",
    "tool_call_update",
];

#[test]
fn the_table_has_the_updates_and_capabilities_of_the_schema() {
    for (document, is_stable) in [(stable(), true), (unstable(), false)] {
        let Some(document) = document else { return };
        let is_in = |stability| !is_stable || stability == Stability::Stable;
        let ours = UPDATES.iter().filter(|kind| is_in(kind.stability)).map(|kind| kind.name);
        assert_eq!(kinds(&document), ours.collect());
        for (root, table) in
            [("ClientCapabilities", CLIENT_CAPABILITIES), ("AgentCapabilities", AGENT_CAPABILITIES)]
        {
            for row in table.iter().filter(|row| is_in(row.stability)) {
                let mut object = &document["$defs"][root];
                for (place, name) in row.path.iter().enumerate() {
                    let member = &object["properties"][name];
                    assert!(member.is_object(), "{root} {:?}", row.path);
                    if place + 1 < row.path.len() {
                        let named = [&member["allOf"][0], &member["anyOf"][0]];
                        let name = named.iter().find_map(|it| it["$ref"].as_str()).unwrap();
                        object = document.pointer(name.trim_start_matches('#')).unwrap();
                    }
                }
            }
        }
    }
}

#[test]
fn the_draft_of_version_2_reads_the_updates_that_it_kept() {
    let Some(draft) = document("agent_client/v2.schema.json") else { return };
    let reads = definition(&draft, "UpdateSessionNotification");
    let updates = all().into_iter().filter(|sample| sample.name == "SessionNotification");
    let unread: BTreeSet<_> = updates
        .filter(|sample| !reads.is_valid(&sample.json))
        .map(|sample| sample.json["update"]["sessionUpdate"].as_str().unwrap().to_owned())
        .collect();
    // The page about the draft names them.
    assert_eq!(unread, BTreeSet::from(UNREAD_BY_DRAFT.map(str::to_owned)));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/client-draft.md");
    let page = std::fs::read_to_string(page).unwrap();
    for kind in UNREAD_BY_DRAFT {
        assert!(page.contains(&format!("`{kind}`")), "{kind}");
    }
}

/// Writes a call as a line, parses the line, and reads the call by its method.
fn through_a_line(method: &'static str, params: &Value) -> Result<(String, Value), Refusal> {
    let mut lines = Encoder::new();
    match trilogue_wire::agent_client::method(method).unwrap().kind {
        Kind::Request => lines.request(&Id::text("1"), method, params),
        Kind::Notification => lines.notification(method, params),
    };
    let shown = |method: &str, params: Value| (method.to_owned(), params);
    match parse(lines.as_bytes()).unwrap() {
        Incoming::Request(call) => AgentRequest::read(&call.method, call.params, Rules::Strict)
            .map(|read| shown(read.method(), serde_json::to_value(&read).unwrap()))
            .or_else(|_| {
                let read = ClientRequest::read(&call.method, call.params, Rules::Strict)?;
                Ok(shown(read.method(), serde_json::to_value(&read).unwrap()))
            }),
        Incoming::Notification(call) => {
            AgentNotification::read(&call.method, call.params, Rules::Strict)
                .map(|read| shown(read.method(), serde_json::to_value(&read).unwrap()))
                .or_else(|_| {
                    let read = ClientNotification::read(&call.method, call.params, Rules::Strict)?;
                    Ok(shown(read.method(), serde_json::to_value(&read).unwrap()))
                })
        }
        Incoming::Response(_) => Err(Refusal::NoSuchMethod(method.to_owned())),
    }
}

#[test]
fn every_call_comes_through_a_line() {
    let Some(official) = unstable() else { return };
    let mut methods = BTreeSet::new();
    for sample in all() {
        let method = official["$defs"][sample.name]["x-method"].as_str().unwrap();
        if sample.name.ends_with("Response") {
            continue;
        }
        let known = trilogue_wire::agent_client::method(method).unwrap();
        let expected = (method.to_owned(), sample.json.clone());
        assert_eq!(through_a_line(known.name, &sample.json), Ok(expected));
        methods.insert(known.name);
    }
    assert_eq!(methods.len(), METHODS.len());
}

#[test]
fn the_official_schema_can_refuse() {
    let Some(official) = stable() else { return };
    let refuses =
        |name, value: Value| assert!(!definition(&official, name).is_valid(&value), "{value}");
    refuses("PromptResponse", json!({ "stopReason": "error" }));
    refuses("NewSessionRequest", json!({ "cwd": "/a" }));
    refuses("SessionUpdate", json!({ "sessionUpdate": "current_mode_update", "modeId": "a" }));
    refuses("ContentBlock", json!({ "type": "video" }));
}

#[test]
fn the_schema_of_the_message_ids_is_the_one_in_the_documents() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference/schema/agent-client-message-ids.json");
    let written = std::fs::read_to_string(path).unwrap();
    assert_eq!(written, message_id_schema(), "run `cargo xtask tidy --bless`");
    let string = |name: &str, key: &str| {
        let schema = &ids()["$defs"][name];
        assert_eq!(schema["properties"], json!({ key: { "type": "string" } }), "{name}");
        assert_eq!(schema["required"], json!([]), "{name}");
    };
    string("ContentChunk", "messageId");
    string("PromptRequest", "messageId");
    string("PromptResponse", "userMessageId");
}

#[test]
fn what_carries_a_message_id_keeps_the_schema_of_the_message_ids() {
    let ids = ids();
    let mut seen = 0;
    for sample in all() {
        let (name, value) = match sample.name {
            "SessionNotification" if sample.json["update"].get("content").is_some() => {
                ("ContentChunk", &sample.json["update"])
            }
            name @ ("PromptRequest" | "PromptResponse") => (name, &sample.json),
            _ => continue,
        };
        seen += 1;
        assert!(definition(&ids, name).is_valid(value), "{value}");
    }
    assert!(seen > 10);
    for (name, key) in [
        ("ContentChunk", "messageId"),
        ("PromptRequest", "messageId"),
        ("PromptResponse", "userMessageId"),
    ] {
        let schema = definition(&ids, name);
        assert!(schema.is_valid(&json!({})));
        assert!(!schema.is_valid(&json!({ key: 1 })) && !schema.is_valid(&json!({ key: null })));
    }
}

/// Returns the documented methods of a section: the name of each, and the side that receives it.
fn documented_methods(section: &str) -> BTreeSet<(String, Side)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/client-differences.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = page.split(section).nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.trim_end_matches('`').to_owned();
        let side = match cells.next()? {
            "agent" => Side::Agent,
            "client" => Side::Client,
            "both" => Side::Both,
            // The row is then missing, and the comparison fails.
            _ => return None,
        };
        Some((name, side))
    });
    rows.collect()
}

#[test]
fn the_documented_methods_are_those_of_the_schema() {
    let ours = |stability| {
        let ours = METHODS.iter().filter(move |method| method.stability == stability);
        ours.map(|method| (method.name.to_owned(), method.to)).collect::<BTreeSet<_>>()
    };
    let documented = documented_methods("## Methods");
    assert_eq!(documented, ours(Stability::Stable));
    assert_eq!(documented_methods("## Unstable methods"), ours(Stability::Unstable));
    let Some(official) = stable() else { return };
    let stable = official["$defs"].as_object().unwrap().values().filter_map(|schema| {
        let side = match schema["x-side"].as_str()? {
            "agent" => Side::Agent,
            "client" => Side::Client,
            _ => Side::Both,
        };
        Some((schema["x-method"].as_str()?.to_owned(), side))
    });
    assert_eq!(documented, stable.collect());
}
