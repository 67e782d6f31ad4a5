//! An agent's messages and requests may be as large as a line, and arrive unchanged.

use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_domain::{Failure, InterruptId};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::RunContext;
use trilogue_wire::agent_client::{RequestPermissionRequest, Rules, read};

use crate::client_agent::{Hosted, emit, lost};
use crate::client_editor::Editor;
use crate::rig::{Rig, Setup};

const MIB: usize = 1024 * 1024;

/// The agent's updates: two large ones, with small ones between and after them.
fn updates() -> Vec<Value> {
    let text = |text: String| json!({"type": "text", "text": text});
    vec![
        json!({"sessionUpdate": "agent_message_chunk", "messageId": "7b0e4f0a-1d7c-4a39-8a54-6d2f5a1c000a", "content": text("before".to_owned())}),
        json!({"sessionUpdate": "agent_message_chunk", "messageId": "7b0e4f0a-1d7c-4a39-8a54-6d2f5a1c000a", "content": text("ä\\".repeat(3 * MIB + MIB / 3)), "extra": {"n": 1.5}}),
        json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Write", "status": "pending"}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "content": [{"type": "diff", "path": "/a", "newText": "y".repeat(10 * MIB)}], "_meta": {"x": 1}}),
        json!({"sessionUpdate": "agent_message_chunk", "messageId": "7b0e4f0a-1d7c-4a39-8a54-6d2f5a1c000b", "content": text("behind".to_owned())}),
    ]
}

fn question() -> Value {
    json!({
        "sessionId": "",
        "toolCall": {"toolCallId": "c", "title": "Write", "content": [{"type": "diff", "path": "/a", "newText": "q".repeat(5 * MIB)}]},
        "options": [
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ],
    })
}

/// Sends large updates or requests, as the prompt of the hosted agent asks.
pub(crate) async fn say(context: &RunContext, what: &str) -> Result<(), Failure> {
    if what == "ask" {
        let raw = question().to_string();
        let params: RequestPermissionRequest =
            read(raw.as_bytes(), Rules::Lenient).map_err(lost)?;
        let asked = mapping::interrupt_of_permission(&params, &raw, InterruptId::generate());
        context.ask(asked).await.map_err(lost)?;
        return Ok(());
    }
    for update in updates() {
        emit(context, &update).await?;
    }
    Ok(())
}

async fn hosted_servers() -> Vec<Rig> {
    let mut houses = Vec::new();
    for on_disk in [false, true] {
        let agents = vec![Arc::new(Hosted::new()) as _];
        let rig = Rig::of(Setup { agents, on_disk, ..Setup::default() }).await;
        houses.push(rig);
    }
    houses
}

/// The received updates of this session, without the user's messages and the agent's capabilities.
fn received_updates(editor: &Editor) -> Vec<Value> {
    let updates = editor.updates.iter().map(|params| params["update"].clone());
    let others = ["user_message_chunk", "available_commands_update"];
    updates.filter(|it| others.iter().all(|other| it["sessionUpdate"] != *other)).collect()
}

/// Asserts equality, without printing megabytes on failure.
fn assert_same(found: &[Value], expected: &[Value]) {
    assert_eq!(found.len(), expected.len());
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(found == expected, "{place}: {:.300}", found.to_string());
    }
}

#[tokio::test]
async fn large_updates_come_as_they_were_said_live_and_again() {
    for rig in hosted_servers().await {
        let (mut first, session) = rig.editor_socket().open_session("hosted").await;
        let mut second = rig.editor_socket().load_session("hosted", &session).await;
        let answer = first.prompt(&session, "much").await;
        assert_eq!(answer["stopReason"], "end_turn");
        assert_same(&received_updates(&first), &updates());
        second.wait_for_updates(first.updates.len() + 1).await;
        assert_same(&received_updates(&second), &updates());
        let third = rig.editor_socket().load_session("hosted", &session).await;
        assert_same(&received_updates(&third), &updates());
    }
}

#[tokio::test]
async fn a_large_question_is_asked_whole_of_whoever_is_there_and_comes() {
    for rig in hosted_servers().await {
        let (mut first, session) = rig.editor_socket().open_session("hosted").await;
        let prompt = first.start_prompt(&session, "much ask").await;
        let asked = first.request("session/request_permission").await;
        let mut expected = question();
        expected["sessionId"] = json!(session);
        assert!(asked["params"] == expected, "{:.300}", asked.to_string());
        let mut second = rig.editor_socket().load_session("hosted", &session).await;
        let again = second.request("session/request_permission").await;
        assert!(again["params"] == expected, "{:.300}", again.to_string());
        second.choose(&again, "yes").await;
        assert_eq!(first.answer(&prompt).await["result"]["stopReason"], "end_turn");
    }
}

#[tokio::test]
async fn a_large_prompt_is_shown_as_the_text_that_it_is() {
    for rig in hosted_servers().await {
        let (mut first, session) = rig.editor_socket().open_session("hosted").await;
        let mut second = rig.editor_socket().load_session("hosted", &session).await;
        // The agent's response to it is short.
        let text = format!("result {}", "ä".repeat(9 * MIB / 2));
        let block = json!({"type": "text", "text": text});
        let prompt = json!([block, {"type": "text", "text": "behind"}]);
        first.ok("session/prompt", json!({"sessionId": session, "prompt": prompt})).await;
        let third = rig.editor_socket().load_session("hosted", &session).await;
        let whole = format!("{text}behind");
        let heard = |editor: &Editor| editor.words("user_message_chunk").concat().len();
        while heard(&second) < whole.len() {
            let known = second.updates.len();
            second.wait_for_updates(known + 1).await;
        }
        for editor in [&second, &third] {
            let said = editor.words("user_message_chunk");
            assert!(said.len() == 1 && said[0] == whole, "{:.300}", said[0]);
        }
    }
}
