//! The checks against the official schema can fail.

use serde_json::{Value, json};
use trilogue_testkit::schema::{Conversation, Kind, Side, hold, hold_record};
use trilogue_testkit::{Folder, specs};

/// Whether the official schema is available. Prints a note if it is missing.
fn has_schema() -> bool {
    specs::document("agent_client/v1.20.unstable.schema.json").is_some()
}

fn call(id: Option<u64>, method: &str, params: &Value) -> Value {
    let mut call = json!({"jsonrpc": "2.0", "method": method, "params": params});
    if let Some(id) = id {
        call["id"] = json!(id);
    }
    call
}

#[test]
fn each_message_is_held_to_the_schema_of_its_method() {
    if !has_schema() {
        return;
    }
    let mut agent = Conversation::holding(Side::Agent);
    agent.note(&call(Some(1), "session/prompt", &json!({})));
    agent.note(&call(Some(2), "session/prompt", &json!({})));
    let answer = |id: u64, result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
    agent.hold(&answer(1, json!({"stopReason": "end_turn"}))).unwrap();
    agent.hold(&answer(2, json!({"stopReason": "error"}))).unwrap_err();
    // No request has this id, so no schema applies.
    agent.hold(&answer(3, json!({}))).unwrap();
    let chunk = |id: Value| {
        let content = json!({"type": "text", "text": "x"});
        let update =
            json!({"sessionUpdate": "agent_message_chunk", "content": content, "messageId": id});
        call(None, "session/update", &json!({"sessionId": "s", "update": update}))
    };
    agent.hold(&chunk(json!("m1"))).unwrap();
    agent.hold(&chunk(json!(1))).unwrap_err();
    agent.hold(&call(None, "session/update", &json!({"sessionId": "s"}))).unwrap_err();
    agent.hold(&call(None, "_vendor/said", &json!({}))).unwrap();
    agent.hold(&call(Some(4), "vendor/ask", &json!({}))).unwrap_err();
    agent.hold(&json!({"id": 1, "result": {}})).unwrap_err();
    agent.hold(&json!({"jsonrpc": "2.0", "id": 1, "error": {"code": "x"}})).unwrap_err();

    // A request of a client is not valid from an agent.
    let new = json!({"cwd": "/", "mcpServers": []});
    hold("session/new", Side::Agent, Kind::Request, &new).unwrap();
    hold("session/new", Side::Client, Kind::Request, &new).unwrap_err();
    hold("session/new", Side::Agent, Kind::Request, &json!({"cwd": "/"})).unwrap_err();
}

#[test]
fn what_an_agent_wrote_down_is_held_line_by_line() {
    if !has_schema() {
        return;
    }
    let dir = Folder::new().unwrap();
    let file = dir.path().join("heard");
    let new = call(Some(0), "session/new", &json!({"cwd": "/", "mcpServers": []}));
    let read = json!({"answered": "fs/read_text_file", "result": {"content": "x"}});
    std::fs::write(&file, format!("{new}\n{read}\n{{\"jsonrpc\":\"2.0\",\"me")).unwrap();
    assert_eq!(hold_record(&file).unwrap(), 2);
    let wrong = json!({"answered": "fs/read_text_file", "result": {"text": "x"}});
    std::fs::write(&file, format!("{new}\n{wrong}\n")).unwrap();
    hold_record(&file).unwrap_err();
}
