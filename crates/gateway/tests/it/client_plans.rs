//! Plans by id, and suggested prompts: for clients that know them, and for others.

use serde_json::{Value, json};

use crate::client_agent::plans;
use crate::client_editor::Editor;
use crate::client_hosted::hosted_server;
use crate::rig::Rig;

fn updates_about(editor: &Editor, word: &str) -> Vec<Value> {
    let all = editor.updates.iter().map(|params| params["update"].clone());
    all.filter(|update| update["sessionUpdate"].as_str().unwrap().contains(word)).collect()
}

/// The entries of the plans that a client with one plan received: text and status.
fn whole_plans(editor: &Editor) -> Vec<Value> {
    let plans = updates_about(editor, "plan");
    let plan = |plan: &Value| -> Value {
        assert_eq!(plan["sessionUpdate"], "plan");
        let entries = plan["entries"].as_array().unwrap().iter();
        entries.map(|entry| json!([entry["content"], entry["status"]])).collect()
    };
    plans.iter().map(plan).collect()
}

#[tokio::test]
async fn plans_by_id_reach_clients_with_and_without_them() {
    let (rig, _) = hosted_server().await;
    let (mut able, session) =
        rig.editor_socket().open_session_with("hosted", json!({"plan": {}})).await;
    let mut plain = rig.editor_socket().load_session("hosted", &session).await;
    able.prompt(&session, "plans").await;
    assert_eq!(updates_about(&able, "plan"), plans());
    plain.prompt(&session, "two").await;
    let (look, read) = (json!(["look", "pending"]), json!(["read", "completed"]));
    let changed = [json!(["look", "completed"]), json!(["write", "pending"])];
    let expected =
        [json!([look]), json!([look, read]), json!([changed[0], changed[1], read]), json!(changed)];
    assert_eq!(whole_plans(&plain), expected);
    // A replay gives both the same.
    let again = rig.editor_socket().load_session("hosted", &session).await;
    assert_eq!(whole_plans(&again), expected);
    let mut able_again = rig.editor_socket().with("hosted", json!({"plan": {}})).await;
    able_again.load(&session).await;
    assert_eq!(updates_about(&able_again, "plan"), plans());
}

#[tokio::test]
async fn a_plan_without_an_id_reaches_every_client_unchanged() {
    let (rig, _) = hosted_server().await;
    let (mut able, session) =
        rig.editor_socket().open_session_with("hosted", json!({"plan": {}})).await;
    let mut plain = rig.editor_socket().load_session("hosted", &session).await;
    able.prompt(&session, "all").await;
    plain.prompt(&session, "two").await;
    assert_eq!(updates_about(&able, "plan"), updates_about(&plain, "plan"));
    assert_eq!(updates_about(&able, "plan").len(), 1);
}

#[tokio::test]
async fn plans_of_an_agent_in_the_server_have_ids_too() {
    let rig = Rig::start().await;
    let (mut able, session) =
        rig.editor_socket().open_session_with("puppet", json!({"plan": {}})).await;
    let mut plain = rig.editor_socket().load_session("puppet", &session).await;
    able.prompt(&session, "plans").await;
    let shown = updates_about(&able, "plan");
    let entry = json!({"content": "look", "priority": "medium", "status": "pending"});
    let list = json!({"type": "items", "planId": "list", "entries": [entry]});
    let document = json!({"type": "markdown", "planId": "document", "content": "- [x] read"});
    let expected = [
        json!({"sessionUpdate": "plan_update", "plan": list}),
        json!({"sessionUpdate": "plan_update", "plan": document}),
        json!({"sessionUpdate": "plan_removed", "planId": "list"}),
    ];
    assert_eq!(shown, expected);
    plain.prompt(&session, "hello").await;
    let (look, read) = (json!(["look", "pending"]), json!(["read", "completed"]));
    assert_eq!(whole_plans(&plain), [json!([look]), json!([look, read]), json!([read])]);
    let log = rig.alice().get(&format!("/api/v1/threads/{session}/events")).await.unwrap();
    let events = log.json();
    let events = events["items"].as_array().unwrap().iter();
    let plans: Vec<_> =
        events.filter(|it| it["type"].as_str().unwrap().starts_with("state.plan")).collect();
    assert_eq!(plans[0]["type"], "state.plan_updated");
    assert_eq!(
        (&plans[0]["plan_id"], &plans[0]["entries"][0]["content"]),
        (&json!("list"), &json!("look"))
    );
    assert_eq!((&plans[1]["markdown"], &plans[1]["entries"]), (&json!("- [x] read"), &Value::Null));
    assert_eq!(
        (&plans[2]["type"], &plans[2]["plan_id"]),
        (&json!("state.plan_removed"), &json!("list"))
    );
}

#[tokio::test]
async fn suggested_prompts_reach_clients_that_show_them_while_they_are_live() {
    let (rig, _) = hosted_server().await;
    let can = json!({"session": {"promptSuggestions": {}, "cursors": {}}});
    let (mut able, session) = rig.editor_socket().open_session_with("hosted", can.clone()).await;
    let mut plain = rig.editor_socket().load_session("hosted", &session).await;
    able.prompt(&session, "suggest").await;
    plain.prompt(&session, "two").await;
    let suggested = updates_about(&able, "prompt_suggestions_update");
    assert_eq!(suggested[0]["suggestions"][0]["prompt"][0]["text"], "go on");
    assert_eq!((suggested.len(), updates_about(&plain, "suggestions").len()), (1, 0));
    // A cursor of the agent itself does not reach the client, which cannot use it here.
    let cursors = updates_about(&able, "cursor_update");
    assert!(cursors.iter().all(|cursor| cursor["cursorId"] != "its-own"), "{cursors:?}");
    let mut later = rig.editor_socket().with("hosted", can).await;
    later.load(&session).await;
    assert_eq!(updates_about(&later, "suggestions").len(), 0);
}
