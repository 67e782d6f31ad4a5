//! An editor notices only a pause when its server ends and comes back.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::connect_editor::{Editor, OnDemand, agents, is_users};
use crate::harness::{Home, demo, lasting_address, until};

const ROUNDS: usize = 12;

const MAIL: &str = "Write to ada@example.com: we meet on Friday";

/// An editor on a new session whose turn has stopped at a question. Returns the session, the prompt's id and the question.
fn ask(home: &Home, arguments: &[&str], text: &str) -> (Editor, String, u64, Value) {
    let (mut editor, session) = Editor::launch_with_session(home, arguments);
    let id = editor.prompt(&session, text);
    let question = next_permission_request(&mut editor);
    (editor, session, id, question)
}

fn assert_ended(answer: &Value) {
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
}

fn next_permission_request(editor: &mut Editor) -> Value {
    loop {
        let message = editor.message();
        if message["method"] == "session/request_permission" {
            return message;
        }
    }
}

fn choose(editor: &mut Editor, asked: &Value, kind: &str) {
    let options = asked["params"]["options"].as_array().unwrap();
    let option = options.iter().find(|option| option["kind"] == kind).unwrap();
    let outcome = json!({ "outcome": "selected", "optionId": option["optionId"] });
    editor.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "outcome": outcome } }));
}

#[test]
fn nothing_is_lost_doubled_or_reordered_when_the_server_is_killed_in_a_turn() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "researcher"]);
    let mut told = Vec::new();
    for round in 0..ROUNDS {
        let id = editor.prompt(&session, "honey bees");
        // Each round kills the server at a different point of the turn.
        for _ in 0..round {
            told.push(editor.line());
        }
        let killed = demand.signal(Signal::KILL);
        let (answer, before) = editor.answer(id);
        told.extend(before);
        let ended = answer["error"]["data"]["code"] == "agent_lost"
            || answer["result"]["stopReason"] == "end_turn";
        assert!(ended, "{round}: {answer}");
        demand.another(killed);
        // If all updates had arrived before the kill, another message than an update would be between the rounds.
        assert!(told.iter().all(|line| line.contains("\"session/update\"")), "{told:?}");
    }
    let id = editor.prompt(&session, "honey bees");
    let (answer, before) = editor.answer(id);
    told.extend(before);
    assert_ended(&answer);
    let mut other = Editor::launch_initialized(&home, &["connect", "researcher"]);
    let replayed = other.load(&session);
    assert_eq!(replayed.iter().filter(|line| is_users(line)).count(), ROUNDS + 1);
    let (seen, logged) = (agents(&told), agents(&replayed));
    let differs = seen.iter().zip(&logged).position(|(seen, logged)| seen != logged);
    assert_eq!(differs, None, "{:?}", differs.map(|at| (seen[at], logged[at])));
    assert_eq!(seen.len(), logged.len());
    assert_eq!(told.len(), seen.len(), "the editor was told what it said itself");
}

#[test]
fn a_question_stays_open_over_a_restart_and_is_answered_once() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let (mut editor, _, id, question) = ask(&home, &["connect", "mailcomposer"], MAIL);
    for _ in 0..3 {
        let killed = demand.signal(Signal::KILL);
        editor.note("again");
        demand.another(killed);
        editor.silence(Duration::from_millis(300));
    }
    choose(&mut editor, &question, "allow_once");
    let (answer, after) = editor.answer(id);
    assert_ended(&answer);
    let calls = after.iter().filter(|line| line.contains("request_permission")).count();
    assert_eq!(calls, 0, "{after:?}");
}

#[test]
fn a_turn_that_is_cancelled_while_there_is_no_server_names_its_message() {
    let home = Home::new();
    let scripted = example("scripted_agent");
    let config = format!(
        "[store]\nurl = \"sqlite:t.db\"\n[log]\nformat = \"text\"\n[agents.mailcomposer]\nkind = \"builtin\"\n[agents.hosted]\nkind = \"agent-client\"\ncommand = [{:?}]\n",
        scripted.to_str().unwrap()
    );
    let config = home.write("t.toml", &config);
    let address = lasting_address();
    let serve = ["serve", "--config", config.to_str().unwrap(), "--listen", &address];
    let mut server = home.start(&serve);
    for (agent, text) in [("mailcomposer", MAIL), ("hosted", "permission")] {
        let (mut editor, session) = Editor::launch_with_session(&home, &["connect", agent]);
        let message = "4f9a3a52-6a0b-4a55-8f0e-3f7f1f3a9c11";
        let prompt = json!([{ "type": "text", "text": text }]);
        let params = json!({ "sessionId": session, "prompt": prompt, "messageId": message });
        let id = editor.request("session/prompt", params);
        next_permission_request(&mut editor);
        server.stop(Signal::KILL);
        editor.note("lost");
        let params = json!({ "sessionId": session });
        editor.send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params }));
        server = home.start(&serve);
        let (answer, _) = editor.answer(id);
        let ended = json!({ "stopReason": "cancelled", "userMessageId": message });
        assert_eq!(answer["result"], ended, "{agent}: {answer}");
        server.run(&["tail", &session, "--from", message]).expect(0);
    }
}

