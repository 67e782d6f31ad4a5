//! The socket: access, positions, reconnects, limits, and other tenants.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trilogue_domain::Rights;
use trilogue_gateway::{ClientOptions, Options};

use crate::client_editor::{Editor, EditorSocket};
use crate::rig::{LIMIT, Rig, Setup};

/// A user that owns nothing.
const NOBODY: u32 = 65_534;
/// Connects to a socket, greets it, and prints the first line that comes.
const GREET: &str = r#"
    $SIG{PIPE} = "IGNORE";
    $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "no connection: $!";
    $s->autoflush(1);
    print $s qq({"trilogue":1,"attach":{"agent":"puppet"}}\n);
    print "connected\n", scalar <$s> // "";
"#;

fn keyed(session: &str, text: &str, key: &str) -> Value {
    json!({
        "sessionId": session,
        "prompt": [{"type": "text", "text": text}],
        "_meta": {"trilogue": {"key": key}},
    })
}

pub(crate) fn position(editor: &Editor, session: &str) -> u64 {
    let head = format!("#P {session} ");
    let found = editor.control.iter().rev().find_map(|line| line.strip_prefix(&head));
    found.unwrap().parse().unwrap()
}

#[tokio::test]
async fn whoever_says_something_else_first_is_told_why_it_is_not_let_in() {
    let rig = Rig::start().await;
    for (hello, code) in [
        (json!({"trilogue": 1, "attach": {"agent": "nobody"}}), "agent_not_found"),
        (json!({"trilogue": 2, "attach": {"agent": "puppet"}}), "invalid_request"),
        (json!({"trilogue": 1}), "invalid_request"),
        (json!([1]), "invalid_request"),
    ] {
        let (refused, mut editor) = rig.editor_socket().hello(&hello).await;
        assert_eq!(refused["error"]["code"], code, "{hello} {refused}");
        assert!(editor.line().await.is_none());
    }
    // The server neither waits forever for a line's end nor keeps the line.
    let mut stream = rig.editor_socket().stream().await;
    let block = vec![b'x'; 64 * 1024];
    for _ in 0..20 {
        if stream.write_all(&block).await.is_err() {
            break;
        }
    }
    let mut told = String::new();
    drop(tokio::time::timeout(LIMIT, stream.read_to_string(&mut told)).await.unwrap());
    assert!(told.is_empty() || told.contains("longer"), "{told}");
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "a test that cannot make its check says so")]
async fn a_program_of_another_user_is_not_let_in() {
    if !rustix::process::geteuid().is_root() {
        let why = "only root can start a program of another user";
        assert!(std::env::var_os("CI").is_none(), "CI has to check this: {why}");
        eprintln!("NOT CHECKED: {why}");
        return;
    }
    let rig = Rig::start().await;
    // Without these permissions no other user gets as far as the server.
    let socket = rig.editor_socket().open_to_everybody();
    let greet = async |user: u32| greeting(socket.clone(), user).await;
    assert_eq!(greet(NOBODY).await, "connected\n");
    let own = greet(0).await;
    assert!(own.starts_with("connected\n{") && own.contains("puppet"), "{own}");
}

/// What a program of this user gets from a socket.
async fn greeting(socket: PathBuf, user: u32) -> String {
    let run = move || {
        let mut command = Command::new("perl");
        command.args(["-MIO::Socket::UNIX", "-e", GREET]).arg(socket);
        command.uid(user).gid(user).current_dir("/").output().unwrap()
    };
    let ended = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(ended.status.success(), "{ended:?}");
    String::from_utf8(ended.stdout).unwrap()
}

#[tokio::test]
async fn a_command_becomes_an_agent_that_every_face_knows() {
    let rig = Rig::start().await;
    let wrap = json!({"name": "wrapped-one", "command": ["x"], "cwd": "/w", "env": {}});
    let (welcome, mut editor) =
        rig.editor_socket().hello(&json!({"trilogue": 1, "wrap": wrap})).await;
    assert_eq!(welcome["agent"], "wrapped-one", "{welcome}");
    editor.initialize(json!({})).await;
    let session = editor.session().await;
    editor.prompt(&session, "hello").await;
    let alice = rig.alice();
    for (path, pointer) in [("/api/v1/agents", "/items"), ("/communication/agents", "/agents")] {
        let listed = alice.get(path).await.unwrap().ok().unwrap();
        let agents = listed.pointer(pointer).unwrap().as_array().unwrap();
        assert!(agents.iter().any(|agent| agent["name"] == "wrapped-one"), "{path} {listed}");
    }
    let body = json!({"agent_id": "wrapped-one", "input": {"message": "hi"}});
    let ran = alice.post("/connect/runs/wait", &body).await.unwrap();
    assert_eq!(ran.status, 200, "{ran:?}");
    let found = alice.post("/connect/agents/search", &json!({"limit": 100})).await.unwrap();
    assert!(found.ok().unwrap().to_string().contains("wrapped-one"));
}

