//! What a client of the Agent Client Protocol may do from elsewhere, by the rights of its token.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use trilogue_domain::{Right, Rights};
use trilogue_gateway::{ClientOptions, ClientProtocol, Mount};
use trilogue_testkit::Editor;

use crate::client_agent::Hosted;
use crate::client_hosted::hosted_server;
use crate::rig::{LIMIT, Rig, Setup, user};
use crate::websocket::{self, bridge, exchange, upgrade};

/// A client over the network that has sent nothing.
async fn connected(rig: &Rig, agent: &str, principal: &str) -> Editor {
    let token = format!("Bearer alpha-{principal}");
    let request = upgrade(&format!("/client/{agent}"), &[("authorization", &token)]);
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    let head = exchange(&mut stream, &request).await;
    assert_eq!(head.status, 101, "{head:?}");
    let socket = WebSocketStream::from_partially_read(stream, head.rest, Role::Client, None).await;
    bridge(socket)
}

async fn client(rig: &Rig, agent: &str, principal: &str) -> Editor {
    client_with(rig, agent, principal, json!({})).await
}

async fn client_with(rig: &Rig, agent: &str, principal: &str, can: Value) -> Editor {
    let mut editor = connected(rig, agent, principal).await;
    editor.initialize(can).await;
    editor
}

/// Adds a token with these rights, whose principal is named after them.
async fn token(rig: &Rig, principal: &str, rights: &[Right]) {
    let rights: Rights = rights.iter().copied().collect();
    rig.token("alpha", principal, rights, false).await;
}

async fn network_programs() -> (Rig, Arc<Hosted>) {
    let hosted = Arc::new(Hosted::new());
    let options = ClientOptions { network_programs: true, ..ClientOptions::default() };
    let client = ClientProtocol::for_network(options, None);
    let mounts = Some(vec![Mount::new(client, "/client").unwrap()]);
    let agents = vec![Arc::clone(&hosted) as _];
    (Rig::of(Setup { agents, mounts, ..Setup::default() }).await, hosted)
}

fn opening(session: &str, cwd: &str) -> Value {
    json!({"sessionId": session, "cwd": cwd, "mcpServers": []})
}

async fn thread(rig: &Rig, session: &str) -> Value {
    rig.alice().get(&format!("/api/v1/threads/{session}")).await.unwrap().ok().unwrap()
}

#[tokio::test]
async fn each_method_needs_the_rights_that_the_same_act_needs_elsewhere() {
    let (rig, hosted) = hosted_server().await;
    let (_alice, session) = rig.editor_socket().open_session("hosted").await;
    let kinds: [(&str, &[Right]); 4] = [
        ("reader", &[Right::Read]),
        ("answerer", &[Right::Read, Right::Answer]),
        ("runner", &[Right::Read, Right::Run]),
        ("user", &[Right::Read, Right::Run, Right::Answer]),
    ];
    let text = json!([{"type": "text", "text": "hello"}]);
    let of_session = json!({"sessionId": session});
    let cases = [
        ("session/list", json!({}), Vec::new()),
        ("session/status", of_session.clone(), Vec::new()),
        ("session/load", opening(&session, "/w"), Vec::new()),
        ("session/resume", opening(&session, "/w"), Vec::new()),
        ("session/close", of_session.clone(), Vec::new()),
        ("session/new", json!({"cwd": "/w", "mcpServers": []}), vec![Right::Run]),
        ("session/options", json!({"cwd": "/w"}), vec![Right::Run]),
        ("session/fork", opening(&session, "/w"), vec![Right::Run]),
        ("session/prompt", json!({"sessionId": session, "prompt": text}), vec![Right::Run]),
        ("session/set_title", json!({"sessionId": session, "title": "T"}), vec![Right::Run]),
        ("session/archive", of_session.clone(), vec![Right::Run]),
        ("session/unarchive", of_session.clone(), vec![Right::Run]),
        (
            "session/set_mode",
            json!({"sessionId": session, "modeId": "code"}),
            vec![Right::Run, Right::Answer],
        ),
        (
            "session/set_config_option",
            json!({"sessionId": session, "configId": "s", "value": "b"}),
            vec![Right::Run, Right::Answer],
        ),
        ("_x/echo", json!({"a": 1}), vec![Right::Run, Right::Answer]),
        ("authenticate", json!({"methodId": "key"}), vec![Right::Admin]),
        ("logout", json!({}), vec![Right::Admin]),
        ("session/delete", of_session.clone(), vec![Right::Admin]),
    ];
    for (name, rights) in kinds {
        token(&rig, name, rights).await;
        let mut editor = client(&rig, "hosted", name).await;
        for (method, params, needs) in &cases {
            let answer = editor.call(method, params.clone()).await;
            let missing = needs.iter().find(|right| !rights.contains(right));
            let Some(missing) = missing else {
                assert!(answer.get("result").is_some(), "{name} {method}: {answer}");
                continue;
            };
            let error = &answer["error"];
            assert_eq!(error["data"]["code"], "forbidden", "{name} {method}: {answer}");
            let right = format!("'{}'", missing.as_str());
            assert!(
                error["message"].as_str().unwrap().contains(&right),
                "{name} {method}: {error}"
            );
        }
    }
    assert_eq!(hosted.recorded_calls("authenticate").len(), 0);
    let mut admin = client(&rig, "hosted", "alice").await;
    admin.ok("authenticate", json!({"methodId": "key"})).await;
    admin.ok("session/delete", of_session).await;
}

