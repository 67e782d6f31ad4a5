//! Agents whose processes are replaced, cannot be started, or cannot accept their input, as an editor and a user see them.

use std::os::unix::net::UnixListener;

use rustix::process::{Signal, test_kill_process};
use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::connect_editor::{Editor, OnDemand};
use crate::harness::{Home, until};

/// The configuration of the scripted agent as `coder`, with these flags. The agent records its input.
fn coder(home: &Home, flags: &[&str]) -> String {
    let folder = home.work().display().to_string();
    let record = format!("{folder}/heard");
    let program = example("scripted_agent").display().to_string();
    let store = format!("{folder}/sessions");
    let flags = flags.iter().map(|flag| flag.replace("{store}", &store));
    let mut command = vec![program, "--record".to_owned(), record];
    command.extend(flags);
    // Sessions that open again after a restart work anywhere.
    let settings = "kind = \"agent-client\"\nroots = [\"/\"]";
    format!("[agents.coder]\n{settings}\ncommand = {}\n", json!(command))
}

/// The params of all requests of a method that the agent received, in order.
fn received_params(home: &Home, method: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(home.work().join("heard")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["method"] == method).map(|mut line| line["params"].take()).collect()
}

fn updates(lines: &[String]) -> Vec<Value> {
    let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|mut line| line["params"]["update"].take()).filter(|it| !it.is_null()).collect()
}

fn run_prompt(editor: &mut Editor, session: &str, text: &str) -> (Value, Vec<Value>) {
    let id = editor.prompt(session, text);
    let (answer, before) = editor.answer(id);
    (answer, updates(&before))
}

fn load_session(editor: &mut Editor, session: &str) -> Value {
    let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    editor.ask("session/load", params)["result"].take()
}

fn modes(updates: &[Value]) -> Vec<&Value> {
    let updates = updates.iter().filter(|it| it["sessionUpdate"] == "current_mode_update");
    updates.map(|update| &update["currentModeId"]).collect()
}

const SETTINGS: [&str; 7] =
    ["--load", "--store", "{store}", "--replay", "never", "--modes", "--config"];

#[test]
fn what_a_user_chose_is_chosen_again_in_the_agents_next_process() {
    let home = Home::new();
    let demand = OnDemand::of(&home, &coder(&home, &SETTINGS));
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "coder"]);
    let mode = json!({ "sessionId": session, "modeId": "code" });
    assert!(editor.ask("session/set_mode", mode)["error"].is_null());
    let model = json!({ "sessionId": session, "configId": "model", "value": "large" });
    assert!(editor.ask("session/set_config_option", model)["error"].is_null());

    let (crashed, _) = run_prompt(&mut editor, &session, "crash");
    assert!(crashed["error"].is_object(), "{crashed}");
    for times in [2, 3] {
        let (answer, told) = run_prompt(&mut editor, &session, "say:back");
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        assert!(modes(&told).iter().all(|mode| **mode == "code"), "{told:?}");
        let chosen = received_params(&home, "session/set_mode");
        assert_eq!(chosen.len(), times, "{chosen:?}");
        assert!(chosen.iter().all(|params| params["modeId"] == "code"), "{chosen:?}");
        let chosen = received_params(&home, "session/set_config_option");
        assert_eq!(chosen.len(), times, "{chosen:?}");
        assert!(chosen.iter().all(|params| params["value"] == "large"), "{chosen:?}");
        // A second client opens it too, which changes nothing.
        for arguments in [["connect", "coder"]; 2] {
            let mut other = Editor::launch_initialized(&home, &arguments);
            let shown = load_session(&mut other, &session);
            assert_eq!(shown["modes"]["currentModeId"], "code", "{shown}");
            assert_eq!(shown["configOptions"][0]["currentValue"], "large", "{shown}");
            let (answer, _) = run_prompt(&mut other, &session, "say:me too");
            assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        }
        if times == 2 {
            let killed = demand.signal(Signal::KILL);
            editor.note("again");
            demand.another(killed);
        }
    }
}

