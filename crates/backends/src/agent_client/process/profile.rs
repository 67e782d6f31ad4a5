//! A client's description in `initialize`. Only sessions with an equal profile share a process.

use serde_json::{Map, Value, json};
use trilogue_domain::Json;
use trilogue_mapping::agent_client::{UPDATE as DIALECT, without_meta};
use trilogue_runtime::ClientProfile;
use trilogue_wire::agent_client::{
    CLIENT_CAPABILITIES, PROTOCOL_VERSION, retain_served, without_parameters,
};

use crate::agent_client::launch::{ClientMeta, Launch};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Profile {
    initialize: String,
    /// The questions that the client can show, as JSON; empty for none.
    elicitation: String,
}

// === impl Profile ===

impl Profile {
    /// The profile of a client. The client's capabilities count only if its files and terminals are forwarded, except for the questions that
    /// it can show. Without a client of this protocol, people answer questions of every kind through the server.
    pub(crate) fn of(launch: &Launch, client: Option<&ClientProfile>) -> Self {
        let object = |json: &Json| object_of_client(launch, json);
        let client = client.filter(|client| &*client.dialect == DIALECT);
        let elicitation = match client {
            Some(client) => {
                let can = object(&client.capabilities);
                can.and_then(|can| can.get("elicitation").filter(|it| it.is_object()).cloned())
            }
            None => Some(json!({ "form": {}, "url": {} })),
        };
        let elicitation = elicitation.map(|can| can.to_string()).unwrap_or_default();
        let client = client.filter(|client| launch.forwards_tools(client.source));
        let capabilities = client.and_then(|client| object(&client.capabilities));
        let mut capabilities = capabilities.unwrap_or_default();
        retain_served(&mut capabilities, CLIENT_CAPABILITIES);
        let info = client.and_then(|client| client.info.as_ref()).and_then(object);
        let info = info.map_or_else(
            || json!({ "name": "trilogue", "version": env!("CARGO_PKG_VERSION") }),
            Value::Object,
        );
        add_ours(&mut capabilities, launch);
        let initialize = json!({
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": capabilities,
            "clientInfo": info,
        });
        Self { initialize: initialize.to_string(), elicitation }
    }

    pub(super) fn params(&self) -> Value {
        let mut params: Value = serde_json::from_str(&self.initialize).unwrap_or_default();
        if let Ok(elicitation) = serde_json::from_str::<Value>(&self.elicitation) {
            params["clientCapabilities"]["elicitation"] = elicitation;
        }
        params
    }

    /// Whether a process that was started for this profile can continue for another. A difference only in questions does not justify losing what the
    /// process remembers.
    pub(super) fn serves(&self, other: &Self) -> bool {
        self.initialize == other.initialize
    }
}

/// An object by which a client describes itself. Some agents take `_meta` members with a parameter's name as arguments.
fn object_of_client(launch: &Launch, json: &Json) -> Option<Map<String, Value>> {
    let said = match launch.client_meta {
        ClientMeta::Pass => without_parameters(json.as_str()),
        ClientMeta::Drop => without_meta(json.as_str()),
    };
    serde_json::from_str(&said).ok()
}

/// Adds this server's capabilities for every client: all receive updates.
fn add_ours(capabilities: &mut Map<String, Value>, launch: &Launch) {
    let grants = launch.grants.capabilities();
    let mut fs = object_or_empty(capabilities.remove("fs"));
    let (reads, writes) =
        grants.fs.map_or((false, false), |fs| (fs.read_text_file, fs.write_text_file));
    for (name, is_granted) in [("readTextFile", reads), ("writeTextFile", writes)] {
        let has = is_granted || fs.get(name) == Some(&Value::Bool(true));
        fs.insert(name.to_owned(), Value::Bool(has));
    }
    let terminal = grants.terminal || capabilities.get("terminal") == Some(&Value::Bool(true));
    capabilities.insert("fs".to_owned(), Value::Object(fs));
    capabilities.insert("terminal".to_owned(), Value::Bool(terminal));
    capabilities.remove("elicitation");
    let mut session = object_or_empty(capabilities.remove("session"));
    let mut options = object_or_empty(session.remove("configOptions"));
    options.insert("boolean".to_owned(), json!({}));
    session.insert("configOptions".to_owned(), Value::Object(options));
    for name in ["notices", "compaction", "promptSuggestions"] {
        if session.get(name).is_none_or(Value::is_null) {
            session.insert(name.to_owned(), json!({}));
        }
    }
    capabilities.insert("session".to_owned(), Value::Object(session));
    for name in ["plan", "subagents"] {
        if capabilities.get(name).is_none_or(Value::is_null) {
            capabilities.insert(name.to_owned(), json!({}));
        }
    }
    // The agent never runs in a client's terminal.
    capabilities.remove("auth");
}

