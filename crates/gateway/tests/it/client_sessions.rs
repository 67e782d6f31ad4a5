//! How a connection begins, and the life of sessions.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::rig::Rig;

#[tokio::test]
async fn a_connection_begins_with_the_highest_version_that_both_know() {
    let rig = Rig::start().await;
    for asked in [0, 1, 2, 65535] {
        let mut editor = rig.editor_socket().editor("puppet").await;
        let params = json!({"protocolVersion": asked, "clientCapabilities": {"fs": 5}});
        let said = editor.ok("initialize", params).await;
        assert_eq!(said["protocolVersion"], 1, "{asked}");
        let can = &said["agentCapabilities"];
        assert_eq!(can["loadSession"], true);
        let abilities =
            ["list", "resume", "close", "delete", "fork", "status", "title", "archive", "options"];
        for ability in abilities {
            assert!(can["sessionCapabilities"][ability].is_object(), "{ability} in {can}");
        }
        assert_eq!(editor.ok("initialize", json!({"protocolVersion": 1})).await, said);
    }
    let mut editor = rig.editor_socket().editor("puppet").await;
    for bad in [json!({}), json!({"protocolVersion": "1"}), json!({"protocolVersion": 70000})] {
        assert_eq!(editor.code("initialize", bad.clone()).await, -32602, "{bad}");
    }
}

#[tokio::test]
async fn what_comes_behind_initialize_waits_for_it_and_nothing_comes_before() {
    let rig = Rig::start().await;
    let mut editor = rig.editor_socket().editor("puppet").await;
    let new = json!({"cwd": "/w", "mcpServers": []});
    assert_eq!(editor.code("session/new", new.clone()).await, -32600);
    let first = editor.ask("initialize", json!({"protocolVersion": 1})).await;
    let second = editor.ask("session/new", new).await;
    let one = editor.message().await.unwrap();
    let two = editor.message().await.unwrap();
    assert_eq!((&one["id"], &two["id"]), (&first, &second));
    assert!(two["result"]["sessionId"].is_string(), "{two}");
}

#[tokio::test]
async fn a_prompt_is_answered_behind_everything_that_was_said() {
    let rig = Rig::start().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    for round in 1..=3 {
        let id = editor.start_prompt(&session, "count 20").await;
        let answer = editor.answer(&id).await;
        assert_eq!(answer["result"]["stopReason"], "end_turn");
        let said = editor.words("agent_message_chunk");
        assert_eq!(said.len(), 20 * round);
        assert_eq!(said.last().map(String::as_str), Some("part 19"));
    }
    assert!(editor.words("user_message_chunk").is_empty(), "{:?}", editor.updates);
}