#[tokio::test]
async fn a_client_that_comes_back_gets_what_it_missed_and_nothing_twice() {
    let rig = Rig::start().await;
    let mut first = rig.editor_socket().numbered_as("puppet", "me").await;
    let session = "019a1234-0000-7000-8000-000000000001";
    let new = json!({"cwd": "/w", "mcpServers": [], "_meta": {"trilogue": {"session": session}}});
    assert_eq!(first.ok("session/new", new.clone()).await["sessionId"], session);
    first.ok("session/prompt", keyed(session, "hello", "k1")).await;
    // The position after the response, not before it.
    first.control.clear();
    first.until_control(|line| line.starts_with("#P")).await;
    let after = position(&first, session);
    let waiting = first.ask("session/prompt", keyed(session, "ask", "k2")).await;
    let asked = first.request("session/request_permission").await;
    let question = format!("#I {} ", asked["id"]);
    assert!(first.control.iter().any(|line| line.starts_with(&question)), "{:?}", first.control);
    drop((first, waiting));
    // After a broken connection, the client repeats its open request and continues at its position.
    let mut second = rig.editor_socket().numbered_as("puppet", "me").await;
    assert_eq!(second.ok("session/new", new).await["sessionId"], session);
    let attach = json!({"sessionId": session, "after": after});
    assert_eq!(second.ok("_trilogue/attach", attach).await, json!({}));
    let again = second.ask("session/prompt", keyed(session, "ask", "k2")).await;
    let asked = second.request("session/request_permission").await;
    second.choose(&asked, "yes").await;
    let answer = second.answer(&again).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let id = answer["result"]["userMessageId"].clone();
    let behind =
        second.updates.iter().filter(|it| it["update"]["content"]["text"] == "yes").count();
    assert_eq!(behind, 1, "{:?}", second.updates);
    // A repeated prompt that has ended gets its recorded end, and nothing runs again.
    let ended = second.ok("session/prompt", keyed(session, "ask", "k2")).await;
    assert_eq!((&ended["stopReason"], &ended["userMessageId"]), (&json!("end_turn"), &id));
    let mut third = rig.editor_socket().plain("puppet").await;
    let load = json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
    third.ok("session/load", load).await;
    assert_eq!(third.words("user_message_chunk"), ["hello", "ask"]);
    assert_eq!(third.words("agent_message_chunk"), ["hello", "yes"]);
    assert!(third.control.is_empty(), "control lines are for who asked for them");
    // Replays only the updates after a given number.
    let mut fourth = rig.editor_socket().numbered_as("puppet", "another").await;
    let load = json!({
        "sessionId": session, "cwd": "/w", "mcpServers": [],
        "_meta": {"trilogue": {"after": after}},
    });
    fourth.ok("session/load", load).await;
    assert_eq!(fourth.words("user_message_chunk"), ["ask"]);
}

#[tokio::test]
async fn every_line_of_a_numbered_connection_is_followed_by_what_it_means() {
    let rig = Rig::start().await;
    let mut editor = rig.editor_socket().numbered_as("puppet", "me").await;
    let session = editor.session().await;
    editor.prompt(&session, "count 50").await;
    // The line after the response has the client's position.
    let line = editor.line().await.unwrap();
    assert!(line.starts_with(&format!("#P {session} ")), "{line}");
    let path = format!("/api/v1/threads/{session}/events?limit=1000");
    let page = rig.alice().get(&path).await.unwrap().ok().unwrap();
    let last = page["items"].as_array().unwrap().last().unwrap()["number"].clone();
    assert!(line.ends_with(&format!(" {last}")), "{line} {last}");
}

