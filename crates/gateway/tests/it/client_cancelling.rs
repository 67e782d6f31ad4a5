//! What a client cancels, and its messages afterwards.

use serde_json::{Value, json};

use crate::client_editor::Editor;
use crate::client_hosted::hosted_server;

fn cancelled() -> Value {
    json!({"outcome": {"outcome": "cancelled"}})
}

fn outcome(editor: &Editor) -> Value {
    let said = editor.words("agent_message_chunk");
    let last = said.last().unwrap().split_terminator('!').next_back();
    serde_json::from_str(last.unwrap()).unwrap()
}

#[tokio::test]
async fn what_a_client_answers_to_what_it_ended_chooses_nothing() {
    let (rig, _) = hosted_server().await;
    let mut editor = rig.editor_socket().plain("hosted").await;
    for agent in ["hosted", "puppet"] {
        let mut editor = if agent == "hosted" {
            rig.editor_socket().plain("hosted").await
        } else {
            rig.editor_socket().plain("puppet").await
        };
        let session = editor.session().await;
        let commands: &[&str] =
            if agent == "hosted" { &["permission", "forever"] } else { &["ask"] };
        for command in commands {
            let prompt = editor.start_prompt(&session, command).await;
            let asked = editor.request("session/request_permission").await;
            // One write, like editors do.
            let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
            let reply = json!({"jsonrpc": "2.0", "id": asked["id"], "result": cancelled()});
            editor.raw(format!("{cancel}\n{reply}\n").as_bytes()).await;
            assert_eq!(editor.answer(&prompt).await["result"]["stopReason"], "cancelled");
            let alice = rig.alice();
            let all = alice.get("/api/v1/interrupts").await.unwrap().ok().unwrap();
            for interrupt in all["items"].as_array().unwrap() {
                let kind = &interrupt["resolution"]["kind"];
                assert_ne!(kind, "answered", "{agent} {command}: {interrupt}");
            }
        }
    }
    // The cancellation does not affect a turn that begins after it.
    let session = editor.session().await;
    for _ in 0..10 {
        let first = editor.start_prompt(&session, "wait").await;
        let tell = json!({"sessionId": session});
        editor.notify("session/cancel", tell).await;
        let second = editor.start_prompt(&session, "go on").await;
        assert_eq!(editor.answer(&first).await["result"]["stopReason"], "cancelled");
        assert_eq!(editor.answer(&second).await["result"]["stopReason"], "end_turn");
    }
}

#[tokio::test]
async fn a_client_that_chooses_nothing_is_told_so_to_the_agent() {
    let (rig, _) = hosted_server().await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    for command in ["permission", "forever"] {
        for answer in [
            cancelled(),
            json!({"outcome": {"outcome": "selected", "optionId": "not-offered"}}),
            json!({"outcome": 5}),
        ] {
            let prompt = editor.start_prompt(&session, command).await;
            let asked = editor.request("session/request_permission").await;
            editor.reply(&asked, answer.clone()).await;
            assert_eq!(editor.answer(&prompt).await["result"]["stopReason"], "end_turn");
            assert_eq!(outcome(&editor), cancelled(), "{command} {answer}");
        }
    }
    let prompt = editor.start_prompt(&session, "forever").await;
    let asked = editor.request("session/request_permission").await;
    let chosen = json!({"outcome": {"outcome": "selected", "optionId": "never"}});
    editor.reply(&asked, chosen.clone()).await;
    editor.answer(&prompt).await;
    assert_eq!(outcome(&editor), chosen);
}

#[tokio::test]
async fn one_request_is_ended_and_what_waits_behind_it_goes_on() {
    let (rig, _) = hosted_server().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let first = editor.start_prompt(&session, "sleep").await;
    let second = editor.start_prompt(&session, "never").await;
    let third = editor.start_prompt(&session, "hello").await;
    editor.notify("$/cancel_request", json!({"requestId": second})).await;
    assert_eq!(editor.answer(&second).await["result"]["stopReason"], "cancelled");
    // A run that another protocol's client began in the thread continues too.
    let other = json!({
        "agent": "puppet", "input": "other", "thread_id": session, "strategy": "enqueue",
    });
    let alice = rig.alice();
    let others = tokio::spawn(async move { alice.post("/api/v1/runs", &other).await });
    let (alice, path) = (rig.alice(), format!("/api/v1/runs?thread_id={session}&status=queued"));
    while alice.get(&path).await.unwrap().ok().unwrap()["items"].as_array().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    editor.notify("$/cancel_request", json!({"requestId": first})).await;
    assert_eq!(editor.answer(&first).await["result"]["stopReason"], "cancelled");
    assert_eq!(editor.answer(&third).await["result"]["stopReason"], "end_turn");
    let others = others.await.unwrap().unwrap().ok().unwrap();
    assert_eq!(others["status"], "completed", "{others}");
    let said = editor.words("agent_message_chunk");
    assert!(!said.contains(&"never".to_owned()), "{said:?}");
    // Its question ends with it, and the client's answer has no effect.
    let prompt = editor.start_prompt(&session, "ask").await;
    let asked = editor.request("session/request_permission").await;
    editor.notify("$/cancel_request", json!({"requestId": prompt})).await;
    editor.reply(&asked, cancelled()).await;
    assert_eq!(editor.answer(&prompt).await["result"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn a_request_that_is_put_through_is_given_up_by_its_own_id() {
    let (rig, hosted) = hosted_server().await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    let slow = editor.ask("_x/slow", json!({"sessionId": session})).await;
    while hosted.recorded_calls("_x/slow").is_empty() {
        tokio::task::yield_now().await;
    }
    editor.notify("$/cancel_request", json!({"requestId": "other"})).await;
    editor.notify("$/cancel_request", json!({"requestId": slow})).await;
    assert_eq!(editor.answer(&slow).await["error"]["code"], -32800);
    assert_eq!(hosted.recorded_calls("given up").len(), 1);
}