#[tokio::test]
async fn a_session_is_told_again_as_it_was_told_and_outlives_its_client() {
    let rig = Rig::start().await;
    let (mut first, session) = rig.editor_socket().open_session("puppet").await;
    // A second client that did not prompt sees all of it, live.
    let mut second = rig.editor_socket().plain("puppet").await;
    let load = json!({"sessionId": session, "cwd": "/work", "mcpServers": []});
    second.ok("session/load", load.clone()).await;
    for text in ["hello", "large", "fail", "panic", "think"] {
        let id = first.start_prompt(&session, text).await;
        first.answer(&id).await;
    }
    let live = {
        let id = second.start_prompt(&session, "bye").await;
        second.answer(&id).await;
        let heard =
            first.until(|it| it["params"]["update"]["sessionUpdate"] == "user_message_chunk").await;
        assert_eq!(heard["params"]["update"]["content"]["text"], "bye");
        second.updates.clone()
    };
    drop(first);
    let mut third = rig.editor_socket().plain("puppet").await;
    third.ok("session/load", load).await;
    let said = |updates: &[Value]| {
        updates
            .iter()
            .filter(|it| it["update"]["content"]["text"] != "bye")
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(said(&third.updates), said(&live));
    assert_eq!(third.words("user_message_chunk").len(), 6);
    third.prompt(&session, "again").await;
    assert_eq!(third.words("agent_message_chunk").last().unwrap(), "again");
}

#[tokio::test]
async fn a_resumed_session_tells_nothing_of_what_was() {
    let rig = Rig::start().await;
    let (mut first, session) = rig.editor_socket().open_session("puppet").await;
    first.prompt(&session, "hello").await;
    let mut second = rig.editor_socket().plain("puppet").await;
    second.ok("session/resume", json!({"sessionId": session, "cwd": "/work"})).await;
    second.prompt(&session, "more").await;
    assert_eq!(second.words("agent_message_chunk"), ["more"]);
}

#[tokio::test]
async fn sessions_are_listed_by_agent_and_folder_in_pages() {
    let rig = Rig::start().await;
    let mut editor = rig.editor_socket().plain("puppet").await;
    rig.run_on("of-another-face", "hello").await;
    let mut made = Vec::new();
    for number in 0..105 {
        let cwd = if number % 5 == 0 { "/five" } else { "/other" };
        let new = json!({"cwd": cwd, "mcpServers": [], "additionalDirectories": ["/more"]});
        let session = editor.ok("session/new", new).await["sessionId"].clone();
        made.push(session.clone());
        editor.ok("session/close", json!({"sessionId": session})).await;
    }
    made.reverse();
    let first = editor.ok("session/list", json!({})).await;
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = editor.ok("session/list", json!({"cursor": cursor})).await;
    assert!(second.get("nextCursor").is_none(), "{second}");
    let both = [&first, &second].into_iter().flat_map(|page| page["sessions"].as_array().unwrap());
    let listed: Vec<_> = both.map(|it| it["sessionId"].clone()).collect();
    // A thread that another protocol's client began is a session too, the oldest.
    made.push("of-another-face".into());
    assert_eq!(listed, made);
    let five = editor.ok("session/list", json!({"cwd": "/five"})).await;
    assert_eq!(five["sessions"].as_array().unwrap().len(), 21);
    assert_eq!(five["sessions"][0]["additionalDirectories"], json!(["/more"]));
    assert_eq!(editor.ok("session/list", json!({"cwd": "/none"})).await["sessions"], json!([]));
    assert_eq!(editor.code("session/list", json!({"cursor": "x"})).await, -32602);
}

#[tokio::test]
async fn what_is_not_there_is_not_found_and_can_be_deleted() {
    let rig = Rig::start().await;
    let mut editor = rig.editor_socket().plain("puppet").await;
    for id in ["nobody", "019a0000-0000-7000-8000-000000000000"] {
        let there = json!({"sessionId": id, "cwd": "/w", "mcpServers": []});
        for method in ["session/load", "session/resume", "session/close", "session/set_mode"] {
            let mut params = there.clone();
            params["modeId"] = "x".into();
            let answer = editor.call(method, params).await;
            assert_eq!(answer["error"]["code"], -32002, "{method} {answer}");
            assert_eq!(answer["error"]["data"]["sessionId"], id);
        }
        let prompt = json!({"sessionId": id, "prompt": []});
        assert_eq!(editor.code("session/prompt", prompt).await, -32002);
        editor.ok("session/delete", json!({"sessionId": id})).await;
        editor.notify("session/cancel", json!({"sessionId": id})).await;
    }
    let relative = json!({"cwd": "here", "mcpServers": []});
    assert_eq!(editor.code("session/new", relative).await, -32602);
}

#[tokio::test]
async fn closing_ends_the_turn_and_deleting_removes_everything() {
    let rig = Rig::start().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let prompt = editor.start_prompt(&session, "sleep").await;
    let queued = editor.start_prompt(&session, "never").await;
    let close = editor.ask("session/close", json!({"sessionId": session})).await;
    for id in [&prompt, &queued] {
        assert_eq!(editor.answer(id).await["result"]["stopReason"], "cancelled");
    }
    assert_eq!(editor.answer(&close).await["result"], json!({}));
    // A closed session can be opened again.
    let load = json!({"sessionId": session, "cwd": "/work", "mcpServers": []});
    editor.ok("session/load", load.clone()).await;
    let prompt = editor.start_prompt(&session, "sleep").await;
    editor.ok("session/delete", json!({"sessionId": session})).await;
    assert_eq!(editor.answer(&prompt).await["result"]["stopReason"], "cancelled");
    assert_eq!(editor.code("session/load", load).await, -32002);
    editor.ok("session/delete", json!({"sessionId": session})).await;
    assert_eq!(editor.ok("session/list", json!({})).await["sessions"], json!([]));
}

#[tokio::test]
async fn cancelling_ends_the_turn_and_what_waits_for_it() {
    let rig = Rig::start().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let first = editor.start_prompt(&session, "sleep").await;
    let second = editor.start_prompt(&session, "never").await;
    editor.notify("session/cancel", json!({"sessionId": session})).await;
    for id in [&first, &second] {
        let answer = editor.answer(id).await;
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer}");
    }
    assert!(editor.words("agent_message_chunk").is_empty());
    // A request can also be cancelled by its id; an unknown id has no effect.
    let third = editor.start_prompt(&session, "sleep").await;
    editor.notify("$/cancel_request", json!({"requestId": "nothing"})).await;
    editor.notify("$/cancel_request", json!({"requestId": third})).await;
    assert_eq!(editor.answer(&third).await["result"]["stopReason"], "cancelled");
    assert_eq!(editor.prompt(&session, "and on").await["stopReason"], "end_turn");
}

