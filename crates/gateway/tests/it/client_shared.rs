//! What clients that share an agent, a session or a server see of each other, and what the agent receives from them.

use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_domain::Rights;
use trilogue_gateway::{ClientOptions, MessageIdFormat};
use uuid::Uuid;

use crate::agent::Puppet;
use crate::client_agent::Hosted;
use crate::client_editor::{Editor, EditorSocket};
use crate::client_history::kinds;
use crate::client_hosted::hosted_server;
use crate::rig::{Rig, Setup};

fn load(session: &str) -> Value {
    json!({"sessionId": session, "cwd": "/w", "mcpServers": []})
}

fn option(editor: &Editor, id: &str) -> Value {
    let options = editor.updates.last().unwrap()["update"]["configOptions"].as_array().unwrap();
    let option = options.iter().find(|option| option["id"] == id);
    option.map_or(Value::Null, |option| option["currentValue"].clone())
}

#[tokio::test]
async fn an_option_that_one_client_sets_is_told_to_the_others() {
    let schema = json!({"type": "object", "properties": {
        "model": {"enum": ["small", "large"]}, "loud": {"type": "boolean"},
    }});
    let agents = vec![Arc::new(Puppet::configured("configured", &schema)) as _];
    let rig = Rig::of(Setup { agents, ..Setup::default() }).await;
    let able = json!({"session": {"configOptions": {"boolean": {}}}});
    let (mut first, session) = rig.editor_socket().open_session_with("configured", able).await;
    let mut second = rig.editor_socket().numbered("configured").await;
    second.load(&session).await;
    let set = |option: &str, value: Value| match value.is_boolean() {
        true => {
            json!({"sessionId": session, "configId": option, "type": "boolean", "value": value})
        }
        false => json!({"sessionId": session, "configId": option, "value": value}),
    };
    const METHOD: &str = "session/set_config_option";
    first.ok(METHOD, set("model", json!("large"))).await;
    second.wait_for_updates(1).await;
    assert_eq!(kinds(&second, 0), ["config_option_update"]);
    assert_eq!(option(&second, "model"), "large");
    assert_eq!(option(&second, "loud"), Value::Null, "it cannot show switches");
    second.ok(METHOD, set("model", json!("small"))).await;
    first.wait_for_updates(1).await;
    assert_eq!((option(&first, "model"), option(&first, "loud")), (json!("small"), json!(false)));
    first.ok(METHOD, set("loud", json!(true))).await;
    // A set that changes nothing, or that names an unknown option, is not sent to other clients.
    first.ok(METHOD, set("loud", json!(true))).await;
    first.prompt(&session, "hello").await;
    second.until(|it| it["params"]["update"]["content"]["text"] == "hello").await;
    let told = |editor: &Editor| {
        kinds(editor, 0).into_iter().filter(|kind| kind == "config_option_update").count()
    };
    assert_eq!((told(&first), told(&second)), (1, 2));
    // A later client gets the value in its response.
    let mut third = rig.editor_socket().plain("configured").await;
    let opened = third.load(&session).await;
    assert_eq!(opened["configOptions"][0]["currentValue"], "small");
    third.prompt(&session, "x").await;
    assert_eq!(told(&third), 0);
}

#[tokio::test]
async fn a_mode_that_one_client_sets_is_told_to_the_others_whether_or_not_the_agent_does() {
    let (rig, _) = hosted_server().await;
    let (mut first, session) = rig.editor_socket().open_session("hosted").await;
    let mut second = rig.editor_socket().load_session("hosted", &session).await;
    let from = second.updates.len();
    for mode in ["code", "quiet"] {
        first.ok("session/set_mode", json!({"sessionId": session, "modeId": mode})).await;
    }
    let set = json!({"sessionId": session, "configId": "s", "value": "b"});
    first.ok("session/set_config_option", set).await;
    second.wait_for_updates(from + 3).await;
    let told = &second.updates[from..];
    assert_eq!(told[0]["update"]["currentModeId"], "code");
    assert_eq!(told[1]["update"]["currentModeId"], "quiet");
    assert_eq!(told[2]["update"]["configOptions"][0]["currentValue"], "b");
    first.prompt(&session, "two").await;
    let own = kinds(&first, 0).into_iter().filter(|kind| !kind.ends_with("chunk"));
    // One update from the agent itself, and no duplicates.
    let expected = ["available_commands_update", "current_mode_update"];
    assert_eq!(own.collect::<Vec<_>>(), expected);
    let mut third = rig.editor_socket().plain("hosted").await;
    let opened = third.load(&session).await;
    assert_eq!(opened["modes"]["currentModeId"], "quiet");
    assert_eq!(opened["configOptions"][0]["currentValue"], "b");
}

