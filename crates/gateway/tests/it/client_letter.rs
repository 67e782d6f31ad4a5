//! Messages that pass unchanged, and messages that a strict server refuses.

use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_gateway::ClientOptions;

use crate::client_agent::Hosted;
use crate::client_editor::Editor;
use crate::client_hosted::hosted_server;
use crate::rig::{LIMIT, Rig, Setup};

/// Blocks whose data is not base64.
fn unlettered() -> Vec<Value> {
    vec![
        json!({"type": "image", "data": "no base64!", "mimeType": "image/png"}),
        json!({"type": "image", "data": "A", "mimeType": "image/png", "own": [1]}),
        json!({"type": "resource", "resource": {"uri": "file:///a", "blob": "*", "mimeType": "a/b"}}),
        json!({"type": "resource", "resource": {"uri": "file:///a", "blob": "A B"}}),
    ]
}

async fn got(editor: &mut Editor, params: Value) -> Value {
    editor.ok("session/prompt", params).await;
    let said = editor.words("agent_message_chunk");
    serde_json::from_str(said.last().unwrap().trim_end_matches('!')).unwrap()
}

#[tokio::test]
async fn bytes_that_are_no_base64_are_refused_and_the_documents_cut_examples_are_not() {
    let (rig, _) = hosted_server().await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    for block in unlettered() {
        let prompt = json!([{"type": "text", "text": "blocks"}, block]);
        let params = json!({"sessionId": session, "prompt": prompt});
        assert_eq!(editor.code("session/prompt", params).await, -32602, "{block}");
    }
    let prompt = json!([
        {"type": "text", "text": "blocks"},
        {"type": "image", "data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB...", "mimeType": "image/png"},
    ]);
    let got = got(&mut editor, json!({"sessionId": session, "prompt": prompt})).await;
    assert_eq!(got["blocks"], prompt);
}

#[tokio::test]
async fn bytes_that_are_no_base64_are_refused_where_the_letter_counts() {
    let client = ClientOptions { strict: true, ..ClientOptions::default() };
    let rig = Rig::of(Setup { client, agents: vec![Arc::new(Hosted::new())], ..Setup::default() });
    let rig = rig.await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    for block in unlettered() {
        let prompt = json!([{"type": "text", "text": "blocks"}, block]);
        let params = json!({"sessionId": session, "prompt": prompt});
        assert_eq!(editor.code("session/prompt", params).await, -32602, "{block}");
    }
    let whole = json!([
        {"type": "text", "text": "blocks"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    ]);
    let got = got(&mut editor, json!({"sessionId": session, "prompt": whole})).await;
    assert_eq!(got["blocks"], whole);
}

/// Links whose optional members have types that the documents do not allow.
fn misfits() -> Vec<Value> {
    let link = |member: &str, value: Value| {
        let mut block = json!({"type": "resource_link", "uri": "file:///a", "name": "a"});
        block[member] = value;
        block
    };
    vec![
        link("size", json!("12")),
        link("size", json!(1.5)),
        link("annotations", json!("x")),
        link("annotations", json!({"audience": ["user", "robot"], "priority": "high", "own": [1]})),
        json!({"type": "text", "text": "x", "annotations": {"audience": "user"}}),
    ]
}

#[tokio::test]
async fn optional_members_come_to_the_agent_as_they_were_written() {
    let (rig, _) = hosted_server().await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    let mut prompt = vec![json!({"type": "text", "text": "blocks "})];
    prompt.extend(misfits());
    let got = got(&mut editor, json!({"sessionId": session, "prompt": prompt})).await;
    assert_eq!(got["blocks"], json!(prompt));
}

#[tokio::test]
async fn optional_members_that_do_not_fit_are_refused_where_the_letter_counts() {
    let client = ClientOptions { strict: true, ..ClientOptions::default() };
    let rig = Rig::of(Setup { client, agents: vec![Arc::new(Hosted::new())], ..Setup::default() });
    let rig = rig.await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    for block in misfits() {
        let params = json!({"sessionId": session, "prompt": [block]});
        assert_eq!(editor.code("session/prompt", params).await, -32602, "{block}");
    }
}

#[tokio::test]
async fn what_a_prompt_carries_beyond_its_message_comes_to_the_agent() {
    let (rig, _) = hosted_server().await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    let prompt = json!([{"type": "text", "text": "blocks"}]);
    let params = json!({
        "sessionId": session, "session_id": "another", "prompt": prompt, "messageId": "m-1",
        "_meta": {"x": 1, "session_id": "other"}, "extra": {"deep": [1.5, null]}, "more": "x",
    });
    let got = got(&mut editor, params).await;
    assert_eq!(got["blocks"], prompt);
    assert_eq!(
        got["extra"],
        json!({"_meta": {"x": 1}, "extra": {"deep": [1.5, null]}, "more": "x"})
    );
}

#[tokio::test]
async fn an_id_that_is_at_work_is_refused_and_the_first_request_goes_on() {
    let (rig, _) = hosted_server().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let prompt = editor.start_prompt(&session, "ask").await;
    let asked = editor.request("session/request_permission").await;
    let again = json!({"jsonrpc": "2.0", "id": prompt, "method": "session/list", "params": {}});
    for _ in 0..3 {
        editor.send(&again).await;
        let refused = editor.answer(&prompt).await;
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
    }
    editor.choose(&asked, "yes").await;
    assert_eq!(editor.answer(&prompt).await["result"]["stopReason"], "end_turn");
    // An id can be used again once its request is answered.
    editor.send(&again).await;
    assert!(editor.answer(&prompt).await["result"]["sessions"].is_array());
}

#[tokio::test]
async fn a_session_that_nobody_waits_for_any_more_is_none() {
    let (rig, hosted) = hosted_server().await;
    let mut editor = rig.editor_socket().plain("hosted").await;
    let slow = json!({"cwd": "/slow", "mcpServers": []});
    let new = editor.ask("session/new", slow.clone()).await;
    while hosted.recorded_calls("open").is_empty() {
        tokio::task::yield_now().await;
    }
    editor.notify("$/cancel_request", json!({"requestId": new})).await;
    assert_eq!(editor.answer(&new).await["error"]["code"], -32800);
    assert_eq!(hosted.recorded_calls("given up").len(), 1);
    let mut other = rig.editor_socket().plain("hosted").await;
    none_is_listed(&mut other).await;
    // The same if the client has disconnected.
    editor.ask("session/new", slow).await;
    while hosted.recorded_calls("open").len() < 2 {
        tokio::task::yield_now().await;
    }
    drop(editor);
    none_is_listed(&mut other).await;
}

async fn none_is_listed(editor: &mut Editor) {
    let listed = async {
        while editor.ok("session/list", json!({})).await["sessions"] != json!([]) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, listed).await.unwrap();
}
