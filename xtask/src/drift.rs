//! Compares what is served of the Agent Client Protocol with an official schema of it.
//!
//! `scripts/drift` gets the newest schemas. Differences that are known have a reason in a table here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// The reasons of several differences.
const PROPOSED: &str =
    "it is a proposal in the unstable schema of 1.20, which the npm package does not have";
const COMPOSED: &str = "the schema composes the object of several others";
const PROXIES: &str = "the server is no proxy between a client and an agent";

/// Differences that are known: the line without its package, and the reason.
const KNOWN: &[(&str, &str)] = &[
    ("method `mcp/message` is not served", "tool servers of clients do not reach agents"),
    ("method `auth/status` is not served", "it is passed on as an unknown method"),
    ("method `auth/status_update` is not served", "it is passed on as an unknown method"),
    ("method `providers/list` is not served", "it is passed on as an unknown method"),
    ("method `providers/set` is not served", "it is passed on as an unknown method"),
    ("method `providers/disable` is not served", "it is passed on as an unknown method"),
    (
        "capability `ClientCapabilities.session.cursors` is not served",
        "agents get no cursors of clients; the server declares its own",
    ),
    (
        "capability `ClientCapabilities.auth.terminal` is not served",
        "an agent does not run in a client's terminal",
    ),
    (
        "capability `AgentCapabilities.mcpCapabilities.acp` is not served",
        "tool servers of clients do not reach agents",
    ),
    ("member `AgentCapabilities.providers` is not read", "it is passed on unread"),
    ("member `AgentAuthCapabilities.status` is not read", "it is passed on unread"),
    ("member `McpCapabilities.acp` is not read", "tool servers of clients do not reach agents"),
    ("member `PromptResponse.usage` is not read", "it is passed on unread"),
    (
        "member `ContentChunk.messageId` is not official",
        "ids of messages were proposed for the protocol",
    ),
    (
        "member `PromptRequest.messageId` is not official",
        "ids of messages were proposed for the protocol",
    ),
    (
        "member `PromptResponse.userMessageId` is not official",
        "ids of messages were proposed for the protocol",
    ),
    ("capability `AgentCapabilities.sessionCapabilities.options` is not official", PROPOSED),
    ("capability `ClientCapabilities.session.promptSuggestions` is not official", PROPOSED),
    ("member `ClientSessionCapabilities.cursors` is not official", PROPOSED),
    ("member `ClientSessionCapabilities.promptSuggestions` is not official", PROPOSED),
    ("member `ForkSessionRequest.configOptions` is not official", PROPOSED),
    ("member `ForkSessionRequest.cursorId` is not official", PROPOSED),
    ("member `LoadSessionRequest.configOptions` is not official", PROPOSED),
    ("member `NewSessionRequest.configOptions` is not official", PROPOSED),
    ("member `PlanMarkdown.path` is not official", PROPOSED),
    ("member `ResumeSessionRequest.configOptions` is not official", PROPOSED),
    ("member `SessionCapabilities.options` is not official", PROPOSED),
    ("method `session/options` is not official", PROPOSED),
    ("update `cursor_update` is not official", PROPOSED),
    ("update `prompt_suggestions_update` is not official", PROPOSED),
    ("member `SessionConfigBoolean.category` is not official", COMPOSED),
    ("member `SessionConfigBoolean.description` is not official", COMPOSED),
    ("member `SessionConfigBoolean.id` is not official", COMPOSED),
    ("member `SessionConfigBoolean.name` is not official", COMPOSED),
    ("member `SessionConfigSelect.category` is not official", COMPOSED),
    ("member `SessionConfigSelect.description` is not official", COMPOSED),
    ("member `SessionConfigSelect.id` is not official", COMPOSED),
    ("member `SessionConfigSelect.name` is not official", COMPOSED),
    ("member `SetSessionConfigOptionRequest.type` is not official", COMPOSED),
    ("member `SetSessionConfigOptionRequest.value` is not official", COMPOSED),
    ("method `proxy/initialize` is not served", PROXIES),
    ("method `proxy/successor` is not served", PROXIES),
];

/// The parts of a protocol that are compared.
#[derive(Default, PartialEq, Eq, Debug)]
struct Parts {
    /// Methods, and the side that receives each.
    methods: BTreeMap<String, String>,
    updates: BTreeSet<String>,
    capabilities: BTreeSet<String>,
    /// The members of each object.
    members: BTreeMap<String, BTreeSet<String>>,
}

