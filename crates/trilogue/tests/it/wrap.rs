//! `trilogue wrap`: makes the sessions of an agent's command durable.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::connect_editor::{Editor, OnDemand, agents, is_users};
use crate::harness::{BINARY, Home, demo};
use crate::hosted::over_http;

fn launch_wrapped(home: &Home, more: &[&str]) -> Editor {
    let agent = example("scripted_agent");
    let mut command = home.program(BINARY);
    command.args(["wrap", "--"]).arg(agent).args(more).env("SECRET_WORD", "opensesame-opensesame");
    let mut editor = Editor::of(command);
    let met = editor.ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    assert_eq!(met["result"]["protocolVersion"], 1, "{met}");
    editor
}

fn text(lines: &[String]) -> String {
    let updates = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text =
        |update: Value| update["params"]["update"]["content"]["text"].as_str().map(str::to_owned);
    updates.filter_map(text).collect()
}

#[test]
fn a_command_is_an_agent_that_outlives_its_editor_and_its_server() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let mut editor = launch_wrapped(&home, &["--load"]);
    let session = editor.session();
    let mut told = Vec::new();
    for _ in 0..3 {
        let before = editor.turn(&session, "two");
        told.extend(before);
        let killed = demand.signal(Signal::KILL);
        editor.note("again");
        demand.another(killed);
    }
    let before = editor.turn(&session, "say:still here");
    assert!(text(&before).contains("still here"), "{before:?}");
    told.extend(before);
    kill_process(editor.pid(), Signal::KILL).unwrap();
    drop(editor);
    let mut other = launch_wrapped(&home, &["--load"]);
    let listed = other.ask("session/list", json!({}));
    assert_eq!(listed["result"]["sessions"][0]["sessionId"], session, "{listed}");
    let replayed = other.load(&session);
    assert_eq!(replayed.iter().filter(|line| is_users(line)).count(), 4, "{replayed:?}");
    let seen: Vec<_> = agents(&told).into_iter().filter(|line| line.contains("_chunk")).collect();
    let logged: Vec<_> =
        agents(&replayed).into_iter().filter(|line| line.contains("_chunk")).collect();
    assert_eq!(seen, logged);
    // The server wrote none of the command's arguments and variables.
    for entry in std::fs::read_dir(home.state()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(10).any(|it| it == b"opensesame");
            assert!(!found, "{} names a secret", path.display());
        }
    }
}

#[test]
fn a_turn_of_a_command_that_dies_with_the_server_ends_with_a_reason() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let mut editor = launch_wrapped(&home, &["--load"]);
    let session = editor.session();
    let id = editor.prompt(&session, "permission");
    let question = loop {
        let message = editor.message();
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    demand.signal(Signal::KILL);
    let (answer, before) = editor.answer(id);
    assert_eq!(answer["error"]["data"]["code"], "agent_lost", "{answer}");
    // No client waits for the decision any more.
    let taken_back = before.iter().find(|line| line.contains("$/cancel_request")).unwrap();
    let taken_back: Value = serde_json::from_str(taken_back).unwrap();
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
    let before = editor.turn(&session, "say:again");
    assert!(text(&before).contains("again"), "{before:?}");
}

#[test]
fn a_name_is_kept_and_another_agents_is_not_taken() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let agent = example("scripted_agent");
    let agent = agent.to_str().unwrap();
    let mut taken = Editor::launch(&home, &["wrap", "--name", "echo", "--", agent]);
    assert_eq!(taken.wait().code(), Some(7));
    assert!(taken.last_notes().contains("another name with --name"));
    let (mut editor, session) =
        Editor::launch_with_session(&home, &["wrap", "--name", "mine", "--", agent]);
    editor.turn(&session, "say:x");
    // Another command does not get its sessions; the same command does, from any folder.
    let mut taken = Editor::launch(&home, &["wrap", "--name", "mine", "--", agent, "--load"]);
    assert_eq!(taken.wait().code(), Some(7));
    assert!(taken.last_notes().contains("another name, or restart the server"));
    let mut other = Editor::launch_initialized(&home, &["wrap", "--name", "mine", "--", agent]);
    let listed = other.ask("session/list", json!({}));
    assert_eq!(listed["result"]["sessions"][0]["sessionId"], session, "{listed}");
    let mut third = Editor::launch_initialized(&home, &["connect", "mine"]);
    third.load(&session);
    let shown = home.run(&["agents", "-q", "--url", &demand.url()]).expect(0).out;
    assert!(shown.lines().any(|line| line == "mine"), "{shown}");
}

/// Wraps a command under this name in a server, as `trilogue wrap` does, and disconnects.
fn register(socket: &Path, name: &str) -> Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    let command = json!({ "name": name, "command": ["./agent"], "cwd": "/", "env": {} });
    writeln!(stream, "{}", json!({ "trilogue": 1, "wrap": command })).unwrap();
    let mut welcome = String::new();
    BufReader::new(stream).read_line(&mut welcome).unwrap();
    serde_json::from_str(&welcome).unwrap()
}

#[test]
fn as_many_commands_are_agents_as_a_server_has_room_for() {
    const MOST: usize = 1_024;
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let _editor = Editor::launch_initialized(&home, &["connect", "echo"]);
    let socket = demand.record().unwrap()["socket"].as_str().unwrap().to_owned();
    let wrap = |number: usize| register(Path::new(&socket), &format!("agent-{number}"));
    // Three others are configured.
    for number in 3..MOST {
        let welcome = wrap(number);
        assert_eq!(welcome["agent"], format!("agent-{number}"), "{welcome}");
    }
    let refused = &wrap(MOST)["error"];
    assert_eq!(refused["code"], "overloaded", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("1024 agents"), "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("restart the server"), "{refused}");
    // The existing agents stay, and are found again.
    assert_eq!(wrap(3)["agent"], "agent-3");
}

#[test]
fn a_command_that_is_not_there_is_named_and_no_agent_of_any_list() {
    let (home, server) = demo();
    let mut editor = Editor::launch(&home, &["wrap", "--", "./no-such-agent"]);
    let met = editor.ask("initialize", json!({ "protocolVersion": 1 }));
    let opened = match met.get("error") {
        Some(_) => met,
        None => editor.ask("session/new", json!({ "cwd": "/", "mcpServers": [] })),
    };
    let said = opened["error"].to_string();
    assert!(said.contains("no-such-agent"), "{opened}");
    editor.silence(Duration::from_millis(50));
    assert!(editor.note("error: ").contains("no-such-agent"));
    editor.note("hint: ");
    assert_eq!(editor.close().code(), Some(1));
    let lists = || {
        let found = over_http(&server, "/connect/agents/search", Some(&json!({})));
        ["/api/v1/agents", "/communication/agents"]
            .map(|path| over_http(&server, path, None))
            .into_iter()
            .chain([found])
    };
    for listed in lists() {
        assert!(listed.contains("mailcomposer") && !listed.contains("no-such-agent"), "{listed}");
    }
    let hint = server.run(&["run", "nobody", "x"]).expect(4).err;
    assert!(hint.contains("mailcomposer") && !hint.contains("no-such-agent"), "{hint}");
    // An agent's command is available on every protocol.
    let agent = example("scripted_agent");
    let _editor = Editor::launch_with_session(
        &home,
        &["wrap", "--name", "mine", "--", agent.to_str().unwrap()],
    );
    for listed in lists() {
        assert!(listed.contains("\"mine\""), "{listed}");
    }
}