#[test]
fn an_answer_that_is_given_while_there_is_no_server_arrives() {
    let home = Home::new();
    let config = home.write("t.toml", "[store]\nurl = \"sqlite:t.db\"\n[log]\nformat = \"text\"\n[agents.mailcomposer]\nkind = \"builtin\"\n");
    let address = lasting_address();
    let serve = ["serve", "--config", config.to_str().unwrap(), "--listen", &address];
    let server = home.start(&serve);
    let (mut editor, _, id, question) = ask(&home, &["connect", "mailcomposer"], MAIL);
    server.stop(Signal::KILL);
    editor.note("lost");
    choose(&mut editor, &question, "allow_once");
    // A server that its user started is not replaced automatically.
    editor.silence(Duration::from_millis(500));
    assert!(!home.state().join("server.log").exists());
    let _server = home.start(&serve);
    let (answer, after) = editor.answer(id);
    assert_ended(&answer);
    assert!(after.iter().all(|line| line.contains("session/update")), "{after:?}");
}

#[test]
fn a_question_that_was_answered_elsewhere_is_taken_back() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let (mut editor, _, id, question) = ask(&home, &["connect", "mailcomposer"], MAIL);
    demand.signal(Signal::KILL);
    editor.note("again");
    let url = demand.url();
    let inbox = home.run(&["inbox", "-q", "--url", &url]).expect(0).out;
    home.run(&["approve", inbox.trim(), "--yes", "--url", &url]).expect(0);
    let (answer, after) = editor.answer(id);
    assert_ended(&answer);
    let taken_back: Vec<Value> = after
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|message: &Value| message["method"] == "$/cancel_request")
        .collect();
    assert_eq!(taken_back.len(), 1, "{after:?}");
    assert_eq!(taken_back[0]["params"]["requestId"], question["id"]);
    // A late answer has no effect.
    choose(&mut editor, &question, "allow_once");
    assert!(editor.close().success());
}

#[test]
fn a_stop_lets_the_turn_end_and_the_next_one_begins_on_the_next_server() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "researcher"]);
    let id = editor.prompt(&session, "bees");
    editor.line();
    let stopped = demand.signal(Signal::TERM);
    // A stopping server accepts no new turn; the next one does.
    let next = editor.prompt(&session, "wasps");
    let (answer, _) = editor.answer(id);
    assert_ended(&answer);
    let (answer, _) = editor.answer(next);
    assert_ended(&answer);
    demand.another(stopped);
    assert!(demand.log().contains("stopped"), "{}", demand.log());
}

#[test]
fn a_cancel_reaches_the_turn_over_a_restart() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let (mut editor, session, id, _) = ask(&home, &["connect", "mailcomposer"], MAIL);
    demand.signal(Signal::KILL);
    editor.send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
    let (answer, _) = editor.answer(id);
    assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer}");
}

#[test]
fn what_is_open_fails_with_a_reason_when_no_server_comes_back() {
    let (home, server) = demo();
    let arguments = ["connect", "mailcomposer", "--give-up-after", "300ms"];
    let (mut editor, _, id, _) = ask(&home, &arguments, MAIL);
    server.stop(Signal::KILL);
    let (answer, _) = editor.answer(id);
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert_eq!(answer["error"]["data"]["code"], "peer_unavailable", "{answer}");
    assert_eq!(editor.wait().code(), Some(6));
    editor.note("trilogue demo");
}

#[test]
fn sessions_of_one_editor_are_all_taken_up_again() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let mut editor = Editor::launch_initialized(&home, &["connect", "echo"]);
    let sessions: Vec<_> = (0..8).map(|_| editor.session()).collect();
    // Another client follows them too.
    let mut other = Editor::launch_initialized(&home, &["connect", "echo"]);
    for session in &sessions {
        other.load(session);
    }
    demand.signal(Signal::KILL);
    for session in &sessions {
        let id = editor.prompt(session, "hello");
        let (answer, told) = editor.answer(id);
        assert_ended(&answer);
        assert_eq!(told.len(), 1, "{told:?}");
        let seen = until(|| Some(other.line()).filter(|line| line.contains("agent_message_chunk")));
        assert_eq!(seen, told[0]);
    }
    // A closed session is not reopened.
    let id = editor.request("session/close", json!({ "sessionId": sessions[0] }));
    editor.answer(id);
    demand.signal(Signal::KILL);
    editor.note("again");
    let id = editor.request("session/list", json!({}));
    let (listed, _) = editor.answer(id);
    assert_eq!(listed["result"]["sessions"].as_array().unwrap().len(), 8, "{listed}");
}