fn object_or_empty(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_client::launch::ClientTools;
    use std::sync::Arc;
    use trilogue_domain::RequestSource;

    #[test]
    fn a_client_s_own_tools_count_only_where_they_are_forwarded() {
        let capabilities = r#"{"fs":{"readTextFile":true},"terminal":true,"_meta":{"x":1,"cwd":2},"plan":{"_meta":{"z":3}},"subagents":null,"auth":{"terminal":true},"session":{"cursors":{},"later":{"x":1},"configOptions":{"more":{}},"notices":null}}"#;
        let client = ClientProfile {
            dialect: Arc::from(DIALECT),
            version: 1,
            capabilities: Json::parse(capabilities).unwrap(),
            info: Some(
                Json::parse(r#"{"name":"editor","version":"2","_meta":{"y":[1]}}"#).unwrap(),
            ),
            source: RequestSource::LocalSocket,
        };
        let mut launch = Launch::of(["x"]);
        let own = Profile::of(&launch, Some(&client));
        assert!(own.serves(&Profile::of(&launch, None)));
        assert_eq!(own.params()["clientCapabilities"].get("elicitation"), None);
        let everything = json!({ "form": {}, "url": {} });
        let alone = Profile::of(&launch, None).params();
        assert_eq!(alone["clientCapabilities"]["elicitation"], everything);
        assert_eq!(own.params()["clientCapabilities"]["terminal"], false);
        // By default those of a client elsewhere count, unless the server offers its own.
        let remote = ClientProfile { source: RequestSource::Network, ..client.clone() };
        let has_terminal = |launch: &Launch| {
            Profile::of(launch, Some(&remote)).params()["clientCapabilities"]["terminal"] == true
        };
        assert!(has_terminal(&launch));
        launch.client_tools = ClientTools::None;
        assert!(!has_terminal(&launch));
        launch.client_tools = ClientTools::Forward;
        let with_forms = capabilities.replacen('{', r#"{"elicitation":{"form":{}},"#, 1);
        let client = ClientProfile { capabilities: Json::parse(with_forms).unwrap(), ..client };
        let params = Profile::of(&launch, Some(&client)).params();
        let said = json!({ "name": "editor", "version": "2", "_meta": { "y": [1] } });
        assert_eq!(params["clientInfo"], said);
        // What is not served here is not passed on: cursors and unknown capabilities.
        assert_eq!(
            params["clientCapabilities"],
            json!({
                "_meta": { "x": 1 },
                "fs": { "readTextFile": true, "writeTextFile": false }, "terminal": true,
                "plan": { "_meta": { "z": 3 } }, "subagents": {}, "elicitation": { "form": {} },
                "session": {
                    "configOptions": { "boolean": {} }, "notices": {}, "compaction": {}, "promptSuggestions": {},
                },
            })
        );
        launch.client_meta = ClientMeta::Drop;
        let params = Profile::of(&launch, Some(&client)).params();
        assert_eq!(params["clientInfo"], json!({ "name": "editor", "version": "2" }));
        assert_eq!(params["clientCapabilities"].get("_meta"), None);
        assert_eq!(params["clientCapabilities"]["plan"], json!({}));
    }
}
