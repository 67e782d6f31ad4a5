//! Agents that speak the protocol themselves: their updates arrive unchanged.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use trilogue_domain::event::{Body, MessageEvent};
use trilogue_domain::{Json, ThreadId};
use trilogue_runtime::{Backend, ThreadPatch};
use trilogue_testkit::parts::principal;
use trilogue_testkit::wait::until;

use crate::client_agent::{Hosted, gated, samples};
use crate::client_editor::Editor;
use crate::rig::{Rig, Setup};

pub(crate) async fn hosted_server() -> (Rig, Arc<Hosted>) {
    let hosted = Arc::new(Hosted::new());
    let agents = vec![Arc::clone(&hosted) as _];
    let rig = Rig::of(Setup { agents, ..Setup::default() }).await;
    (rig, hosted)
}

fn received_updates(editor: &Editor) -> Vec<Value> {
    editor.updates.iter().map(|params| params["update"].clone()).collect()
}

#[tokio::test]
async fn everything_comes_as_it_was_said_live_and_again() {
    let (rig, _) = hosted_server().await;
    let (mut first, session) = rig.editor_socket().open_session("hosted").await;
    let mut second = rig.editor_socket().load_session("hosted", &session).await;
    first.prompt(&session, "all").await;
    // The commands that it sent while its session was opened come after the response.
    let mut expected =
        vec![json!({"sessionUpdate": "available_commands_update", "availableCommands": []})];
    expected.extend(samples());
    assert_eq!(received_updates(&first), expected);
    second.wait_for_updates(expected.len() + 1).await;
    let third = rig.editor_socket().load_session("hosted", &session).await;
    assert_eq!(received_updates(&second), received_updates(&third));
    let said = |editor: &Editor| {
        let mut told = received_updates(editor);
        told.retain(|update| update["sessionUpdate"] != "user_message_chunk");
        told
    };
    assert_eq!(said(&third), expected);
}

#[tokio::test]
async fn what_the_protocol_has_no_word_for_passes_through() {
    let (rig, _) = hosted_server().await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    let prompt = editor.start_prompt(&session, "unknown").await;
    // The schema does not define these members.
    let mut lines = Vec::new();
    loop {
        let line = editor.line().await.unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"] == prompt {
            break;
        }
        lines.push(line);
    }
    let update = format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{{"sessionUpdate":"later_update","what":[1]}}}}}}"#
    );
    let other = format!(
        r#"{{"jsonrpc":"2.0","method":"_x/told","params":{{"n":1.5,"sessionId":"{session}"}}}}"#
    );
    let same = |line: &String, wanted: &str| {
        serde_json::from_str::<Value>(line).unwrap()
            == serde_json::from_str::<Value>(wanted).unwrap()
    };
    assert!(lines.iter().any(|line| same(line, &update)), "{lines:?}");
    assert!(lines.iter().any(|line| same(line, &other)), "{lines:?}");
}

