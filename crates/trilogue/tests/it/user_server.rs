//! The server that starts on demand: without a configuration, found by commands, with a bounded log.

use std::io::Write as _;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::connect_editor::{Editor, OnDemand};
use crate::harness::{BINARY, Home, finish, lasting_address, until};

#[test]
fn without_a_configuration_it_has_the_built_in_agents() {
    let home = Home::new();
    let server = OnDemand::unconfigured(&home);
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "researcher"]);
    assert!(home.state().join("trilogue.db").is_file());
    let agents = home.run(&["agents", "-q"]).expect(0).out;
    let built_in = ["echo", "greeter", "mailcomposer", "researcher"];
    assert_eq!(agents.lines().collect::<Vec<_>>(), built_in);
    // The next server has the same threads.
    let killed = server.signal(Signal::KILL);
    editor.note("again");
    server.another(killed);
    let listed = editor.ask("session/list", json!({}));
    assert_eq!(listed["result"]["sessions"][0]["sessionId"], session, "{listed}");
}

#[test]
fn commands_find_it_wherever_it_listens_unless_they_are_told() {
    let home = Home::new();
    let server = OnDemand::of(&home, "");
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "echo"]);
    editor.turn(&session, "hello");
    let url = server.url();
    assert!(!url.ends_with(":7878"), "{url}");
    let threads = || home.run(&["threads", "-q"]);
    assert_eq!(threads().expect(0).out.trim(), session);
    assert!(home.run(&["tail", &session]).expect(0).out.contains("hello"));
    assert_eq!(home.run(&["run", "echo", "from here"]).expect(0).out, "from here\n");
    // The hints of a command without an address find the server in the same way.
    let asked = home.run(&["run", "mailcomposer", "Write to ada@example.com: noon"]).expect(3);
    assert!(asked.err.contains("trilogue approve ") && !asked.err.contains("--url"), "{asked:?}");
    let waiting = home.run(&["inbox", "-q"]).expect(0).out;
    home.run(&["approve", waiting.trim(), "--yes"]).expect(0);
    // An explicit address takes precedence.
    let nobody = format!("http://{}", lasting_address());
    home.run(&["threads", "-q", "--url", &nobody]).expect(6);
    let mut command = home.program(BINARY);
    command.args(["threads", "-q"]).env("TRILOGUE_URL", &nobody);
    finish(command, "").expect(6);
    // The record of a dead server does not count as a server.
    let pid = server.pid().unwrap();
    drop(editor);
    kill_process(pid, Signal::KILL).unwrap();
    let record = std::fs::read_to_string(home.state().join("server.json")).unwrap();
    assert!(record.contains("addresses"), "{record}");
    // It may take a moment to die. This test ignores another server at the default address.
    until(|| Some(threads()).filter(|it| !it.err.contains(&url) && !it.out.contains(&session)));
}

#[test]
fn its_log_begins_anew_where_it_is_large() {
    let home = Home::new();
    std::fs::create_dir_all(home.state()).unwrap();
    let log = home.state().join("server.log");
    let mut file = std::fs::File::create(&log).unwrap();
    let line = "an old line of the log\n".repeat(1024);
    for _ in 0..400 {
        file.write_all(line.as_bytes()).unwrap();
    }
    drop(file);
    let large = std::fs::metadata(&log).unwrap().len();
    assert!(large > 8 * 1024 * 1024);
    let server = OnDemand::of(&home, "");
    let editor = Editor::launch_initialized(&home, &["connect", "echo"]);
    let old = home.state().join("server.log.1");
    until(|| std::fs::metadata(&log).ok().filter(|it| it.len() < large));
    assert!(std::fs::metadata(&old).unwrap().len() >= large);
    // The running server continues at the log's new end, and so does its next life.
    let killed = server.signal(Signal::KILL);
    editor.note("again");
    server.another(killed);
    let log = until(|| Some(server.log()).filter(|log| log.contains("listening: ")));
    assert!(!log.contains("an old line") && !log.contains('\0'), "{log}");
}

#[expect(clippy::needless_pass_by_value, reason = "a test writes its params in place")]
fn line(id: u64, method: &str, params: Value) -> String {
    let asks = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    format!("{asks}\n")
}

#[test]
fn what_was_asked_is_answered_although_the_input_has_ended() {
    let home = Home::new();
    let _server = OnDemand::of(&home, "");
    let lines = line(0, "initialize", json!({ "protocolVersion": 1 }))
        + &line(1, "session/new", json!({ "cwd": "/", "mcpServers": [] }))
        + line(2, "session/list", json!({})).trim_end();
    // This starts the server, and no client sends anything more meanwhile.
    let mut command = home.program(BINARY);
    command.args(["connect", "echo"]);
    let answers = finish(command, &lines).expect(0).lines();
    let mut ids: Vec<_> = answers.iter().filter_map(|it| it["id"].as_u64()).collect();
    // Concurrent requests get their responses in any order.
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2], "{answers:?}");
}

#[test]
fn a_turn_that_a_file_asks_for_goes_on_although_the_input_has_ended() {
    let home = Home::new();
    let server = OnDemand::of(&home, "");
    let agent = example("scripted_agent");
    let wrap = ["wrap", "--name", "mine", "--", agent.to_str().unwrap(), "--load"];
    let (mut editor, session) = Editor::launch_with_session(&home, &wrap);
    editor.turn(&session, "say:the first");
    let before = server.signal(Signal::KILL);
    drop(editor);
    // This starts the server, then the agent, which gets the session request, and only then the prompt.
    let loads = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    let prompt =
        |text: &str| json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
    let lines = line(0, "initialize", json!({ "protocolVersion": 1 }))
        + &line(1, "session/load", loads)
        + &line(2, "session/prompt", prompt("say:from a file\nslow:500"))
        + &line(3, "session/prompt", prompt("say:behind it"));
    let mut command = home.program(BINARY);
    command.args(wrap);
    let answers = finish(command, &lines).expect(0).lines();
    for id in [0, 1] {
        assert!(answers.iter().any(|it| it["id"] == id && it["result"].is_object()), "{answers:?}");
    }
    server.another(before);
    let tail = || home.run(&["tail", &session]).expect(0).out;
    until(|| Some(tail()).filter(|it| it.contains("from a file") && it.contains("behind it")));
}

#[test]
fn a_folder_whose_path_is_too_long_for_a_socket_serves_as_well() {
    let home = Home::new();
    let state = home.work().join("x".repeat(120));
    let connect = || {
        let mut command = home.program(BINARY);
        command.args(["connect", "echo"]).env("XDG_STATE_HOME", &state);
        command.env("TMPDIR", home.work());
        Editor::of(command)
    };
    let _config = OnDemand::of(&home, "");
    let mut editor = connect();
    editor.ask("initialize", json!({ "protocolVersion": 1 }));
    let text = std::fs::read_to_string(state.join("trilogue/server.json")).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    let socket = record["socket"].as_str().unwrap();
    assert!(socket.starts_with(home.work().to_str().unwrap()) && socket.len() < 104, "{socket}");
    let mut other = connect();
    other.ask("initialize", json!({ "protocolVersion": 1 }));
    let pid = Pid::from_raw(i32::try_from(record["pid"].as_i64().unwrap()).unwrap()).unwrap();
    // These would start another server.
    drop((editor, other));
    kill_process(pid, Signal::TERM).unwrap();
    until(|| (!state.join("trilogue/server.json").exists()).then_some(()));
}