/// Compares the served parts in `root` with the schemas in two files: the stable one, and the one with everything. Prints each difference that is not known.
/// Returns `true` if every difference is known.
pub(crate) fn run(root: &Path, package: &str, stable: &str, unstable: &str) -> Result<bool> {
    let read = |path: &Path| -> Result<Value> {
        let text = std::fs::read(path).with_context(|| format!("{}", path.display()))?;
        Ok(serde_json::from_slice(&text)?)
    };
    let served = read(&root.join("docs/reference/schema/agent-client-served.json"))?;
    let (stable, unstable) = (read(Path::new(stable))?, read(Path::new(unstable))?);
    let found = differences(&served, &stable, &unstable);
    let news: Vec<_> = found.iter().filter(|line| reason(line).is_none()).collect();
    for line in &news {
        crate::say(&format!("{package}: {line}"));
    }
    let known = found.len() - news.len();
    crate::say(&format!("{package}: {} new differences, {known} known", news.len()));
    Ok(news.is_empty())
}

fn reason(line: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(known, _)| *known == line).map(|(_, reason)| *reason)
}

fn differences(served: &Value, stable: &Value, unstable: &Value) -> Vec<String> {
    let (ours, stable, all) =
        (Parts::served(served), Parts::official(stable), Parts::official(unstable));
    let mut found = Vec::new();
    let is_known_method =
        |name: &String| all.methods.contains_key(name) || stable.methods.contains_key(name);
    for (name, side) in all.methods.iter().chain(&stable.methods) {
        match ours.methods.get(name) {
            None => found.push(format!("method `{name}` is not served")),
            Some(own) if own != side => {
                found.push(format!("method `{name}` goes to the {side}, not to the {own}"));
            }
            Some(_) => {}
        }
    }
    let gone = ours.methods.keys().filter(|name| !is_known_method(name));
    found.extend(gone.map(|name| format!("method `{name}` is not official")));
    for (word, own, stable, all) in [
        ("update", &ours.updates, &stable.updates, &all.updates),
        ("capability", &ours.capabilities, &stable.capabilities, &all.capabilities),
    ] {
        let official: BTreeSet<_> = stable.union(all).collect();
        let missing = official.iter().filter(|name| !own.contains(**name));
        found.extend(missing.map(|name| format!("{word} `{name}` is not served")));
        let gone = own.iter().filter(|name| !official.contains(name));
        found.extend(gone.map(|name| format!("{word} `{name}` is not official")));
    }
    for (object, own) in &ours.members {
        let none = BTreeSet::new();
        let (in_stable, in_all) = (stable.members.get(object), all.members.get(object));
        if in_stable.or(in_all).is_none() {
            continue;
        }
        let official: BTreeSet<_> =
            in_stable.unwrap_or(&none).union(in_all.unwrap_or(&none)).collect();
        let missing = official.iter().filter(|name| !own.contains(**name));
        found.extend(missing.map(|name| format!("member `{object}.{name}` is not read")));
        let gone = own.iter().filter(|name| !official.contains(name));
        found.extend(gone.map(|name| format!("member `{object}.{name}` is not official")));
    }
    found.sort();
    found.dedup();
    found
}

// === impl Parts ===

impl Parts {
    fn served(document: &Value) -> Self {
        let keys = |value: &Value| -> BTreeSet<String> {
            value.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
        };
        let methods = document["methods"].as_object().into_iter().flatten();
        let members = document["members"].as_object().into_iter().flatten();
        let of_side = |side: &str| {
            let paths = keys(&document["capabilities"][side]);
            paths.into_iter().map(|path| format!("{side}.{path}")).collect::<Vec<_>>()
        };
        let sides = ["AgentCapabilities", "ClientCapabilities"];
        Self {
            methods: methods.map(|(name, row)| (name.clone(), text(&row["side"]))).collect(),
            updates: keys(&document["updates"]),
            capabilities: sides.into_iter().flat_map(of_side).collect(),
            members: members.map(|(name, list)| (name.clone(), texts(list))).collect(),
        }
    }

    fn official(document: &Value) -> Self {
        let mut parts = Self::default();
        for (name, schema) in document["$defs"].as_object().into_iter().flatten() {
            if let Some(method) = schema["x-method"].as_str() {
                parts.methods.insert(method.to_owned(), text(&schema["x-side"]));
            }
            if let Some(properties) = schema["properties"].as_object() {
                let names = properties.keys().filter(|name| *name != "_meta").cloned();
                parts.members.insert(name.clone(), names.collect());
            }
        }
        let update = &document["$defs"]["SessionUpdate"];
        let variants = update["oneOf"].as_array().or_else(|| update["anyOf"].as_array());
        let kinds = variants.into_iter().flatten();
        let kinds = kinds.filter_map(|it| it["properties"]["sessionUpdate"]["const"].as_str());
        parts.updates = kinds.map(str::to_owned).collect();
        for side in ["AgentCapabilities", "ClientCapabilities"] {
            leaves(document, side, side, &mut parts.capabilities);
        }
        parts
    }
}

