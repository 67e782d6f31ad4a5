//! Closing a session that other clients use too.

use serde_json::json;

use crate::client_hosted::hosted_server;
use crate::rig::LIMIT;

#[tokio::test]
async fn closing_ends_nothing_that_another_face_began() {
    let (rig, hosted) = hosted_server().await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    let alice = rig.alice();
    let wait = json!({"agent": "hosted", "input": "wait", "thread_id": session});
    let alices = tokio::spawn(async move { alice.post("/api/v1/runs", &wait).await });
    editor.until(|message| message["params"]["update"]["content"]["text"] == "waiting").await;
    editor.ok("session/close", json!({"sessionId": session})).await;
    assert!(hosted.recorded_calls("close").is_empty(), "its agent still works");
    // The run continues until a client ends it.
    let alice = rig.alice();
    let runs = alice.get(&format!("/api/v1/runs?thread_id={session}")).await.unwrap().ok().unwrap();
    let run = runs["items"][0].clone();
    assert_eq!(run["status"], "running", "{runs}");
    let cancel = format!("/api/v1/runs/{}/cancel", run["id"].as_str().unwrap());
    alice.post(&cancel, &json!({})).await.unwrap().ok().unwrap();
    let ended = tokio::time::timeout(LIMIT, alices).await.unwrap().unwrap();
    assert_eq!(ended.unwrap().ok().unwrap()["status"], "cancelled");
    // With no other client and no running turn, closing the session closes the agent's own session.
    editor.load(&session).await;
    let prompt = editor.start_prompt(&session, "wait").await;
    editor.ok("session/close", json!({"sessionId": session})).await;
    assert_eq!(editor.answer(&prompt).await["result"]["stopReason"], "cancelled");
    assert_eq!(hosted.recorded_calls("close").len(), 1);
}

#[tokio::test]
async fn closing_leaves_the_agents_session_to_another_client() {
    let (rig, hosted) = hosted_server().await;
    let (mut first, session) = rig.editor_socket().open_session("hosted").await;
    let mut second = rig.editor_socket().load_session("hosted", &session).await;
    let theirs = second.start_prompt(&session, "wait").await;
    first.until(|message| message["params"]["update"]["content"]["text"] == "waiting").await;
    first.ok("session/close", json!({"sessionId": session})).await;
    assert!(hosted.recorded_calls("close").is_empty());
    second.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(second.answer(&theirs).await["result"]["stopReason"], "cancelled");
    second.ok("session/close", json!({"sessionId": session})).await;
    assert_eq!(hosted.recorded_calls("close").len(), 1);
}