#[tokio::test]
async fn programs_are_counted_while_they_are_connected() {
    let rig = Rig::start().await;
    let mut count = rig.server.local_connections();
    assert_eq!(*count.borrow(), 0);
    let editor = rig.editor_socket().plain("puppet").await;
    assert_eq!(*count.borrow_and_update(), 1);
    drop(editor);
    let gone = count.wait_for(|count| *count == 0);
    drop(tokio::time::timeout(LIMIT, gone).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_dropped_and_its_session_lives_on() {
    let client = ClientOptions { max_outbox_bytes: 64 * 1024, ..ClientOptions::default() };
    let options = Options { write_timeout: Duration::from_millis(300), ..Options::default() };
    let rig = Rig::of(Setup { client, options, ..Setup::default() }).await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let mut count = rig.server.local_connections();
    for _ in 0..60 {
        // Each answer is far larger than a socket's buffer.
        editor.start_prompt(&session, "large").await;
    }
    let gone = count.wait_for(|count| *count == 0);
    drop(tokio::time::timeout(LIMIT, gone).await.unwrap().unwrap());
    let mut second = rig.editor_socket().load_session("puppet", &session).await;
    second.prompt(&session, "still here").await;
    assert_eq!(second.words("agent_message_chunk").last().unwrap(), "still here");
}

#[tokio::test]
async fn requests_and_sessions_have_their_limits() {
    let client = ClientOptions { max_requests: 3, max_sessions: 2, ..ClientOptions::default() };
    let rig = Rig::with(client).await;
    let mut editor = rig.editor_socket().plain("puppet").await;
    let first = editor.session().await;
    let second = editor.session().await;
    let new = json!({"cwd": "/w", "mcpServers": []});
    let refused = editor.call("session/new", new.clone()).await;
    assert_eq!(refused["error"]["data"]["code"], "overloaded", "{refused}");
    editor.ok("session/close", json!({"sessionId": second})).await;
    editor.ok("session/new", new).await;
    for _ in 0..3 {
        editor.start_prompt(&first, "sleep").await;
    }
    // A request beyond the limit waits; notifications are still handled meanwhile.
    let list = editor.ask("session/list", json!({})).await;
    editor.notify("session/cancel", json!({"sessionId": first})).await;
    let listed = editor.answer(&list).await;
    assert!(listed["result"]["sessions"].is_array(), "{listed}");
}

#[tokio::test]
async fn another_tenants_sessions_are_not_there() {
    let rig = Rig::start().await;
    let (alpha, beta) = (rig.editor_socket(), EditorSocket::in_name_of(&rig, "beta", "bob"));
    let mut alice = alpha.plain("puppet").await;
    let session = alice.session().await;
    alice.prompt(&session, "secret").await;
    let waiting = alice.start_prompt(&session, "ask").await;
    alice.request("session/request_permission").await;
    let (mut bob, only) = beta.open_session("puppet").await;
    let there = json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
    for method in ["session/load", "session/resume", "session/close"] {
        assert_eq!(bob.code(method, there.clone()).await, -32002, "{method}");
    }
    let refused = |id: Option<&str>, code: i64| {
        let text = json!([{"type": "text", "text": "x"}]);
        [
            ("session/prompt", json!({"sessionId": id, "prompt": text})),
            ("session/set_mode", json!({"sessionId": id, "modeId": "x"})),
            ("session/set_config_option", json!({"sessionId": id, "configId": "x", "value": "y"})),
        ]
        .map(|(method, params)| (method, params, code))
    };
    let unknown = refused(Some("019a1234-0000-7000-8000-00000000000f"), -32002);
    for (method, mut params, code) in
        [refused(Some(&session), -32002), unknown, refused(None, -32602)].concat()
    {
        assert_eq!(bob.code(method, params.clone()).await, code, "{method} {params}");
        if code == -32602 {
            params.as_object_mut().unwrap().remove("sessionId");
            assert_eq!(bob.code(method, params).await, code, "{method}");
        }
    }
    bob.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(bob.ok("session/delete", json!({"sessionId": session})).await, json!({}));
    // The only session of his own is not taken in place of it.
    let listed = bob.ok("session/list", json!({})).await;
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["sessions"][0]["sessionId"], json!(only));
    assert!(
        bob.words("user_message_chunk").is_empty() && bob.words("agent_message_chunk").is_empty()
    );
    rig.token("beta", "bob", Rights::all(), false).await;
    let path = format!("/api/v1/runs?thread_id={only}");
    let runs = rig.as_("beta", "bob").get(&path).await.unwrap().ok().unwrap();
    assert_eq!(runs["items"], json!([]));
    let listed = alice.ok("session/list", json!({})).await;
    assert_eq!(listed["sessions"][0]["sessionId"], json!(session));
    alice.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(alice.answer(&waiting).await["result"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn a_slash_at_the_end_makes_no_other_folder() {
    let rig = Rig::start().await;
    let mut editor = rig.editor_socket().plain("puppet").await;
    for cwd in ["/w/a", "/w/a/", "/w/a//", "/w/ab"] {
        editor.ok("session/new", json!({ "cwd": cwd, "mcpServers": [] })).await;
    }
    for (cwd, count) in [("/w/a", 3), ("/w/a/", 3), ("/w/ab/", 1), ("/w", 0), ("/", 0)] {
        let listed = editor.ok("session/list", json!({ "cwd": cwd })).await;
        assert_eq!(listed["sessions"].as_array().unwrap().len(), count, "{cwd}: {listed}");
    }
}

#[tokio::test]
async fn a_shutdown_tells_what_it_did_and_ends_the_connection() {
    let rig = Rig::start().await;
    let (mut editor, session) = rig.editor_socket().open_session("puppet").await;
    let prompt = editor.start_prompt(&session, "ask").await;
    editor.request("session/request_permission").await;
    rig.server.shutdown(Duration::from_millis(50)).await;
    let answer = editor.answer(&prompt).await;
    assert!(answer["error"]["data"]["code"] == "agent_lost", "{answer}");
    assert!(editor.line().await.is_none());
}