#[tokio::test]
async fn what_a_second_prompt_does_is_configured() {
    use trilogue_gateway::{ClientOptions, WhenBusy};
    let of = |when_busy| ClientOptions { when_busy, ..ClientOptions::default() };
    let rig = Rig::with(of(WhenBusy::Reject)).await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let first = editor.start_prompt(&session, "sleep").await;
    let second = editor.start_prompt(&session, "now").await;
    assert_eq!(editor.answer(&second).await["error"]["code"], -32600);
    editor.notify("session/cancel", json!({"sessionId": session})).await;
    editor.answer(&first).await;
    let rig = Rig::with(of(WhenBusy::Interrupt)).await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let first = editor.start_prompt(&session, "sleep").await;
    let second = editor.start_prompt(&session, "now").await;
    assert_eq!(editor.answer(&first).await["result"]["stopReason"], "cancelled");
    assert_eq!(editor.answer(&second).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.words("agent_message_chunk"), ["now"]);
}

#[tokio::test]
async fn every_request_that_opens_a_session_is_answered() {
    let rig = Rig::start().await;
    let mut first = rig.editor_socket().numbered("puppet").await;
    let session = first.session().await;
    for _ in 0..4 {
        first.prompt(&session, "large").await;
    }
    let opens = json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
    let mut second = rig.editor_socket().plain("puppet").await;
    // Two requests in sequence: each one gets the whole history, then its response.
    let loads = [
        second.ask("session/load", opens.clone()).await,
        second.ask("session/load", opens.clone()).await,
    ];
    second.answer(&loads[0]).await;
    let all = second.updates.len();
    assert!(second.answer(&loads[1]).await["result"].is_object());
    assert_eq!(second.updates.len(), 2 * all);
    // The session is closed or removed meanwhile: the response is an error, or the whole history came first.
    for ends in ["session/close", "session/delete"] {
        let load = second.ask("session/load", opens.clone()).await;
        let resume = second.ask("session/resume", opens.clone()).await;
        second.ok(ends, json!({"sessionId": session})).await;
        for asked in [load, resume] {
            let answer = second.answer(&asked).await;
            let code = answer["error"]["code"].as_i64();
            assert!(matches!(code, None | Some(-32800 | -32002)), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_session_that_is_resumed_behind_a_return_misses_nothing() {
    let rig = Rig::start().await;
    let mut first = rig.editor_socket().numbered("puppet").await;
    let session = first.session().await;
    for text in ["large", "large", "large", "last"] {
        first.prompt(&session, text).await;
    }
    let all = first.words("agent_message_chunk");
    drop(first);
    let mut back = rig.editor_socket().numbered("puppet").await;
    let attach = back.ask("_trilogue/attach", json!({"sessionId": session, "after": 1})).await;
    let opens = json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
    let resume = back.ask("session/resume", opens).await;
    assert_eq!(back.answer(&attach).await["result"], json!({}));
    assert!(back.answer(&resume).await["result"].is_object());
    assert_eq!(back.words("agent_message_chunk"), all);
}

#[tokio::test]
async fn a_session_that_somebody_else_removes_answers_whoever_waits() {
    for rig in [Rig::start().await, Rig::on_disk().await] {
        let mut other = rig.editor_socket().plain("puppet").await;
        for by_client in [true, false] {
            let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
            let prompt = editor.start_prompt(&session, "ask").await;
            let asked = editor.request("session/request_permission").await;
            if by_client {
                other.ok("session/delete", json!({"sessionId": session})).await;
            } else {
                let path = format!("/api/v1/threads/{session}");
                let alice = rig.alice();
                let erased = alice.send(Method::DELETE, &path, &[], Bytes::new()).await.unwrap();
                assert_eq!(erased.status, 204);
            }
            let withdrawn = editor.wait_for_notification("$/cancel_request").await;
            assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
            let answer = editor.answer(&prompt).await;
            // The id of its message is unknown again, so it is not acknowledged.
            assert_eq!(answer["result"], json!({"stopReason": "cancelled"}));
            // The session is gone as if it had never been opened, and the client continues with a new one.
            let again = json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
            assert_eq!(editor.code("session/load", again).await, -32002);
            let next = editor.session().await;
            let answer = editor.prompt(&next, "hello").await;
            assert_eq!(answer["stopReason"], "end_turn", "{answer}");
        }
    }
}