#[tokio::test]
async fn what_is_told_reaches_its_own_session_in_order_and_no_other() {
    let (rig, hosted) = hosted_server().await;
    let mut first = rig.editor_socket().plain("hosted").await;
    let mine = first.session().await;
    let mut second = rig.editor_socket().plain("hosted").await;
    let theirs = second.session().await;
    for number in 0..50 {
        let of = if number % 2 == 0 { json!({"sessionId": mine}) } else { json!({}) };
        let mut params = of;
        params["n"] = json!(number);
        first.notify("_x/told", params).await;
    }
    for stranger in [json!(theirs), json!("nobody"), json!(5), Value::Null] {
        first.notify("_x/stranger", json!({"sessionId": stranger})).await;
    }
    // The agent gets a request of the session after the notifications before it.
    first.ok("_x/echo", json!({"sessionId": mine})).await;
    while hosted.recorded_calls("_x/told").len() < 50 {
        first.ok("session/list", json!({})).await;
    }
    let heard = hosted.recorded_calls("_x/told");
    for parity in [0, 1] {
        let ours = heard.iter().filter(|it| it["params"]["n"].as_u64().unwrap() % 2 == parity);
        let numbers: Vec<_> = ours.clone().map(|it| it["params"]["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers.len(), 25);
        assert!(numbers.is_sorted(), "{numbers:?}");
        let thread = if parity == 0 { json!(mine) } else { Value::Null };
        assert!(ours.clone().all(|it| it["thread"] == thread), "{heard:?}");
    }
    assert_eq!(hosted.recorded_calls("_x/stranger"), Vec::<Value>::new());
}

#[tokio::test]
async fn nothing_is_attached_to_what_an_agent_hears_under_the_name_of_a_parameter() {
    let (rig, hosted) = hosted_server().await;
    let mut editor = rig.editor_socket().plain("hosted").await;
    let meta = json!({"session_id": "evil", "kept": {"session_id": 1}, "mcp_servers": []});
    let kept = json!({"kept": {"session_id": 1}});
    let new = json!({"cwd": "/w", "mcpServers": [], "_meta": meta, "extra": 1.5});
    let opened = editor.ok("session/new", new).await;
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    let with = |mut params: Value| {
        params["_meta"] = meta.clone();
        params["extra"] = json!([1]);
        params
    };
    let ours = json!({"sessionId": session});
    let mode = json!({"sessionId": session, "modeId": "code"});
    editor.ok("session/set_mode", with(mode)).await;
    editor.ok("_x/echo", with(ours.clone())).await;
    editor.notify("_x/told", with(ours)).await;
    editor.ok("authenticate", with(json!({"methodId": "key"}))).await;
    editor.ok("session/resume", with(load(&session))).await;
    editor.prompt(&session, "two").await;
    for what in ["open", "session/set_mode", "_x/echo", "_x/told", "authenticate"] {
        let heard = hosted.recorded_calls(what);
        assert!(!heard.is_empty(), "{what}");
        for one in heard {
            assert_eq!(one["params"]["_meta"], kept, "{what}");
            assert!(one["params"]["extra"].is_number() || one["params"]["extra"].is_array());
        }
    }
    assert_eq!(hosted.recorded_calls("open").len(), 2);
}

#[tokio::test]
async fn where_an_agent_works_is_what_was_said_last() {
    let (rig, hosted) = hosted_server().await;
    let mut editor = rig.editor_socket().plain("hosted").await;
    let http = json!([{"type": "http", "name": "h", "url": "http://h", "headers": []}]);
    for (bad, path) in [
        (json!({"cwd": "/w", "mcpServers": http}), "/mcpServers/0"),
        (json!({"cwd": "w", "mcpServers": []}), "/cwd"),
        (
            json!({"cwd": "/w", "mcpServers": [], "additionalDirectories": ["/a", "b"]}),
            "/additionalDirectories/1",
        ),
    ] {
        let refused = editor.call("session/new", bad).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(refused.to_string().contains(path), "{refused}");
    }
    let new = json!({"cwd": "/one", "mcpServers": [], "additionalDirectories": ["/a", "/b"]});
    let session = editor.ok("session/new", new).await["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(
        hosted.recorded_calls("open")[0]["params"]["additionalDirectories"],
        json!(["/a", "/b"])
    );
    let listed = |listed: Value| {
        let session = &listed["sessions"][0];
        (session["cwd"].clone(), session["additionalDirectories"].clone())
    };
    let all = editor.ok("session/list", json!({})).await;
    assert_eq!(listed(all), (json!("/one"), json!(["/a", "/b"])));
    let mut other = load(&session);
    other["cwd"] = json!("/two");
    other["mcpServers"] = http;
    assert_eq!(editor.code("session/resume", other.clone()).await, -32602);
    other["mcpServers"] = json!([]);
    editor.ok("session/load", other).await;
    let all = editor.ok("session/list", json!({"cwd": "/two"})).await;
    assert_eq!(listed(all), (json!("/two"), Value::Null));
    let none = editor.ok("session/list", json!({"cwd": "/one"})).await;
    assert_eq!(none["sessions"], json!([]));
    // After a broken connection, the program repeats the parameters with which its editor opened the session.
    let mut back = rig.editor_socket().numbered("hosted").await;
    let servers = json!([{"name": "s", "command": "/bin/s", "args": [], "env": []}]);
    let attach =
        json!({"sessionId": session, "after": 1, "cwd": "/three", "mcpServers": servers, "x": 1});
    back.ok("_trilogue/attach", attach).await;
    back.prompt(&session, "two").await;
    let opened = hosted.recorded_calls("open").pop().unwrap()["params"].clone();
    let expected = json!({"sessionId": "", "cwd": "/three", "mcpServers": servers, "x": 1});
    assert_eq!(opened, expected);
    let all = editor.ok("session/list", json!({"cwd": "/three"})).await;
    assert_eq!(all["sessions"].as_array().unwrap().len(), 1);
    drop(rig);
}

#[tokio::test]
async fn threads_that_other_faces_have_begun_are_sessions_too() {
    let (rig, _) = hosted_server().await;
    let alice = rig.alice();
    let thread = "of-another-face";
    rig.run_on(thread, "hello").await;
    let stateless = json!({"agent_id": "puppet", "input": {"message": "hi"}});
    assert_eq!(alice.post("/connect/runs/wait", &stateless).await.unwrap().status, 200);
    let mut editor = rig.editor_socket().plain("puppet").await;
    let here = std::env::current_dir().unwrap();
    for asked in [json!({}), json!({"cwd": here})] {
        let listed = editor.ok("session/list", asked).await;
        let sessions = listed["sessions"].as_array().unwrap();
        assert_eq!(sessions.len(), 1, "{listed}");
        assert_eq!(
            (&sessions[0]["sessionId"], &sessions[0]["cwd"]),
            (&json!(thread), &json!(here))
        );
    }
    let elsewhere = editor.ok("session/list", json!({"cwd": "/elsewhere"})).await;
    assert_eq!(elsewhere["sessions"], json!([]));
    editor.ok("session/load", load(thread)).await;
    assert_eq!(editor.words("user_message_chunk"), ["hello"]);
    let mut hosted = rig.editor_socket().plain("hosted").await;
    assert_eq!(hosted.ok("session/list", json!({})).await["sessions"], json!([]));
}

#[tokio::test]
async fn ids_that_are_made_uuids_are_the_same_live_and_again() {
    let client =
        ClientOptions { message_id_format: MessageIdFormat::Uuid, ..ClientOptions::default() };
    let agents = vec![Arc::new(Hosted::new()) as _];
    let rig = Rig::of(Setup { agents, client, ..Setup::default() }).await;
    let (mut first, session) = rig.editor_socket().open_session("hosted").await;
    let mut second = rig.editor_socket().load_session("hosted", &session).await;
    let prompt = json!([{"type": "text", "text": "two"}]);
    let params = json!({"sessionId": session, "messageId": "no-uuid", "prompt": prompt});
    // An id that no client can be shown is not acknowledged.
    let answer = first.ok("session/prompt", params).await;
    assert!(answer.get("userMessageId").is_none(), "{answer}");
    first.prompt(&session, "all").await;
    let ids = |editor: &Editor| {
        let chunks = editor.updates.iter().map(|it| &it["update"]["messageId"]);
        chunks.filter(|id| !id.is_null()).cloned().collect::<Vec<_>>()
    };
    let live = ids(&first);
    assert_eq!(live.len(), 8, "{live:?}");
    let is_uuid = |id: &Value| id.as_str().is_some_and(|id| Uuid::parse_str(id).is_ok());
    assert!(live.iter().all(is_uuid), "{live:?}");
    assert_eq!(live[0], live[1]);
    assert_ne!(live[1], live[2]);
    let third = rig.editor_socket().load_session("hosted", &session).await;
    let of_agent = |editor: &Editor| {
        let chunks = editor.updates.iter().map(|it| &it["update"]);
        let chunks = chunks.filter(|it| it["sessionUpdate"] != "user_message_chunk");
        chunks.map(|it| it["messageId"].clone()).filter(|id| !id.is_null()).collect::<Vec<_>>()
    };
    assert_eq!(of_agent(&third), live);
    second.prompt(&session, "two").await;
    assert_eq!(of_agent(&second)[..live.len()], live);
}

#[tokio::test]
async fn what_is_told_of_a_session_does_not_wait_for_what_was_asked_of_it() {
    let (rig, hosted) = hosted_server().await;
    let (mut editor, session) = rig.editor_socket().open_session("hosted").await;
    let upload = editor.ask("_x/upload", json!({"sessionId": session})).await;
    editor.notify("_x/chunk", json!({"sessionId": session, "data": "AAAA"})).await;
    assert_eq!(editor.answer(&upload).await["result"], json!({}));
    let heard: Vec<_> = hosted.heard.lock().unwrap().iter().map(|it| it["what"].clone()).collect();
    assert_eq!(heard[heard.len() - 2..], ["_x/upload", "_x/chunk"]);
}

#[tokio::test]
async fn a_turn_that_somebody_else_began_says_who() {
    let (rig, _) = hosted_server().await;
    rig.token("alpha", "bob", Rights::all(), false).await;
    let (mut first, session) = rig.editor_socket().open_session("hosted").await;
    let door = EditorSocket::in_name_of(&rig, "alpha", "bob");
    let mut second = door.load_session("hosted", &session).await;
    first.prompt(&session, "hello").await;
    second.until(|it| it["params"]["update"]["content"]["text"] == "hello").await;
    let begun = |editor: &Editor| {
        let updates = editor.updates.iter().map(|it| &it["update"]);
        let mut chunks = updates.filter(|it| it["sessionUpdate"] == "user_message_chunk");
        chunks.next().map(|chunk| chunk["_meta"]["trilogue"].clone())
    };
    assert_eq!(begun(&second), Some(json!({ "created_by": "alice" })));
    assert_eq!(begun(&first), None);
    // The history has the same creator for clients that do not know it.
    for (door, by) in
        [(&door, json!({ "created_by": "alice" })), (rig.editor_socket(), Value::Null)]
    {
        let mut later = door.plain("hosted").await;
        later.load(&session).await;
        assert_eq!(begun(&later), Some(by));
    }
}

#[tokio::test]
async fn requests_of_two_clients_with_one_id_get_their_own_responses() {
    let rig = Rig::start().await;
    let (mut first, one) = rig.editor_socket().open_session("puppet").await;
    let (mut second, two) = rig.editor_socket().open_session("puppet").await;
    let prompt = |session: &str| {
        let text = json!([{"type": "text", "text": "sleep"}]);
        let params = json!({"sessionId": session, "prompt": text});
        json!({"jsonrpc": "2.0", "id": "same", "method": "session/prompt", "params": params})
    };
    first.raw(format!("{}\n", prompt(&one)).as_bytes()).await;
    second.raw(format!("{}\n", prompt(&two)).as_bytes()).await;
    first.notify("session/cancel", json!({"sessionId": one})).await;
    let ended = first.answer(&json!("same")).await;
    assert_eq!(ended["result"]["stopReason"], "cancelled", "{ended}");
    second.ok("session/status", json!({"sessionId": two})).await;
    assert!(!second.has_before(|it| it["id"] == "same"));
    second.notify("session/cancel", json!({"sessionId": two})).await;
    let ended = second.answer(&json!("same")).await;
    assert_eq!(ended["result"]["stopReason"], "cancelled", "{ended}");
}
