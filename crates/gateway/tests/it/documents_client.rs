//! Every example and rule of the Agent Client Protocol's documents on content and on message ids, by default and with `strict`.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_gateway::ClientOptions;
use trilogue_testkit::documents;

use crate::client_agent::Hosted;
use crate::client_editor::Editor;
use crate::rig::{Rig, Setup};

/// A server with defaults, and one that enforces the documents.
async fn rigs() -> [(Rig, &'static str); 2] {
    let strict = ClientOptions { strict: true, ..ClientOptions::default() };
    [(rig(ClientOptions::default()).await, "default"), (rig(strict).await, "strict")]
}

async fn rig(client: ClientOptions) -> Rig {
    let agents = vec![Arc::new(Hosted::taking_audio()) as _];
    Rig::of(Setup { client, agents, ..Setup::default() }).await
}

/// The contents of these updates, each with its place.
fn content(updates: &[Value]) -> Vec<(String, Value)> {
    let of = |params: &Value| {
        let update = &params["update"];
        let content = match &update["content"] {
            Value::Array(items) => items[0]["content"].clone(),
            content => content.clone(),
        };
        (update["sessionUpdate"].as_str().unwrap().to_owned(), content)
    };
    updates.iter().map(of).filter(|(_, content)| !content.is_null()).collect()
}

#[tokio::test]
async fn the_documents_content_blocks_pass_unchanged_or_are_refused() {
    for (rig, mode) in rigs().await {
        for row in documents::content() {
            let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
            let (word, block) = (json!({"type": "text", "text": "content "}), &row["block"]);
            let params = json!({"sessionId": session, "prompt": [word, block]});
            if row.get(mode).is_some() {
                assert_eq!(editor.code("session/prompt", params).await, -32602, "{mode} {row}");
                continue;
            }
            editor.ok("session/prompt", params).await;
            // The agent repeats the content in every place that the protocol allows.
            let kinds =
                ["agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update"];
            let live: Vec<_> =
                kinds.iter().map(|kind| ((*kind).to_owned(), block.clone())).collect();
            assert_eq!(content(&editor.updates), live, "{mode} {row}");
            let loaded = rig.editor_socket().load_session("hosted", &session).await;
            let user = |content: &Value| ("user_message_chunk".to_owned(), content.clone());
            let replay = [vec![user(&word), user(block)], live].concat();
            assert_eq!(content(&loaded.updates), replay, "{mode} {row}");
        }
    }
}

/// The ids that placeholders stand for.
#[derive(Default)]
struct Ids(HashMap<String, Value>);

impl Ids {
    /// Binds a placeholder to an id, which must be a UUID. One placeholder has one id, and different ones have different ids.
    fn bind(&mut self, expected: &Value, id: &Value) {
        let name = expected.as_str().unwrap();
        if !name.starts_with('<') {
            assert_eq!(expected, id);
            return;
        }
        assert!(is_canonical(id), "{id}");
        match self.0.get(name) {
            Some(known) => assert_eq!(known, id, "{name}"),
            None => {
                assert!(!self.0.values().any(|other| other == id), "{name}: {id}");
                self.0.insert(name.to_owned(), id.clone());
            }
        }
    }
}

fn is_canonical(id: &Value) -> bool {
    let id = id.as_str().unwrap();
    uuid::Uuid::try_parse(id).is_ok_and(|uuid| uuid.to_string() == id)
}

fn chunks(editor: &Editor, kinds: &[&str]) -> Vec<Value> {
    let updates = editor.updates.iter().map(|params| &params["update"]);
    let chunks = updates.filter(|update| kinds.iter().any(|kind| update["sessionUpdate"] == *kind));
    chunks
        .map(|update| {
            json!({
                "sessionUpdate": update["sessionUpdate"], "messageId": update["messageId"],
                "text": update["content"]["text"],
            })
        })
        .collect()
}

#[tokio::test]
async fn the_documents_turns_have_the_ids_of_both_sides() {
    for (rig, mode) in rigs().await {
        for row in documents::message_ids() {
            let (agent, words) = (row["agent"].as_str().unwrap(), &row["text"]);
            let (mut editor, session) = rig.editor_socket().open_session(agent).await;
            let prompt = json!([{"type": "text", "text": words}]);
            let mut params = json!({"sessionId": session, "prompt": prompt});
            if let Some(id) = row.get("messageId") {
                params["messageId"] = id.clone();
            }
            let result = editor.ok("session/prompt", params).await;
            let mut ids = Ids::default();
            let expected = row.get("userMessageId");
            match expected {
                Some(expected) => ids.bind(expected, &result["userMessageId"]),
                None => assert_eq!(result.get("userMessageId"), None, "{mode} {row}"),
            }
            let live = chunks(&editor, &["agent_message_chunk"]);
            assert_eq!(live.len(), row["updates"].as_array().unwrap().len(), "{live:?}");
            for (update, expected) in live.iter().zip(row["updates"].as_array().unwrap()) {
                assert_eq!(update["text"], expected["text"], "{mode} {row}");
                ids.bind(&expected["messageId"], &update["messageId"]);
            }
            let loaded = rig.editor_socket().load_session(agent, &session).await;
            let replay = chunks(&loaded, &["user_message_chunk", "agent_message_chunk"]);
            assert_eq!(replay[1..], live, "{mode} {row}");
            assert_eq!(&replay[0]["text"], words);
            match expected {
                Some(_) => assert_eq!(replay[0]["messageId"], result["userMessageId"]),
                None => assert!(is_canonical(&replay[0]["messageId"]), "{mode} {row}"),
            }
        }
    }
}