#[tokio::test]
async fn who_cannot_show_something_is_not_told_of_it() {
    let (rig, _) = hosted_server().await;
    let all =
        json!({"session": {"notices": {}, "compaction": {}, "configOptions": {"boolean": {}}}});
    let mut able = rig.editor_socket().with("hosted", all).await;
    let mut plain = rig.editor_socket().plain("hosted").await;
    let session = able.session().await;
    plain.load(&session).await;
    able.prompt(&session, "gated").await;
    assert_eq!(received_updates(&able)[1..], gated());
    plain.prompt(&session, "two").await;
    let options: Vec<_> = received_updates(&plain)
        .into_iter()
        .filter(|it| !it["sessionUpdate"].as_str().unwrap().ends_with("chunk"))
        .collect();
    // Each opening of the agent's session sends the commands, and the options without the switch.
    assert_eq!(options.len(), 3, "{options:?}");
    let kept: Vec<_> =
        options[1]["configOptions"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(kept, ["s"]);
}

#[tokio::test]
async fn two_messages_in_a_row_stay_two_and_the_agents_own_result_comes_back() {
    let (rig, _) = hosted_server().await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    editor.prompt(&session, "two").await;
    let [(one, first), (two, second)] = &editor.texts_by_message("agent_message_chunk")[..] else {
        panic!()
    };
    assert_eq!((first.as_str(), second.as_str()), ("first!", "second!"));
    assert_ne!(one, two);
    let mine = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";
    let params = json!({
        "sessionId": session, "messageId": mine,
        "prompt": [{"type": "text", "text": "result"}],
    });
    let result = editor.ok("session/prompt", params).await;
    let usage = json!({"totalTokens": 3, "inputTokens": 1, "outputTokens": 2});
    let expected = json!({"stopReason": "max_tokens", "usage": usage, "userMessageId": mine});
    assert_eq!(result, expected);
    let prompt = editor.start_prompt(&session, "fail").await;
    let answer = editor.answer(&prompt).await;
    assert_eq!(answer["error"]["code"], -32010, "{answer}");
}

#[tokio::test]
async fn a_session_of_the_agents_own_is_opened_at_once_or_when_it_is_needed() {
    let (rig, hosted) = hosted_server().await;
    let mut editor = rig.editor_socket().plain("hosted").await;
    let servers = json!([{"name": "s", "command": "/bin/s", "args": [], "env": []}]);
    let new = json!({"cwd": "/work", "mcpServers": servers});
    let opened = editor.ok("session/new", new).await;
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(opened["modes"]["currentModeId"], "ask");
    assert_eq!(opened["_meta"], json!({"opened": true}));
    assert_eq!(hosted.recorded_calls("open")[0]["params"]["mcpServers"], servers);
    editor.ok("session/set_mode", json!({"sessionId": session, "modeId": "code"})).await;
    let heard = &hosted.recorded_calls("session/set_mode")[0];
    assert_eq!(heard["thread"], json!(session));
    assert_eq!(heard["params"]["sessionId"], "");
    editor.wait_for_updates(2).await;
    // A client that opens the session again gets the modes from the log, without a request to the agent.
    let mut second = rig.editor_socket().plain("hosted").await;
    for method in ["session/load", "session/resume"] {
        let open = json!({"sessionId": session, "cwd": "/other", "mcpServers": []});
        let opened = second.ok(method, open).await;
        assert_eq!(opened["modes"]["currentModeId"], "code", "{method} {opened}");
        assert_eq!(hosted.recorded_calls("open").len(), 1);
    }
    second.prompt(&session, "two").await;
    let opened = hosted.recorded_calls("open");
    assert_eq!((opened.len(), &opened[1]["params"]["cwd"]), (2, &json!("/other")));
    second.prompt(&session, "two").await;
    assert_eq!(hosted.recorded_calls("open").len(), 2);
    // A session that the agent refuses to open does not exist.
    let forbidden = json!({"cwd": "/forbidden", "mcpServers": []});
    assert_eq!(editor.code("session/new", forbidden).await, -32000);
    let listed = editor.ok("session/list", json!({})).await;
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn authentication_and_extensions_are_put_through() {
    let (rig, hosted) = hosted_server().await;
    let mut editor = rig.editor_socket().editor("hosted").await;
    let said = editor.initialize(json!({"terminal": true})).await;
    assert_eq!(said["authMethods"], json!([{"id": "key", "name": "A key"}]));
    assert_eq!(said["agentCapabilities"]["promptCapabilities"]["image"], true);
    assert_eq!(hosted.recorded_calls("meet")[0]["params"], json!({"terminal": true}));
    assert_eq!(editor.ok("authenticate", json!({"methodId": "key"})).await, json!({}));
    assert_eq!(editor.ok("logout", json!({})).await, json!({}));
    assert_eq!(editor.ok("_x/echo", json!({"a": [1]})).await, json!({"a": [1]}));
    assert_eq!(editor.code("_x/nothing", json!({})).await, -32601);
    assert_eq!(editor.code("proxy/initialize", json!({"cwd": "/w"})).await, -32601);
    let session = editor.session().await;
    let echoed = editor.ok("_x/echo", json!({"sessionId": session, "b": 2})).await;
    assert_eq!(echoed, json!({"sessionId": "", "b": 2}));
    editor.notify("_x/told", json!({"c": 3})).await;
    editor.ok("session/close", json!({"sessionId": session})).await;
    assert_eq!(hosted.recorded_calls("close")[0]["thread"], json!(session));
    let mut native = rig.editor_socket().plain("puppet").await;
    assert_eq!(native.code("_x/echo", json!({})).await, -32601);
    assert_eq!(native.code("authenticate", json!({"methodId": "key"})).await, -32602);
    assert_eq!(native.code("logout", json!({})).await, -32601);
}

#[tokio::test]
async fn a_block_that_the_agent_does_not_take_is_refused() {
    let (rig, _) = hosted_server().await;
    let audio = json!([{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]);
    let image = json!([{"type": "image", "data": "AAAA", "mimeType": "image/png"}]);
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    let answer =
        editor.call("session/prompt", json!({"sessionId": session, "prompt": audio})).await;
    assert_eq!(answer["error"]["code"], -32602);
    assert!(answer.to_string().contains("audio"), "{answer}");
    editor.ok("session/prompt", json!({"sessionId": session, "prompt": image})).await;
}

#[tokio::test]
async fn a_session_is_listed_as_its_agent_calls_it_unless_somebody_does() {
    let (rig, hosted) = hosted_server().await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    let by = principal("alpha", "alice");
    let id = ThreadId::parse(&session).unwrap();
    let row = rig.store.thread(&by.scope(), &id).await.unwrap().unwrap();
    let context = rig.runtime.thread_context(&row, &hosted.card().name);
    let called = async |title: Option<&str>| {
        let body = Body::Message(MessageEvent::Thought { message: None, text: "hm".into() });
        context.append_title_event(body, None, title).await.unwrap();
    };
    let named = async |title: Value| {
        let metadata = Some(Json::from_value(&json!({ "trilogue.title": title })));
        let patch = ThreadPatch { metadata, ..ThreadPatch::default() };
        rig.runtime.patch_thread(&by, &id, patch).await.unwrap();
    };
    let mut listed = async || {
        let listed = editor.ok("session/list", json!({})).await;
        listed["sessions"][0].get("title").cloned()
    };
    assert_eq!(listed().await, None);
    called(Some("The agent's")).await;
    assert_eq!(listed().await, Some(json!("The agent's")));
    named(json!("Mine")).await;
    called(Some("Another")).await;
    assert_eq!(listed().await, Some(json!("Mine")));
    named(Value::Null).await;
    assert_eq!(listed().await, Some(json!("Another")));
    called(None).await;
    assert_eq!(listed().await, None);
}

#[tokio::test]
async fn a_cancellation_reaches_an_agent_that_works_without_a_run() {
    let (rig, hosted) = hosted_server().await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    editor.prompt(&session, "two").await;
    editor.notify("session/cancel", json!({ "sessionId": session })).await;
    let cancelled = || {
        let was_asked = hosted.recorded_calls("session/cancel").len() == 1;
        async move { was_asked.then_some(()) }
    };
    until("the cancellation at the agent", Duration::from_secs(20), cancelled).await.unwrap();
}
