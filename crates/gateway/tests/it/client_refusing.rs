//! Clients that refuse questions, together with others that accept them.

use serde_json::json;

use crate::client_editor::Editor;
use crate::rig::Rig;

async fn refuse(editor: &mut Editor) {
    let asked = editor.request("session/request_permission").await;
    let error = json!({"code": -32601, "message": "Method not found"});
    editor.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": error})).await;
    // Once this is answered, the server has handled the refusal.
    editor.ok("session/list", json!({})).await;
}

async fn three() -> (Rig, [Editor; 3], String) {
    let rig = Rig::start().await;
    let (first, session) = rig.editor_socket().open_session("puppet").await;
    let mut others =
        [rig.editor_socket().plain("puppet").await, rig.editor_socket().plain("puppet").await];
    for other in &mut others {
        other.load(&session).await;
    }
    let [second, third] = others;
    (rig, [first, second, third], session)
}

#[tokio::test]
async fn who_will_not_be_asked_answers_for_nobody_else() {
    for (last, said) in [("answers", "yes"), ("refuses", "no"), ("breaks off", "no")] {
        let (_rig, [mut first, mut second, mut third], session) = three().await;
        let prompt = first.start_prompt(&session, "ask").await;
        refuse(&mut first).await;
        refuse(&mut second).await;
        if last == "refuses" {
            refuse(&mut third).await;
        } else {
            let asked = third.request("session/request_permission").await;
            if last == "answers" {
                third.choose(&asked, "yes").await;
            } else {
                drop(third);
            }
        }
        first.end_turn(&prompt).await;
        assert_eq!(first.words("agent_message_chunk"), [said], "the last {last}");
    }
}

#[tokio::test]
async fn where_the_last_who_would_be_asked_goes_the_call_is_rejected() {
    let (_rig, [mut first, mut second, mut third], session) = three().await;
    let prompt = first.start_prompt(&session, "ask").await;
    refuse(&mut first).await;
    third.request("session/request_permission").await;
    drop(third);
    // One client is left, and it closes the session.
    second.request("session/request_permission").await;
    second.ok("session/close", json!({"sessionId": session})).await;
    second.wait_for_notification("$/cancel_request").await;
    assert_eq!(first.answer(&prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!(first.words("agent_message_chunk"), ["no"]);
}
