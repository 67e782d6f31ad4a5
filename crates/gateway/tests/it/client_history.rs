//! The positions that a numbered connection receives, and the updates of a session that is opened again.

use serde_json::{Value, json};

use crate::client_agent::calls;
use crate::client_editor::Editor;
use crate::client_hosted::hosted_server;
use crate::rig::{Rig, Setup};

pub(crate) fn kinds(editor: &Editor, from: usize) -> Vec<String> {
    let kinds = editor.updates[from..].iter().map(|it| &it["update"]["sessionUpdate"]);
    kinds.map(|kind| kind.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_history_moves_a_client_nowhere_before_it_is_answered() {
    let rig = Rig::of(Setup { on_disk: true, ..Setup::default() }).await;
    let (mut first, session) = rig.editor_socket().open_session("puppet").await;
    for _ in 0..3 {
        first.prompt(&session, "count 400").await;
        first.prompt(&session, "large").await;
    }
    let mut second = rig.editor_socket().numbered("puppet").await;
    // The session is already open, and is loaded once more.
    for round in 0..2 {
        second.control.clear();
        let params = json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
        let load = second.ask("session/load", params).await;
        let (mut lines, mut history) = (0, Vec::new());
        let at_answer = loop {
            let line = second.line().await.unwrap();
            if line.starts_with('#') {
                history.push(line);
                continue;
            }
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == load {
                break second.line().await.unwrap();
            }
            lines += 1;
        };
        assert!(lines > 1_000, "{lines}");
        assert!(history.len() > 3, "{round}: the history is one batch: {history:?}");
        assert!(history.iter().all(|line| line == "#."), "{round}: {history:?}");
        let position = at_answer.strip_prefix(&format!("#P {session} ")).unwrap();
        assert!(position.parse::<u64>().unwrap() > 1_000, "{at_answer}");
    }
}

#[tokio::test]
async fn a_session_that_is_resumed_has_its_commands_behind_the_answer() {
    let (rig, _) = hosted_server().await;
    let (mut first, session) = rig.editor_socket().open_session("hosted").await;
    first.prompt(&session, "all").await;
    let mut second = rig.editor_socket().numbered("hosted").await;
    let resume = json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
    second.ok("session/resume", resume).await;
    assert_eq!(kinds(&second, 0), Vec::<String>::new());
    second.wait_for_updates(1).await;
    let told = &second.updates[0]["update"];
    assert_eq!(told["sessionUpdate"], "available_commands_update");
    assert_eq!(told["availableCommands"], json!([{"name": "web", "description": "search"}]));
    // A client that receives the history gets the commands in it, once.
    let mut third = rig.editor_socket().load_session("hosted", &session).await;
    second.prompt(&session, "two").await;
    third.until(|it| it["params"]["update"]["content"]["text"] == "second").await;
    let commands = |editor: &Editor| {
        let commands = kinds(editor, 0).into_iter();
        commands.filter(|kind| kind == "available_commands_update").count()
    };
    // Each opening of the agent's own session sends commands, and so do the samples.
    assert_eq!(commands(&third), 3, "{:?}", third.updates);
}

#[tokio::test]
async fn no_tool_call_stays_at_work_when_its_run_has_failed() {
    let (rig, _) = hosted_server().await;
    let (mut first, session) = rig.editor_socket().open_session("hosted").await;
    let mut second = rig.editor_socket().load_session("hosted", &session).await;
    let failed = |id: &str| json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "failed"});
    let mut expected = Vec::new();
    for how in ["fail", "cancel", "end"] {
        let prompt = first.start_prompt(&session, &format!("open-calls {how}")).await;
        if how == "cancel" {
            first.wait_for_updates(2 * calls().len() + 3).await;
            first.notify("session/cancel", json!({"sessionId": session})).await;
        }
        first.answer(&prompt).await;
        expected.extend(calls());
        if how != "end" {
            expected.extend([failed("c-1"), failed("c-3")]);
        }
    }
    let told = |editor: &Editor| {
        let told = editor.updates.iter().map(|it| it["update"].clone());
        let is_call = |it: &Value| it["sessionUpdate"].as_str().unwrap().starts_with("tool_call");
        told.filter(is_call).collect::<Vec<_>>()
    };
    assert_eq!(told(&first), expected);
    first.prompt(&session, "two").await;
    second.until(|it| it["params"]["update"]["content"]["text"] == "second").await;
    assert_eq!(told(&second), expected);
    let third = rig.editor_socket().load_session("hosted", &session).await;
    assert_eq!(told(&third), expected);
}

#[tokio::test]
async fn that_a_form_was_visited_is_told_while_it_is_news_and_to_who_can_show_it() {
    let (rig, _) = hosted_server().await;
    let mut able = rig.editor_socket().with("hosted", json!({"elicitation": {"url": {}}})).await;
    let mut plain = rig.editor_socket().plain("hosted").await;
    let session = able.session().await;
    plain.load(&session).await;
    able.prompt(&session, "visited").await;
    let told = able.wait_for_notification("elicitation/complete").await;
    assert_eq!(told["params"], json!({"sessionId": session, "elicitationId": "e"}));
    let mut later = rig.editor_socket().with("hosted", json!({"elicitation": {"url": {}}})).await;
    later.load(&session).await;
    for editor in [&mut plain, &mut later] {
        editor.prompt(&session, "two").await;
        let is_it = |it: &Value| it["method"] == "elicitation/complete";
        assert!(!editor.has_before(is_it), "it was told");
    }
}

#[tokio::test]
async fn a_call_that_was_at_work_when_the_connection_broke_ends_for_who_comes_back() {
    let (rig, _) = hosted_server().await;
    let mut first = rig.editor_socket().numbered("hosted").await;
    let session = first.session().await;
    first.start_prompt(&session, "open-calls cancel").await;
    first.until(|it| it["params"]["update"]["toolCallId"] == "c-3").await;
    // The position after the last update.
    first.control.clear();
    first.until_control(|line| line.starts_with("#P")).await;
    let head = format!("#P {session} ");
    let after = first.control.iter().rev().find_map(|line| line.strip_prefix(&head));
    let after: u64 = after.unwrap().parse().unwrap();
    drop(first);
    // Its turn ends while the client is disconnected.
    let mut other = rig.editor_socket().load_session("hosted", &session).await;
    other.notify("session/cancel", json!({"sessionId": session})).await;
    let has_ended = |it: &Value| it["params"]["update"]["status"] == "failed";
    other.until(has_ended).await;
    let mut back = rig.editor_socket().numbered("hosted").await;
    let attach = json!({"sessionId": session, "after": after});
    back.ok("_trilogue/attach", attach).await;
    back.prompt(&session, "two").await;
    let failed = back.updates.iter().filter(|it| it["update"]["status"] == "failed");
    let failed: Vec<_> = failed.map(|it| it["update"]["toolCallId"].clone()).collect();
    assert!(failed.contains(&json!("c-3")), "{:?}", back.updates);
}
