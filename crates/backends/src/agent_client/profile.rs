//! What an agent is told of its client: only sessions with an equal profile share a process.

use serde_json::{Map, Value, json};
use trilogue_runtime::ClientProfile;
use trilogue_wire::agent_client::PROTOCOL_VERSION;

use super::original::DIALECT;
use super::{ClientTools, Launch};

/// What an agent is told of its client when it is started.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Profile {
    /// The params of `initialize`.
    initialize: String,
}

// === impl Profile ===

impl Profile {
    /// What the agent is told where this client, or none that can do anything, prompts it.
    pub(super) fn of(launch: &Launch, client: Option<&ClientProfile>) -> Self {
        let client = client.filter(|client| {
            launch.client_tools == ClientTools::Forward && &*client.dialect == DIALECT
        });
        let mut capabilities = match client.map(|client| client.capabilities.to_value()) {
            Some(Value::Object(capabilities)) => capabilities,
            _ => Map::new(),
        };
        let info = client.and_then(|client| client.info.as_ref()).map(|info| info.to_value());
        let mut info = info
            .filter(Value::is_object)
            .unwrap_or_else(|| json!({ "name": "trilogue", "version": env!("CARGO_PKG_VERSION") }));
        // Some agents take what is attached for arguments of their own.
        capabilities.remove("_meta");
        info.as_object_mut().and_then(|info| info.remove("_meta"));
        add_ours(&mut capabilities, launch);
        let initialize = json!({
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": capabilities,
            "clientInfo": info,
        });
        Self { initialize: initialize.to_string() }
    }

    /// The params of `initialize`.
    pub(super) fn params(&self) -> Value {
        serde_json::from_str(&self.initialize).unwrap_or_default()
    }
}

/// What everybody gets who prompts through us: questions reach whoever may answer, and updates reach whoever shows them.
fn add_ours(capabilities: &mut Map<String, Value>, launch: &Launch) {
    let grants = launch.grants.capabilities();
    let mut fs = object(capabilities.remove("fs"));
    let (reads, writes) =
        grants.fs.map_or((false, false), |fs| (fs.read_text_file, fs.write_text_file));
    for (name, is_granted) in [("readTextFile", reads), ("writeTextFile", writes)] {
        let has = is_granted || fs.get(name) == Some(&Value::Bool(true));
        fs.insert(name.to_owned(), Value::Bool(has));
    }
    let terminal = grants.terminal || capabilities.get("terminal") == Some(&Value::Bool(true));
    capabilities.insert("fs".to_owned(), Value::Object(fs));
    capabilities.insert("terminal".to_owned(), Value::Bool(terminal));
    capabilities.insert("elicitation".to_owned(), json!({ "form": {}, "url": {} }));
    let mut session = object(capabilities.remove("session"));
    let mut options = object(session.remove("configOptions"));
    options.insert("boolean".to_owned(), json!({}));
    session.insert("configOptions".to_owned(), Value::Object(options));
    for name in ["notices", "compaction"] {
        if session.get(name).is_none_or(Value::is_null) {
            session.insert(name.to_owned(), json!({}));
        }
    }
    capabilities.insert("session".to_owned(), Value::Object(session));
    // Nobody runs the agent in a terminal of the client.
    capabilities.remove("auth");
}

fn object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use trilogue_domain::Json;

    #[test]
    fn a_client_s_own_tools_count_only_where_they_are_forwarded() {
        let capabilities = r#"{"fs":{"readTextFile":true},"terminal":true,"_meta":{"x":1},"plan":{},"auth":{"terminal":true},"session":{"later":{"x":1},"configOptions":{"more":{}},"notices":null}}"#;
        let client = ClientProfile {
            dialect: Arc::from(DIALECT),
            version: 1,
            capabilities: Json::parse(capabilities).unwrap(),
            info: Some(Json::parse(r#"{"name":"editor","version":"2","_meta":{}}"#).unwrap()),
        };
        let mut launch = Launch::of(["x"]);
        let own = Profile::of(&launch, Some(&client));
        assert_eq!(own, Profile::of(&launch, None));
        assert_eq!(own.params()["clientCapabilities"]["terminal"], false);
        launch.client_tools = ClientTools::Forward;
        let params = Profile::of(&launch, Some(&client)).params();
        assert_eq!(params["clientInfo"], json!({ "name": "editor", "version": "2" }));
        assert_eq!(
            params["clientCapabilities"],
            json!({
                "fs": { "readTextFile": true, "writeTextFile": false }, "terminal": true, "plan": {},
                "elicitation": { "form": {}, "url": {} },
                "session": {
                    "later": { "x": 1 }, "configOptions": { "boolean": {}, "more": {} }, "notices": {}, "compaction": {},
                },
            })
        );
    }
}
