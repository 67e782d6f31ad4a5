//! The server's log names the messages of both sides, for every protocol.

use serde_json::{Value, json};

use crate::connect_editor::Editor;
use crate::harness::{Home, until};
use crate::messages::ask;

const CONFIG: &str = "[agents.echo]\nkind = \"builtin\"\n[log]\nlevel = \"info,trilogue_runtime=debug,trilogue_gateway=debug\"\n";
const GIVEN: &str = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";

/// The roles and ids of a thread's messages in the log.
fn logged_messages(home: &Home, thread: &str) -> Vec<(String, String)> {
    let log = home.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_thread = lines.filter(|line| line["thread"] == thread && line["run"].is_string());
    let text = |line: &Value, member: &str| line[member].as_str().map(str::to_owned);
    of_thread.filter_map(|line| Some((text(&line, "role")?, text(&line, "message_id")?))).collect()
}

#[test]
fn the_log_names_the_messages_of_both_sides_over_every_protocol() {
    let home = Home::new();
    home.write("t.toml", CONFIG);
    let server = home.start(&[
        "serve",
        "--config",
        "t.toml",
        "--listen",
        "127.0.0.1:0",
        "--store",
        "memory:",
    ]);
    let post = |path: &str, body: &Value| -> Value {
        serde_json::from_str(&ask(&home, &server, path, Some(body))).unwrap()
    };
    let native = post("/api/v1/runs", &json!({ "agent": "echo", "input": "Hello" }));
    let part = json!({ "content_type": "text/plain", "content": "Hello" });
    let input = json!([{ "role": "user", "parts": [part] }]);
    let communication =
        post("/communication/runs", &json!({ "agent_name": "echo", "input": input }));
    let thread = post("/connect/threads", &json!({}));
    let thread = thread["thread_id"].as_str().unwrap();
    let run = json!({ "agent_id": "echo", "input": { "message": "Hello" } });
    post(&format!("/connect/threads/{thread}/runs/wait"), &run);
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "echo"]);
    let prompt = json!([{ "type": "text", "text": "Hello" }]);
    let prompt = json!({ "sessionId": session, "messageId": GIVEN, "prompt": prompt });
    assert_eq!(editor.ask("session/prompt", prompt)["result"]["userMessageId"], GIVEN);
    for (protocol, thread) in [
        ("native", native["thread_id"].as_str().unwrap()),
        ("communication", communication["session_id"].as_str().unwrap()),
        ("connect", thread),
        ("client", &session),
    ] {
        let messages =
            until(|| Some(logged_messages(&home, thread)).filter(|them| them.len() >= 2));
        let roles: Vec<_> = messages.iter().map(|(role, _)| role.as_str()).collect();
        assert_eq!(roles, ["user", "agent/echo"], "{protocol}: {messages:?}");
        assert_ne!(messages[0].1, messages[1].1, "{protocol}");
        if protocol == "client" {
            assert_eq!(messages[0].1, GIVEN);
        }
    }
}