#[test]
fn the_instructions_of_an_editor_are_those_of_its_session_when_the_server_was_killed() {
    for (how, method) in [("--load", "session/load"), ("--resume", "session/resume")] {
        let home = Home::new();
        let flags = [how, "--store", "{store}", "--system-prompt"];
        let demand = OnDemand::of(&home, &coder(&home, &flags));
        let mut editor = Editor::launch_initialized(&home, &["connect", "coder"]);
        let prompt = json!({ "mode": "append", "content": [{ "type": "text", "text": "brief" }] });
        let new = json!({ "cwd": "/", "mcpServers": [], "systemPrompt": prompt });
        let opened = editor.ask("session/new", new);
        let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
        run_prompt(&mut editor, &session, "say:hi");
        let run_again = || {
            home.run(&["run", "coder", "say:again", "--thread", &session]).expect(0);
            let reopened = received_params(&home, method);
            (reopened.len(), reopened.last().unwrap()["systemPrompt"].clone())
        };
        // No editor says them again: the next server has only what it keeps.
        drop(editor);
        demand.signal(Signal::KILL);
        assert_eq!(run_again(), (1, prompt.clone()), "{how}");
        demand.signal(Signal::KILL);
        assert_eq!(run_again(), (2, prompt), "{how}");
        // An agent that does not take instructions any more is used without them.
        demand.signal(Signal::KILL);
        let _demand = OnDemand::of(&home, &coder(&home, &flags[..3]));
        assert_eq!(run_again(), (3, Value::Null), "{how}");
    }
}

/// The system closes the sockets of a killed program a moment after it was killed.
#[test]
fn an_agent_of_the_configuration_runs_although_a_killed_server_still_listens() {
    let home = Home::new();
    let demand = OnDemand::of(&home, &coder(&home, &[]));
    home.run(&["run", "coder", "say:hi"]).expect(0);
    let killed = demand.signal(Signal::KILL);
    until(|| test_kill_process(killed).is_err().then_some(()));
    let socket = demand.record().unwrap()["socket"].as_str().unwrap().to_owned();
    std::fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let closing = std::thread::spawn(move || listener.incoming().take(5).for_each(drop));
    assert_eq!(home.run(&["run", "coder", "say:again"]).expect(0).out, "again\n");
    closing.join().unwrap();
}

#[test]
fn a_mode_that_the_agents_next_process_is_not_in_is_told() {
    let home = Home::new();
    let _demand = OnDemand::of(&home, &coder(&home, &SETTINGS));
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "coder"]);
    // The agent itself switched to this mode; no client chose it.
    let moved = "raw:{\"sessionUpdate\":\"current_mode_update\",\"currentModeId\":\"code\"}";
    let (_, told) = run_prompt(&mut editor, &session, moved);
    assert_eq!(modes(&told), ["code"]);
    run_prompt(&mut editor, &session, "crash");
    let (answer, told) = run_prompt(&mut editor, &session, "say:back");
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert_eq!(modes(&told), ["ask"], "{told:?}");
    assert_eq!(received_params(&home, "session/set_mode"), [Value::Null; 0]);
    assert_eq!(load_session(&mut editor, &session)["modes"]["currentModeId"], "ask");
}

#[test]
fn an_agent_that_was_signed_in_to_is_signed_in_to_again_when_the_server_was_killed() {
    let home = Home::new();
    let flags = ["--load", "--store", "{store}", "--auth", "key"];
    let demand = OnDemand::of(&home, &coder(&home, &flags));
    let mut editor = Editor::launch_initialized(&home, &["connect", "coder"]);
    let refused = editor.ask("session/new", json!({ "cwd": "/", "mcpServers": [] }));
    assert_eq!(refused["error"]["code"], -32000, "{refused}");
    assert!(editor.ask("authenticate", json!({ "methodId": "key" }))["error"].is_null());
    let session = editor.session();
    for _ in 0..2 {
        let (answer, _) = run_prompt(&mut editor, &session, "say:hi");
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        let killed = demand.signal(Signal::KILL);
        editor.note("again");
        demand.another(killed);
    }
    // After a logout, the user stays signed out.
    assert!(editor.ask("logout", json!({}))["error"].is_null());
    let refused = editor.ask("session/new", json!({ "cwd": "/", "mcpServers": [] }));
    assert_eq!(refused["error"]["code"], -32000, "{refused}");
}

#[test]
fn an_editor_is_told_that_an_agent_does_not_remember_its_session() {
    let home = Home::new();
    let _demand = OnDemand::of(&home, &coder(&home, &[]));
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "coder"]);
    run_prompt(&mut editor, &session, "say:before");
    run_prompt(&mut editor, &session, "crash");
    let (answer, told) = run_prompt(&mut editor, &session, "say:after");
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let messages: Vec<_> =
        told.iter().filter(|it| it["sessionUpdate"] == "agent_message_chunk").collect();
    let [note, after] = messages[..] else { panic!("{told:?}") };
    let text = note["content"]["text"].as_str().unwrap();
    assert!(text.starts_with("The agent does not remember this session."), "{text}");
    assert!(text.contains("The agent cannot open its sessions again."), "{text}");
    assert_eq!(after["content"]["text"], "after");
    assert_ne!(note["messageId"], after["messageId"]);

    let mut other = Editor::launch(&home, &["connect", "coder"]);
    let can = json!({ "session": { "notices": {} } });
    other.ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": can }));
    let shown = updates(&other.load(&session));
    let notice = shown.iter().find(|it| it["sessionUpdate"] == "notice");
    let notice = notice.unwrap_or_else(|| panic!("{shown:?}"));
    assert_eq!(notice["severity"], "warning");
    assert_eq!(notice["title"], "The agent does not remember this session");
    assert!(!shown.iter().any(|it| it["content"] == note["content"]), "{shown:?}");
}

