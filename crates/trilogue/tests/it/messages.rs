//! The example messages of the documentation, sent to a real server.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Home, Server, demo, finish};

/// The blocks that are marked as messages.
fn examples() -> Vec<Value> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/communication.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("```json message\n").skip(1).map(|rest| rest.split("```").next());
    blocks.map(|block| serde_json::from_str(block.unwrap()).unwrap()).collect()
}

fn whole(part: &Value) -> Value {
    let or = |name: &str, default: Value| part.get(name).cloned().unwrap_or(default);
    json!({
        "name": or("name", Value::Null),
        "content_type": or("content_type", json!("text/plain")),
        "content": or("content", Value::Null),
        "content_encoding": or("content_encoding", json!("plain")),
        "content_url": or("content_url", Value::Null),
        "metadata": or("metadata", Value::Null),
    })
}

fn whole_parts(message: &Value) -> Value {
    message["parts"].as_array().unwrap().iter().map(whole).collect()
}

/// The server's response to this request with its first token, at a path or at a whole address.
pub(crate) fn ask(home: &Home, server: &Server, path: &str, body: Option<&Value>) -> String {
    let token = fs::read_to_string(server.token_file()).unwrap();
    let mut curl = home.program("curl");
    let token = token.trim();
    curl.args(["-sS", "--fail-with-body", "-H"]).arg(format!("Authorization: Bearer {token}"));
    let url =
        if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", server.url()) };
    let input = match body {
        Some(body) => {
            curl.args(["-H", "Content-Type: application/json", "--data-binary", "@-"]);
            body.to_string()
        }
        None => String::new(),
    };
    curl.arg(url);
    finish(curl, &input).expect(0).out
}

fn run(message: &Value, mode: &str) -> Value {
    json!({ "agent_name": "echo", "input": [message], "mode": mode })
}

#[test]
fn each_example_message_goes_through_sync_stream_and_history() {
    let (home, server) = demo();
    check_examples(&home, &server);
}

#[test]
fn each_example_message_goes_through_a_strict_server_too() {
    let home = Home::new();
    let server = home.start(&["demo", "--listen", "127.0.0.1:0", "--strict"]);
    check_examples(&home, &server);
    let part = json!({ "content_type": "text/plain", "metadata": { "kind": "citation" } });
    let refused = run(&json!({ "role": "user", "parts": [part] }), "sync");
    let mut curl = home.program("curl");
    let token = fs::read_to_string(server.token_file()).unwrap();
    curl.args(["-sS", "-H"]).arg(format!("Authorization: Bearer {}", token.trim()));
    curl.args(["-H", "Content-Type: application/json", "--data-binary", "@-"]);
    curl.arg(format!("{}/communication/runs", server.url()));
    let refused = finish(curl, &refused.to_string()).expect(0).json();
    assert_eq!(refused["code"], "invalid_input", "{refused}");
}

fn check_examples(home: &Home, server: &Server) {
    let examples = examples();
    assert_eq!(examples.len(), 4, "the protocol's document names four messages");
    for message in &examples {
        let parts = whole_parts(message);
        let answer = ask(home, server, "/communication/runs", Some(&run(message, "sync")));
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["output"][0]["parts"], parts, "sync");
        assert_eq!(answer["output"][0]["role"], "agent/echo");

        let stream = ask(home, server, "/communication/runs", Some(&run(message, "stream")));
        let events: Vec<Value> = stream
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        let streamed: Value = events
            .iter()
            .filter(|event| event["type"] == "message.part")
            .map(|event| event["part"].clone())
            .collect();
        assert_eq!(streamed, parts, "stream");
        let last = events.last().unwrap();
        assert_eq!(last["type"], "run.completed");

        let path =
            format!("/communication/sessions/{}", last["run"]["session_id"].as_str().unwrap());
        let session: Value = serde_json::from_str(&ask(home, server, &path, None)).unwrap();
        let history: Vec<Value> = session["history"]
            .as_array()
            .unwrap()
            .iter()
            .map(|url| ask(home, server, url.as_str().unwrap(), None))
            .map(|text| serde_json::from_str(&text).unwrap())
            .collect();
        let roles: Vec<_> = history.iter().map(|message| message["role"].clone()).collect();
        assert_eq!(roles, [message["role"].clone(), json!("agent/echo")], "history");
        assert!(history.iter().all(|message| message["parts"] == parts), "history: {history:?}");
    }
}