#[tokio::test]
async fn a_client_that_only_reads_observes_and_changes_nothing() {
    let (rig, hosted) = hosted_server().await;
    let able = json!({"fs": {"readTextFile": true}});
    let (mut alice, session) = rig.editor_socket().open_session_with("hosted", able.clone()).await;
    token(&rig, "reader", &[Right::Read]).await;
    let mut reader = client_with(&rig, "hosted", "reader", able).await;
    let before = thread(&rig, &session).await["metadata"].clone();
    reader.ok("session/load", opening(&session, "/elsewhere/b")).await;
    assert_eq!(thread(&rig, &session).await["metadata"], before);
    // The agent's files are those of the client that prompts, and its questions too.
    let prompt = alice.start_prompt(&session, "read /a").await;
    let asked = alice.request("fs/read_text_file").await;
    alice.reply(&asked, json!({"content": "of alice"})).await;
    alice.answer(&prompt).await;
    let prompt = alice.start_prompt(&session, "permission").await;
    let asked = alice.request("session/request_permission").await;
    // A cancellation of the observer has no effect.
    reader.notify("session/cancel", json!({"sessionId": session})).await;
    reader.ok("session/status", json!({"sessionId": session})).await;
    alice.choose(&asked, "always").await;
    assert_eq!(alice.answer(&prompt).await["result"]["stopReason"], "end_turn");
    reader.until(|it| it.to_string().contains("always")).await;
    assert!(!reader.has_before(|it| it.get("id").is_some() && it.get("method").is_some()));
    reader.ok("session/close", json!({"sessionId": session})).await;
    assert_eq!(hosted.recorded_calls("close"), Vec::<Value>::new());
    assert_eq!(hosted.recorded_calls("open").len(), 1, "the observer opened nothing");
    alice.prompt(&session, "two").await;
}

