//! Data that must reach an editor complete: histories that a restart cuts, long lines, refusals, and changes of agents in the meantime.

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::connect_editor::{Editor, OnDemand, agents, is_users};
use crate::harness::{BINARY, Home, until};

/// The number of cuts of a history.
const CUTS: usize = 3;
/// The number of turns in the history, and the length of each of its messages in bytes: more than all buffers on the way can hold.
const TURNS: usize = 48;
const MESSAGE_BYTES: usize = 500_000;

fn load(session: &str) -> Value {
    json!({ "sessionId": session, "cwd": "/", "mcpServers": [] })
}

fn number(line: &str) -> String {
    let update: Value = serde_json::from_str(line).unwrap();
    let text = update["params"]["update"]["content"]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("{:?}", line.get(..200)));
    text.split('.').next().unwrap_or_default().to_owned()
}

#[test]
fn a_history_that_restarts_cut_is_told_once() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "echo"]);
    for turn in 0..TURNS {
        editor.turn(&session, &format!("{turn}.{}", "x".repeat(MESSAGE_BYTES)));
    }
    let mut other = Editor::launch_initialized(&home, &["connect", "echo"]);
    let id = other.request("session/load", load(&session));
    let mut told = Vec::new();
    for cut in 0..CUTS {
        // The kill comes in the middle: the rest does not fit into the buffers between the server and this test.
        for _ in 0..=cut {
            told.push(other.line());
        }
        let killed = demand.signal(Signal::KILL);
        other.note("again");
        demand.another(killed);
    }
    let (answer, rest) = other.answer(id);
    assert!(answer["error"].is_null(), "{answer}");
    assert!(rest.len() > 2, "nothing was cut");
    told.extend(rest);
    let numbers: Vec<_> = told.iter().map(|line| number(line)).collect();
    let expected: Vec<_> = (0..TURNS).flat_map(|it| [it.to_string(), it.to_string()]).collect();
    assert_eq!(numbers, expected);
    // The position is right: the next update arrives once.
    let killed = demand.signal(Signal::KILL);
    demand.another(killed);
    editor.turn(&session, "next.");
    let id = other.prompt(&session, "last.");
    let (_, last) = other.answer(id);
    let numbers: Vec<_> = last.iter().map(|line| number(line)).collect();
    assert_eq!(numbers, ["next", "next", "last"]);
}

#[test]
fn a_line_may_be_as_long_as_the_configuration_says() {
    let home = Home::new();
    let _demand = OnDemand::of(&home, "[client]\nmax_line = \"20MiB\"\n");
    let mut editor = Editor::launch_initialized(&home, &["connect", "echo"]);
    let long = |bytes: usize| json!({ "_meta": { "x": "x".repeat(bytes) } });
    let listed = editor.ask("session/list", long(17 * 1024 * 1024));
    assert!(listed["result"]["sessions"].is_array(), "{:?}", listed.get("error"));
    let refused = editor.ask("session/list", long(21 * 1024 * 1024));
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    let session = editor.session();
    editor.turn(&session, "still here");
}

#[test]
fn what_a_native_agent_does_not_have_is_refused_through_the_proxy() {
    let home = Home::new();
    let _demand = OnDemand::of(&home, "");
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "echo"]);
    let logout = editor.ask("logout", json!({}));
    assert_eq!(logout["error"]["code"], -32601, "{logout}");
    let mode = json!({ "sessionId": session, "modeId": "no-such-mode" });
    let mode = editor.ask("session/set_mode", mode);
    assert_eq!(mode["error"]["code"], -32602, "{mode}");
    let option = json!({ "sessionId": session, "configId": "none", "value": "x" });
    let option = editor.ask("session/set_config_option", option);
    assert_eq!(option["error"]["code"], -32602, "{option}");
}

fn launch_wrapped(home: &Home, more: &[&str]) -> Editor {
    let mut command = home.program(BINARY);
    command.args(["wrap", "--name", "scripted", "--"]).arg(example("scripted_agent")).args(more);
    let mut editor = Editor::of(command);
    let met = editor.ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    assert_eq!(met["result"]["protocolVersion"], 1, "{met}");
    editor
}