#[test]
fn a_message_is_found_by_the_id_that_editors_are_shown() {
    let home = Home::new();
    let settings = "[client]\nmessage_id_format = \"uuid\"\n";
    let coder = coder(&home, &["--ids", "counter"]);
    let demand = OnDemand::of(&home, &format!("{settings}{coder}"));
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "coder"]);
    // The second turn has the same ids as the first.
    for _ in 0..2 {
        let (_, told) = run_prompt(&mut editor, &session, "two");
        let mut ids: Vec<_> = told.iter().filter_map(|it| it["messageId"].as_str()).collect();
        ids.dedup();
        assert_eq!(ids.len(), 2, "{told:?}");
        let url = demand.url();
        for (place, id) in ids.iter().enumerate() {
            let shown = home.run(&["tail", &session, "--from", id, "--json", "--url", &url]);
            let shown = shown.expect(0).lines();
            assert_eq!(shown[0]["type"], "message.started", "{}", shown[0]);
            let begun = shown.iter().filter(|it| it["type"] == "message.started");
            assert!(begun.count() >= 2 - place, "{shown:?}");
            let copy = ["threads", "copy", &session, "--until", id, "--url", &url];
            home.run(&copy).expect(0);
        }
    }
    let nowhere = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, b"nowhere").to_string();
    home.run(&["tail", &session, "--from", &nowhere, "--url", &demand.url()]).expect(4);
}

#[test]
fn a_command_that_is_no_agent_is_said_to_be_none_everywhere() {
    let home = Home::new();
    let mut settings = String::new();
    for (name, command) in [
        ("mirror", json!(["cat"])),
        ("missing", json!(["no-such-program"])),
        ("brief", json!(["true"])),
    ] {
        settings += &format!("[agents.{name}]\nkind = \"agent-client\"\ncommand = {command}\n");
    }
    let demand = OnDemand::of(&home, &settings);
    for (agent, why) in [
        ("mirror", "the agent 'mirror' refused `initialize`: "),
        ("missing", "'no-such-program' cannot be started"),
        ("brief", "the agent 'brief' "),
    ] {
        let mut editor = Editor::launch(&home, &["connect", agent]);
        let refused = editor.ask("initialize", json!({ "protocolVersion": 1 }));
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(why), "{refused}");
        assert!(refused["error"]["data"]["hint"].is_string(), "{refused}");
        assert!(editor.note("error: ").contains(why));
        assert!(editor.note("hint: ").contains("check that the "));
        assert_eq!(editor.close().code(), Some(1), "{agent}");

        let run = home.run(&["run", agent, "hi", "--url", &demand.url()]).expect(1);
        let lines: Vec<_> = run.err.lines().collect();
        assert!(lines.iter().any(|it| it.starts_with("error: ") && it.contains(why)), "{run:?}");
        assert!(lines.iter().any(|it| it.starts_with("hint: check that the ")), "{run:?}");
        assert!(!run.err.contains("(hint") && !run.err.contains("later"), "{run:?}");
    }
}

#[test]
fn a_sound_whose_bytes_are_characters_is_a_sound() {
    let home = Home::new();
    let sound = home.write("b.wav", "RIFF\0\0\0\0WAVEfmt ").display().to_string();
    let drawing = home.write("a.svg", "<svg/>").display().to_string();
    let deaf = coder(&home, &[]).replace("agents.coder", "agents.deaf");
    let demand = OnDemand::of(&home, &format!("{}{deaf}", coder(&home, &["--media"])));
    // Its first client starts the server.
    let _editor = Editor::launch_initialized(&home, &["connect", "echo"]);
    let url = demand.url();
    let run = |agent: &str, file: &str| {
        home.run(&["run", agent, "prompt", "--attach", file, "--url", &url])
    };
    let heard = run("coder", &sound).expect(0).out;
    assert!(heard.contains("\"type\":\"audio\"") && heard.contains("audio/wav"), "{heard}");
    let refused = run("deaf", &sound).expect(2).err;
    assert!(refused.contains("audio"), "{refused}");
    // A drawing is text, whose markup describes it.
    let heard = run("coder", &drawing).expect(0).out;
    assert!(heard.contains("<svg/>") && heard.contains("image/svg+xml"), "{heard}");
    assert!(!heard.contains("\"type\":\"image\""), "{heard}");
}