#[tokio::test]
async fn who_only_reads_ends_no_run_of_a_client_that_it_names() {
    let rig = Rig::start().await;
    let mut alice = websocket::numbered(&rig, "hers").await;
    let session = alice.session().await;
    let prompt = alice.start_prompt(&session, "ask").await;
    let asked = alice.request("session/request_permission").await;
    token(&rig, "reader", &[Right::Read]).await;
    let mut reader = websocket::numbered_by(&rig, "alpha-reader", "hers").await;
    reader.ok("session/load", opening(&session, "/w")).await;
    reader.ok("session/close", json!({"sessionId": session})).await;
    alice.choose(&asked, "yes").await;
    assert_eq!(alice.answer(&prompt).await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn a_client_without_the_right_to_answer_is_not_asked() {
    let (rig, _) = hosted_server().await;
    token(&rig, "runner", &[Right::Read, Right::Run]).await;
    let mut runner = client(&rig, "hosted", "runner").await;
    let session = runner.session().await;
    let prompt = runner.start_prompt(&session, "permission").await;
    let mut alice = client(&rig, "hosted", "alice").await;
    alice.load(&session).await;
    let asked = alice.request("session/request_permission").await;
    alice.choose(&asked, "always").await;
    assert_eq!(runner.answer(&prompt).await["result"]["stopReason"], "end_turn");
    assert!(!runner.has_before(|it| it["method"] == "session/request_permission"));
    // Options in the opening are settings too.
    let options = json!([{"configId": "s", "value": "b"}]);
    let new = json!({"cwd": "/w", "mcpServers": [], "configOptions": options});
    let refused = runner.call("session/new", new).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("'answer'"), "{refused}");
}

#[tokio::test]
async fn a_question_as_text_waits_for_a_client_that_may_answer() {
    let rig = Rig::start().await;
    token(&rig, "runner", &[Right::Read, Right::Run]).await;
    let mut runner = client(&rig, "puppet", "runner").await;
    let session = runner.session().await;
    let prompt = runner.start_prompt(&session, "form").await;
    let can = json!({"elicitation": {"form": {}}});
    let mut alice = rig.editor_socket().with("puppet", can).await;
    alice.load(&session).await;
    let asked = alice.request("elicitation/create").await;
    // Its next prompt counts as a new turn, not as an answer.
    runner.prompt(&session, "mine").await;
    assert!(!runner.has_before(|it| it["id"] == prompt));
    alice.reply(&asked, json!({"action": "accept", "content": {"name": "x"}})).await;
    assert_eq!(runner.answer(&prompt).await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn a_token_for_its_own_sees_and_reaches_only_its_own_sessions() {
    let rig = Rig::start().await;
    rig.token("alpha", "bob", user(), true).await;
    let (_alice, others) = rig.editor_socket().open_session("puppet").await;
    let mut bob = client(&rig, "puppet", "bob").await;
    let own = bob.session().await;
    bob.prompt(&own, "hello").await;
    let listed = bob.ok("session/list", json!({"cwd": "/work"})).await;
    let ids: Vec<_> =
        listed["sessions"].as_array().unwrap().iter().map(|it| &it["sessionId"]).collect();
    assert_eq!(ids, [&json!(own)]);
    for method in ["session/load", "session/resume", "session/fork", "session/status"] {
        assert_eq!(bob.code(method, opening(&others, "/w")).await, -32002, "{method}");
    }
    let prompt = json!({"sessionId": others, "prompt": [{"type": "text", "text": "x"}]});
    assert_eq!(bob.code("session/prompt", prompt).await, -32002);
}

#[tokio::test]
async fn a_run_of_a_client_elsewhere_names_the_network_and_the_token() {
    let (rig, hosted) = hosted_server().await;
    rig.token("alpha", "bob", user(), false).await;
    let mut bob = client(&rig, "hosted", "bob").await;
    let session = bob.session().await;
    bob.prompt(&session, "two").await;
    let path = format!("/api/v1/threads/{session}/events");
    let events = rig.alice().get(&path).await.unwrap().ok().unwrap();
    let events = events["items"].as_array().unwrap();
    let created = events.iter().find(|event| event["type"] == "run.created").unwrap();
    let audit = &created["audit"];
    assert_eq!((&audit["source"], &audit["can_answer"]), (&json!("network"), &json!(true)));
    assert_eq!(audit["principal"], "bob");
    assert!(audit["token_id"].is_string(), "{audit}");
    let opener = json!({"source": "network", "folder": null});
    assert_eq!(hosted.recorded_calls("opener")[0]["params"], opener);
}

#[tokio::test]
async fn a_client_elsewhere_chooses_folders_as_a_run_does() {
    let (rig, hosted) = hosted_server().await;
    rig.token("alpha", "bob", user(), false).await;
    let mut bob = client(&rig, "hosted", "bob").await;
    let session = bob.session_in("/work".as_ref()).await;
    let inner = json!({"cwd": "/work", "mcpServers": [], "additionalDirectories": ["/elsewhere"]});
    let mut further = inner.clone();
    further["sessionId"] = json!(session);
    // A repeated member must not hide a folder from the check.
    let twice = r#"{"jsonrpc":"2.0","id":"twice","method":"session/new","params":{"cwd":"/work","cwd":"/elsewhere","mcpServers":[]}}"#;
    for (method, params) in [
        ("session/new", json!({"cwd": "/elsewhere", "mcpServers": []})),
        ("session/new", inner),
        ("session/load", opening(&session, "/elsewhere/x")),
        ("session/load", further),
        ("session/resume", opening(&session, "/elsewhere")),
        ("session/fork", opening(&session, "/elsewhere")),
        ("session/options", json!({"cwd": "/elsewhere"})),
    ] {
        let refused = bob.call(method, params).await;
        assert_eq!(refused["error"]["data"]["code"], "forbidden", "{method} {refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("agents.hosted.roots"), "{method} {refused}");
    }
    bob.raw(format!("{twice}\n").as_bytes()).await;
    let answer = bob.answer(&json!("twice")).await;
    for opened in hosted.recorded_calls("open") {
        assert!(!opened["params"].to_string().contains("elsewhere"), "{answer} {opened}");
    }
    assert_eq!(thread(&rig, &session).await["metadata"]["trilogue.cwd"], "/work");
    // A program on this machine may.
    let mut alice = rig.editor_socket().plain("hosted").await;
    alice.session_in("/elsewhere".as_ref()).await;
}

#[tokio::test]
async fn a_client_elsewhere_starts_no_programs_unless_the_settings_allow_it() {
    let program = json!({"name": "s", "command": "/bin/s", "args": [], "env": []});
    let new = |servers: Value| json!({"cwd": "/w", "mcpServers": servers, "_meta": {"x": {"executable": "/bin/x"}}, "later": 1});
    let (rig, hosted) = hosted_server().await;
    let mut alice = client(&rig, "hosted", "alice").await;
    for servers in [json!([program]), json!([program, program])] {
        let refused = alice.call("session/new", new(servers)).await;
        assert_eq!(refused["error"]["data"]["code"], "forbidden", "{refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("client.network_programs"), "{refused}");
    }
    let refused = alice.call("session/options", new(json!([program]))).await;
    assert_eq!(refused["error"]["data"]["code"], "forbidden", "{refused}");
    assert_eq!(hosted.recorded_calls("open").len(), 0);
    alice.ok("session/new", new(json!([]))).await;
    let opened = &hosted.recorded_calls("open")[0]["params"];
    assert_eq!((opened.get("_meta"), opened.get("later")), (None, None), "{opened}");

    let (rig, hosted) = network_programs().await;
    let mut alice = client(&rig, "hosted", "alice").await;
    alice.ok("session/new", new(json!([program]))).await;
    let opened = &hosted.recorded_calls("open")[0]["params"];
    assert_eq!(opened["mcpServers"], json!([program]));
    assert_eq!(opened["_meta"]["x"]["executable"], "/bin/x");
}

/// The program, its way to the server, its principal and its part in the session.
async fn attached(rig: &Rig, session: &str) -> Vec<String> {
    let found = thread(rig, session).await;
    let clients = found["clients"].as_array().cloned().unwrap_or_default();
    let lines = clients.iter().map(|it| {
        let text = |member: &str| it[member].as_str().unwrap_or("-").to_owned();
        let role = if it["controls"] == true { "controls" } else { "observes" };
        let (name, version) = (text("name"), text("version"));
        format!("{name} {version} {} {} {role}", text("transport"), text("principal"))
    });
    lines.collect()
}

#[tokio::test]
async fn the_clients_of_a_session_are_listed_with_their_roles() {
    let rig = Rig::start().await;
    let (alice, session) = rig.editor_socket().open_session("puppet").await;
    token(&rig, "reader", &[Right::Read]).await;
    rig.token("alpha", "bob", user(), false).await;
    let mut reader = connected(&rig, "puppet", "reader").await;
    let info = json!({"name": "viewer", "title": "Viewer", "version": "1.2"});
    let hello = json!({"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": info});
    reader.ok("initialize", hello).await;
    reader.ok("session/load", opening(&session, "/w")).await;
    let mut bob = client(&rig, "puppet", "bob").await;
    bob.load(&session).await;
    let mut expected = vec![
        "- - local alice controls".to_owned(),
        "Viewer 1.2 websocket reader observes".to_owned(),
        "- - websocket bob observes".to_owned(),
    ];
    assert_eq!(attached(&rig, &session).await, expected);
    // The client that prompts takes the agent's calls.
    bob.prompt(&session, "hello").await;
    expected[0] = "- - local alice observes".to_owned();
    expected[2] = "- - websocket bob controls".to_owned();
    assert_eq!(attached(&rig, &session).await, expected);
    let status = rig.alice().get("/api/v1/status").await.unwrap().ok().unwrap();
    let bob_now = &status["clients"][2];
    assert_eq!(bob_now["sessions"], json!([{"thread_id": session, "controls": true}]), "{status}");
    assert_eq!(
        (&bob_now["principal"], &bob_now["transport"]),
        (&json!("bob"), &json!("websocket"))
    );
    // A client that closes the session or disconnects is not listed any more.
    reader.ok("session/close", json!({"sessionId": session})).await;
    drop(alice);
    trilogue_testkit::until("the clients to leave", LIMIT, async || {
        (attached(&rig, &session).await == expected[2..]).then_some(())
    })
    .await
    .unwrap();
    // Lists of threads leave it out.
    let listed = rig.alice().get("/api/v1/threads").await.unwrap().ok().unwrap();
    assert!(listed["items"][0].get("clients").is_none(), "{listed}");
}
