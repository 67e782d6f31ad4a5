//! Methods about whole sessions: copies, status, titles, archive and options.

use serde_json::{Value, json};

use crate::client_editor::Editor;
use crate::client_hosted::hosted_server;
use crate::rig::Rig;

fn cursors(editor: &Editor, session: &str) -> Vec<Value> {
    let mut all = editor.updates_of(session);
    all.retain(|update| update["sessionUpdate"] == "cursor_update");
    all
}

/// The messages of a session as a client receives them that opens it.
async fn history(rig: &Rig, agent: &str, session: &str) -> Vec<String> {
    let editor = rig.editor_socket().load_session(agent, session).await;
    let mut texts = editor.words("user_message_chunk");
    texts.extend(editor.words("agent_message_chunk"));
    texts
}

async fn fork(editor: &mut Editor, session: &str, cursor: Option<&Value>) -> String {
    let mut params = json!({"sessionId": session, "cwd": "/copy", "mcpServers": []});
    if let Some(cursor) = cursor {
        params["cursorId"] = cursor.clone();
    }
    let forked = editor.ok("session/fork", params).await;
    forked["sessionId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_session_is_copied_whole_or_up_to_a_cursor() {
    let (rig, hosted) = hosted_server().await;
    let can = json!({"session": {"cursors": {}}});
    let (mut editor, session) = rig.editor_socket().open_session_with("hosted", can).await;
    editor.prompt(&session, "one").await;
    editor.prompt(&session, "open-calls").await;
    editor.prompt(&session, "three").await;
    let places = cursors(&editor, &session);
    let kinds: Vec<_> = places.iter().map(|cursor| cursor["anchor"]["type"].clone()).collect();
    let expected = [
        "user_message",
        "agent_message",
        "user_message",
        "tool_call",
        "user_message",
        "agent_message",
    ];
    assert_eq!(kinds, expected);
    for cursor in &places {
        assert_eq!(cursor["capabilities"], json!({"fork": {}}));
        assert_eq!(cursor["anchor"]["position"], "after");
    }
    let said = editor.texts_by_message("agent_message_chunk");
    assert_eq!(places[1]["anchor"]["messageId"], said[0].0);
    assert_eq!(places[3]["anchor"]["toolCallId"], "c-2");

    let whole = fork(&mut editor, &session, None).await;
    assert_eq!(history(&rig, "hosted", &whole).await.len(), 5);
    let first = fork(&mut editor, &session, Some(&places[1]["cursorId"])).await;
    assert_eq!(history(&rig, "hosted", &first).await, ["one", "one!"]);
    let at_call = fork(&mut editor, &session, Some(&places[3]["cursorId"])).await;
    let copied = rig.editor_socket().load_session("hosted", &at_call).await;
    assert_eq!(copied.words("user_message_chunk"), ["one", "open-calls"]);
    let calls = copied.updates_of(&at_call);
    assert!(calls.iter().any(|call| call["toolCallId"] == "c-2"), "{calls:?}");
    assert!(calls.iter().all(|call| call["toolCallId"] != "c-3"), "{calls:?}");

    // The agent opened a session of its own for each copy, without the members that the server handles.
    let opened = hosted.recorded_calls("open");
    assert_eq!(opened.len(), 4);
    assert_eq!(opened[3]["params"]["cwd"], "/copy");
    // A turn in a copy is not in its source.
    editor.prompt(&first, "more").await;
    assert_eq!(history(&rig, "hosted", &session).await.len(), 5);
    assert_eq!(history(&rig, "hosted", &first).await, ["one", "more", "one!", "more!"]);
}

#[tokio::test]
async fn only_known_cursors_and_sessions_are_copied() {
    let rig = Rig::start().await;
    let can = json!({"session": {"cursors": {}}});
    let (mut editor, session) = rig.editor_socket().open_session_with("puppet", can).await;
    editor.prompt(&session, "one").await;
    let place = cursors(&editor, &session)[0]["cursorId"].clone();
    let params = |session: &str, cursor: &Value| json!({"sessionId": session, "cwd": "/w", "cursorId": cursor});
    for unknown in ["", "after-9999", "after-0", "1"] {
        assert_eq!(editor.code("session/fork", params(&session, &json!(unknown))).await, -32602);
    }
    // The history can be copied only at the places that cursors name: elsewhere it would have half a message.
    let last: u64 = place.as_str().unwrap().strip_prefix("after-").unwrap().parse().unwrap();
    for number in 1..=last {
        let cursor: Value = format!("after-{number}").into();
        let copied = editor.call("session/fork", params(&session, &cursor)).await;
        assert_eq!(copied["error"].is_null(), cursor == place, "{cursor}: {copied}");
    }
    assert_eq!(editor.code("session/fork", params("nothing", &place)).await, -32002);
    let relative = json!({"sessionId": session, "cwd": "w"});
    assert_eq!(editor.code("session/fork", relative).await, -32602);
    // A turn that did not end well has no cursors: its events are not part of the history.
    let before = cursors(&editor, &session).len();
    let id = editor.start_prompt(&session, "fail").await;
    editor.answer(&id).await;
    editor.prompt(&session, "two").await;
    assert_eq!(cursors(&editor, &session).len(), before + 2);
    // Clients without cursors get none.
    let plain = rig.editor_socket().load_session("puppet", &session).await;
    assert_eq!(cursors(&plain, &session).len(), 0);
}

#[tokio::test]
async fn a_session_has_a_status_and_a_title() {
    let rig = Rig::start().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let params = json!({"sessionId": session});
    let status = async |editor: &mut Editor| {
        editor.ok("session/status", json!({"sessionId": session})).await["status"].clone()
    };
    assert_eq!(status(&mut editor).await, "open");
    editor.ok("session/close", params).await;
    // The session's task ends behind the response.
    while status(&mut editor).await != "saved" {}
    // The question does not open it.
    assert_eq!(status(&mut editor).await, "saved");
    assert_eq!(editor.code("session/status", json!({"sessionId": "nothing"})).await, -32002);
    assert_eq!(editor.code("session/status", json!({})).await, -32602);

    let title = json!({"sessionId": session, "title": " My\nplan "});
    assert_eq!(editor.ok("session/set_title", title).await, json!({"title": "My plan"}));
    let listed = editor.ok("session/list", json!({})).await;
    assert_eq!(listed["sessions"][0]["title"], "My plan");
    let empty = json!({"sessionId": session, "title": " \n"});
    assert_eq!(editor.code("session/set_title", empty).await, -32602);
    let other = json!({"sessionId": "nothing", "title": "a"});
    assert_eq!(editor.code("session/set_title", other).await, -32002);
}

#[tokio::test]
async fn an_archived_session_is_hidden_and_stays() {
    let rig = Rig::start().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let other = editor.session().await;
    let prompt = editor.start_prompt(&session, "sleep").await;
    let params = json!({"sessionId": session});
    assert_eq!(editor.ok("session/archive", params.clone()).await, json!({}));
    // Its turn is cancelled, as when it is closed.
    assert!(
        editor.has_before(|it| it["id"] == prompt && it["result"]["stopReason"] == "cancelled")
    );
    let listed = async |editor: &mut Editor, filter: Value| -> Vec<(Value, Value)> {
        let listed = editor.ok("session/list", filter).await;
        let sessions = listed["sessions"].as_array().unwrap().iter();
        sessions.map(|it| (it["sessionId"].clone(), it["archived"].clone())).collect()
    };
    let (kept, hidden) = ((json!(other), json!(false)), (json!(session), json!(true)));
    assert_eq!(listed(&mut editor, json!({})).await, std::slice::from_ref(&kept));
    assert_eq!(
        listed(&mut editor, json!({"archived": "exclude"})).await,
        std::slice::from_ref(&kept)
    );
    assert_eq!(
        listed(&mut editor, json!({"archived": "only"})).await,
        std::slice::from_ref(&hidden)
    );
    let mut all = listed(&mut editor, json!({"archived": "include"})).await;
    all.sort_by_key(|(_, archived)| archived.to_string());
    assert_eq!(all, [kept, hidden]);
    assert_eq!(editor.code("session/list", json!({"archived": "later"})).await, -32602);
    editor.ok("session/archive", params.clone()).await;
    editor.ok("session/unarchive", params.clone()).await;
    editor.ok("session/unarchive", params).await;
    assert_eq!(listed(&mut editor, json!({})).await.len(), 2);
    for method in ["session/archive", "session/unarchive"] {
        assert_eq!(editor.code(method, json!({"sessionId": "nothing"})).await, -32002);
    }
}

#[tokio::test]
async fn the_options_of_a_new_session_are_those_of_the_newest_one() {
    let (rig, _) = hosted_server().await;
    let mut editor = rig.editor_socket().plain("hosted").await;
    let ask = json!({"cwd": "/w"});
    assert_eq!(editor.ok("session/options", ask.clone()).await, json!({}));
    let session = editor.session().await;
    editor.ok("session/set_mode", json!({"sessionId": session, "modeId": "code"})).await;
    let options = editor.ok("session/options", ask.clone()).await;
    assert_eq!(options["modes"]["currentModeId"], "code");
    assert_eq!(options["_meta"], json!({"trilogue": {"from_session": session}}));
    let own = editor.ok("session/options", json!({"cwd": "/w", "sessionId": session})).await;
    assert_eq!(own["modes"], options["modes"]);
    let unknown = json!({"cwd": "/w", "sessionId": "nothing"});
    assert_eq!(editor.code("session/options", unknown).await, -32002);
    assert_eq!(editor.code("session/options", json!({"cwd": "w"})).await, -32602);
    // The request opens nothing.
    let listed = editor.ok("session/list", json!({})).await;
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_session_begins_with_the_options_that_its_client_chose() {
    let (rig, hosted) = hosted_server().await;
    let mut editor = rig.editor_socket().plain("hosted").await;
    let chosen = json!([{"configId": "s", "value": "b"}]);
    let new = json!({"cwd": "/w", "mcpServers": [], "configOptions": chosen});
    let opened = editor.ok("session/new", new).await;
    assert_eq!(opened["configOptions"][0]["currentValue"], "b");
    let set = hosted.recorded_calls("session/set_config_option");
    assert_eq!(
        (&set[0]["params"]["configId"], &set[0]["params"]["value"]),
        (&json!("s"), &json!("b"))
    );
    let twice = json!([{"configId": "s", "value": "a"}, {"configId": "s", "value": "b"}]);
    let new = json!({"cwd": "/w", "mcpServers": [], "configOptions": twice});
    assert_eq!(editor.code("session/new", new).await, -32602);
    // An agent without system prompts does not get one.
    let prompt = json!({"mode": "append", "content": [{"type": "text", "text": "be brief"}]});
    let new = json!({"cwd": "/w", "mcpServers": [], "systemPrompt": prompt});
    assert_eq!(editor.code("session/new", new).await, -32602);
}