/// Adds the paths of the capabilities without further capabilities in them.
fn leaves(document: &Value, object: &str, path: &str, found: &mut BTreeSet<String>) {
    let properties = document["$defs"][object]["properties"].as_object().into_iter().flatten();
    for (name, schema) in properties.filter(|(name, _)| *name != "_meta") {
        let below = format!("{path}.{name}");
        // A capability that is served as a whole, with what it has below it.
        let is_whole = below.ends_with(".promptSuggestions") || below.ends_with(".systemPrompt");
        // The npm package wraps a reference that has a description, and the library's schema does not.
        let wrapped = || ["allOf", "anyOf"].iter().find_map(|key| schema[key][0]["$ref"].as_str());
        let inner = schema["$ref"].as_str().or_else(wrapped);
        let inner = inner.and_then(|it| it.strip_prefix("#/$defs/")).filter(|_| !is_whole);
        let has_more = inner.is_some_and(|inner| {
            let properties = document["$defs"][inner]["properties"].as_object();
            properties.is_some_and(|properties| properties.keys().any(|name| name != "_meta"))
        });
        match inner.filter(|_| has_more) {
            Some(inner) => leaves(document, inner, &below, found),
            None => {
                found.insert(below);
            }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn served() -> Value {
        json!({
            "methods": {
                "session/new": { "side": "agent" }, "session/update": { "side": "client" },
                "session/gone": { "side": "agent" }, "session/turned": { "side": "agent" },
            },
            "updates": { "plan": "stable", "gone": "stable" },
            "capabilities": {
                "AgentCapabilities": { "loadSession": "stable" },
                "ClientCapabilities": { "fs.read": "stable", "session.gone": "stable" },
            },
            "members": {
                "NewRequest": ["cwd", "gone"], "OfOurs": ["a"],
            },
        })
    }

    fn official(is_stable: bool) -> Value {
        let method = |name: &str, side: &str| json!({ "x-method": name, "x-side": side });
        let update = |kind: &str| json!({ "properties": { "sessionUpdate": { "const": kind } } });
        // Each package writes references in its own way.
        let fs = match is_stable {
            true => json!({ "allOf": [{ "$ref": "#/$defs/Fs" }] }),
            false => json!({ "$ref": "#/$defs/Fs", "description": "Files." }),
        };
        let mut document = json!({ "$defs": {
            "NewRequest": { "properties": { "cwd": {}, "later": {}, "_meta": {} }, "x-method": "session/new", "x-side": "agent" },
            "UpdateNotification": method("session/update", "client"),
            "TurnedRequest": method("session/turned", "client"),
            "SessionUpdate": { "oneOf": [update("plan"), update("later")] },
            "AgentCapabilities": { "properties": { "loadSession": { "type": "boolean" }, "_meta": {} } },
            "ClientCapabilities": { "properties": {
                "fs": fs,
                "later": { "anyOf": [{ "$ref": "#/$defs/Empty" }, { "type": "null" }] },
            } },
            "Fs": { "properties": { "read": {}, "write": {}, "_meta": {} } },
            "Empty": { "properties": { "_meta": {} } },
        } });
        if !is_stable {
            document["$defs"]["ForkRequest"] = method("session/fork", "agent");
        }
        document
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let found = differences(&served(), &official(true), &official(false));
        let expected = [
            "capability `ClientCapabilities.fs.write` is not served",
            "capability `ClientCapabilities.later` is not served",
            "capability `ClientCapabilities.session.gone` is not official",
            "member `NewRequest.gone` is not official",
            "member `NewRequest.later` is not read",
            "method `session/fork` is not served",
            "method `session/gone` is not official",
            "method `session/turned` goes to the client, not to the agent",
            "update `gone` is not official",
            "update `later` is not served",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_known_difference_has_a_reason() {
        let line = "method `mcp/message` is not served";
        assert_eq!(reason(line), Some("tool servers of clients do not reach agents"));
        assert_eq!(reason("update `later` is not served"), None);
        let mut names: Vec<_> = KNOWN.iter().map(|(line, _)| line).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KNOWN.len());
    }
}
