//! Agents' requests to the client that prompted.

use serde_json::json;

use crate::client_hosted::hosted_server;

#[tokio::test]
async fn the_client_that_prompted_is_asked_for_its_files() {
    let (rig, _) = hosted_server().await;
    let able = json!({"fs": {"readTextFile": true}});
    let mut first = rig.editor_socket().with("hosted", able.clone()).await;
    let mut second = rig.editor_socket().with("hosted", able).await;
    let session = first.session().await;
    second.load(&session).await;
    for editor in [&mut second, &mut first] {
        let prompt = editor.start_prompt(&session, "read /a").await;
        let asked = editor.request("fs/read_text_file").await;
        assert_eq!(asked["params"], json!({"sessionId": session, "path": "/a"}));
        editor.reply(&asked, json!({"content": "text"})).await;
        editor.answer(&prompt).await;
        let said = editor.words("agent_message_chunk");
        assert_eq!(said.last().unwrap(), "{\"content\":\"text\"}!");
    }
    let prompt = first.start_prompt(&session, "read /b").await;
    let asked = first.request("fs/read_text_file").await;
    let error = json!({"code": -32002, "message": "Resource not found: /b"});
    first.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": error})).await;
    first.answer(&prompt).await;
    assert_eq!(first.words("agent_message_chunk").last().unwrap(), "-32002!");
}

#[tokio::test]
async fn a_client_that_cannot_is_not_asked() {
    let (rig, _) = hosted_server().await;
    let (mut editor, session) = rig
        .editor_socket()
        .open_session_with("hosted", json!({"fs": {"writeTextFile": true}}))
        .await;
    editor.prompt(&session, "read /a").await;
    assert_eq!(editor.words("agent_message_chunk"), ["-32601!"]);
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_taken_back() {
    let (rig, _) = hosted_server().await;
    let (mut editor, session) = rig
        .editor_socket()
        .open_session_with("hosted", json!({"fs": {"readTextFile": true}}))
        .await;
    let prompt = editor.start_prompt(&session, "read /a").await;
    let asked = editor.request("fs/read_text_file").await;
    editor.notify("session/cancel", json!({"sessionId": session})).await;
    let withdrawn = editor.wait_for_notification("$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    assert_eq!(editor.answer(&prompt).await["result"]["stopReason"], "cancelled");
}