fn calls(lines: &[String]) -> Vec<(String, String)> {
    let updates = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let updates = updates.map(|mut message| message["params"]["update"].take());
    let calls = updates.filter(|update| update["toolCallId"].is_string());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    calls.map(|call| (text(&call["toolCallId"]), text(&call["status"]))).collect()
}

#[test]
fn a_tool_call_does_not_stay_at_work_when_the_server_dies() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let mut editor = launch_wrapped(&home, &["--load"]);
    let session = editor.session();
    let id = editor.prompt(&session, "tool-open\nslow");
    let mut told = vec![editor.line()];
    while calls(&told).is_empty() {
        told.push(editor.line());
    }
    demand.signal(Signal::KILL);
    let (answer, rest) = editor.answer(id);
    assert_eq!(answer["error"]["data"]["code"], "agent_lost", "{answer}");
    told.extend(rest);
    let live = calls(&told);
    assert_eq!(live.len(), 2, "{told:?}");
    assert_eq!((&live[0].0, &*live[1].1), (&live[1].0, "failed"), "{told:?}");
    let mut other = launch_wrapped(&home, &["--load"]);
    assert_eq!(calls(&other.load(&session)), live);
}

#[test]
fn a_turn_that_ends_with_the_server_is_told_of_when_no_editor_is_there() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let mut editor = launch_wrapped(&home, &["--load"]);
    let session = editor.session();
    editor.prompt(&session, "permission");
    until(|| editor.line().contains("session/request_permission").then_some(()));
    // First the editor is killed: the turn continues and its question stays open.
    kill_process(editor.pid(), Signal::KILL).unwrap();
    drop(editor);
    let url = demand.url();
    let asked = home.run(&["inbox", "-q", "--url", &url]).expect(0).out;
    assert_eq!(asked.lines().count(), 1, "{asked}");
    // Then the server is killed: the next client starts a new one.
    let killed = demand.signal(Signal::KILL);
    let _native = Editor::launch_initialized(&home, &["connect", "echo"]);
    demand.another(killed);
    let url = demand.url();
    assert_eq!(home.run(&["inbox", "-q", "--url", &url]).expect(0).out.trim(), "");
    let tail = home.run(&["tail", &session, "--json", "--url", &url]).expect(0).out;
    assert!(tail.contains("agent_lost"), "{tail}");
    let runs = home.run(&["runs", "--thread", &session, "--json", "--url", &url]).expect(0).out;
    assert!(runs.contains("\"failed\"") && runs.contains("agent_lost"), "{runs}");
    // The session continues once a client starts the command again.
    let mut again = launch_wrapped(&home, &["--load"]);
    let replayed = again.load(&session);
    assert_eq!(replayed.iter().filter(|line| is_users(line)).count(), 1, "{replayed:?}");
    again.turn(&session, "say:back");
}

#[test]
fn messages_without_ids_stay_without_where_none_are_to_be_given() {
    let home = Home::new();
    let agent = example("scripted_agent");
    let command = json!([agent, "--no-ids"]);
    let settings = |name: &str, more: &str| {
        format!("[agents.{name}]\nkind = \"agent-client\"\ncommand = {command}\n{more}")
    };
    let settings = settings("given", "") + &settings("plain", "assign_message_ids = false\n");
    let _demand = OnDemand::of(&home, &settings);
    for (name, has_ids) in [("given", true), ("plain", false)] {
        let (mut editor, session) = Editor::launch_with_session(&home, &["connect", name]);
        let live = editor.turn(&session, "two\nthink:hm");
        let live: Vec<_> =
            live.into_iter().filter(|line| line.contains("agent_message_chunk")).collect();
        assert!(live.len() > 1, "{live:?}");
        assert!(live.iter().all(|line| line.contains("messageId") == has_ids), "{name}: {live:?}");
        let replayed = Editor::launch_initialized(&home, &["connect", name]).load(&session);
        let again: Vec<_> = agents(&replayed)
            .into_iter()
            .filter(|line| line.contains("agent_message_chunk"))
            .cloned()
            .collect();
        assert_eq!(again, live, "{name}");
    }
}
