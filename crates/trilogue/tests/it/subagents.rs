//! The sub-agents of a hosted agent, with the real program: in an editor over `trilogue connect`, and on the command line.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::connect_editor::Editor;
use crate::harness::{Home, Server, until};
use crate::hosted::over_http;
use crate::terminal::Screen;

fn serve(home: &Home) -> Server {
    let config = format!(
        "[store]\nurl = \"sqlite:{}\"\n\n[agents.worker]\nkind = \"agent-client\"\ncommand = [{:?}]\n",
        home.work().join("store.db").display(),
        example("scripted_agent").to_str().unwrap(),
    );
    let config = home.write("trilogue.toml", &config);
    home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

fn get(server: &Server, path: &str) -> Value {
    serde_json::from_str(&over_http(server, path, None)).unwrap()
}

/// Lines that make the agent's sub-agent work, ask and end.
fn script() -> String {
    let report = |state: Value| {
        let update = json!({
            "sessionUpdate": "subagent_update", "sessionId": "its-a", "title": "Reader", "state": state,
        });
        format!("raw:{update}")
    };
    let content = json!({"type": "text", "text": "it is read"});
    let chunk = json!({"sessionUpdate": "agent_message_chunk", "content": content});
    let lines = [
        report(json!({"state": "running"})),
        format!("subagent:its-a:{chunk}"),
        "subagent-ask:its-a".to_owned(),
        report(json!({"state": "idle", "stopReason": "end_turn"})),
        "say:finished".to_owned(),
    ];
    lines.join("\n")
}

#[test]
fn an_editor_follows_answers_and_reloads_a_sub_agent() {
    let home = Home::new();
    let _server = serve(&home);
    let initialize = |editor: &mut Editor| {
        let params = json!({"protocolVersion": 1, "clientCapabilities": {"subagents": {}}});
        editor.ask("initialize", params);
    };
    let mut editor = Editor::launch(&home, &["connect", "worker"]);
    initialize(&mut editor);
    let session = editor.session();
    let prompt = editor.prompt(&session, &script());
    let question = loop {
        let message = editor.message();
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    let child = question["params"]["sessionId"].as_str().unwrap().to_owned();
    assert_ne!(child, session);
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": "yes"}});
    editor.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome}));
    let (answer, _) = editor.answer(prompt);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(editor.close().success());

    let mut later = Editor::launch(&home, &["connect", "worker"]);
    initialize(&mut later);
    let replayed = later.load(&session);
    let place = |part: &str| {
        let fits = |line: &String| line.contains(part) && line.contains(&child);
        replayed.iter().position(fits).unwrap_or_else(|| panic!("{part}: {replayed:?}"))
    };
    let (announced, said) = (place("subagent_update"), place("it is read"));
    assert!(announced < said, "{replayed:?}");
    assert!(place("end_turn") > announced, "{replayed:?}");
}

#[test]
fn the_command_line_shows_a_sub_agent_and_its_question_once() {
    let home = Home::new();
    let server = serve(&home);
    let thread = uuid::Uuid::new_v4().to_string();
    server.run(&["run", "worker", &script(), "--thread", &thread, "--no-wait"]).expect(0);
    // The parent asks what its sub-agent asks.
    let open = || get(&server, "/api/v1/interrupts?pending=true")["items"].clone();
    until(|| (open().as_array().unwrap().len() == 2).then_some(()));
    let listed = server.run(&["inbox"]).expect(0).out;
    assert_eq!(listed.lines().filter(|line| line.contains("permission")).count(), 1, "{listed}");
    let tailed = server.run(&["tail", &thread]).expect(0).out;
    let child = get(&server, &format!("/api/v1/threads?metadata.parent_thread_id={thread}"));
    let child = child["items"][0]["id"].as_str().unwrap().to_owned();
    let line = format!("sub-agent: Reader (running) thread {child}");
    assert!(tailed.contains(&line), "{tailed}");
    server.run(&["approve", "--yes"]).expect(0);
    until(|| open().as_array().unwrap().is_empty().then_some(()));
    let ended = || get(&server, &format!("/api/v1/runs?thread_id={thread}"))["items"][0].clone();
    until(|| (ended()["status"] == "completed").then_some(()));
    let shown = server.run(&["threads", "show", &thread]).expect(0).out;
    let line = format!("sub-agent: Reader (idle, end_turn) thread {child}");
    assert!(shown.contains(&line), "{shown}");
    // The question has ended, and a later answer says where to look.
    let asked = get(&server, "/api/v1/interrupts")["items"][0]["id"].clone();
    server.run(&["approve", asked.as_str().unwrap(), "--yes"]).complains(7, "`trilogue inbox`");
}

/// A line with a question of the sub-agent, after which its parent's turn continues.
fn ask_beside() -> String {
    let params = json!({
        "sessionId": "its-a", "toolCall": {"toolCallId": "t1", "title": "Read a file", "kind": "read"},
        "options": [{"optionId": "yes", "name": "Allow", "kind": "allow_once"}],
    });
    let method = "session/request_permission";
    format!("put:{}", json!({"jsonrpc": "2.0", "id": "q1", "method": method, "params": params}))
}

/// Starts a server on which a run has ended whose sub-agent still asks. Returns it with the question as the run asked it.
fn question_left(home: &Home) -> (Server, Value) {
    let server = serve(home);
    let go = home.work().join("go");
    let first = script().lines().next().unwrap().to_owned();
    let lines = [first, ask_beside(), format!("wait:{}", go.display())].join("\n");
    let thread = uuid::Uuid::new_v4().to_string();
    let command = server.command(&["run", "worker", &lines, "--plain", "--thread", &thread]);
    let mut screen = Screen::of_columns(command, 2_000);
    let open = || get(&server, "/api/v1/interrupts?pending=true")["items"].clone();
    until(|| (open().as_array().unwrap().len() == 2).then_some(()));
    let all = open();
    let of_thread = |it: &&Value| it["thread_id"] == thread.as_str();
    let asked = all.as_array().unwrap().iter().find(of_thread).unwrap().clone();
    std::fs::write(&go, "").unwrap();
    // The person learns who still waits.
    screen.wait_for("its sub-agent still waits");
    screen.end_well();
    let shown = server.run(&["threads", "show", &thread]).expect(0).out;
    assert!(shown.contains("not answered: the run ended"), "{shown}");
    (server, asked)
}

/// Waits until no question is open.
fn until_answered(server: &Server) {
    let open = || get(server, "/api/v1/interrupts?pending=true")["items"].clone();
    until(|| open().as_array().unwrap().is_empty().then_some(()));
}

#[test]
fn a_question_that_outlives_its_parents_run_is_answered_by_its_old_id() {
    let home = Home::new();
    let (server, asked) = question_left(&home);
    server.run(&["approve", asked["id"].as_str().unwrap(), "--yes"]).expect(0);
    until_answered(&server);
}

#[test]
fn a_stream_that_answers_a_question_of_an_ended_run_has_the_runs_end() {
    let home = Home::new();
    let (server, asked) = question_left(&home);
    let run = asked["run_id"].as_str().unwrap();
    let part = json!({"content_type": "text/plain", "content": "yes"});
    let message = json!({"role": "user", "parts": [part]});
    let resume = json!({
        "run_id": run, "mode": "stream", "await_resume": {"type": "message", "message": message},
    });
    let stream = over_http(&server, &format!("/communication/runs/{run}"), Some(&resume));
    let events: Vec<_> = stream.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let [last] = events[..] else { panic!("{stream}") };
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&last["type"], &last["run"]["run_id"]), (&json!("run.completed"), &json!(run)));
    until_answered(&server);
}

#[test]
fn a_copy_of_a_sub_agents_conversation_has_no_parent() {
    let home = Home::new();
    let server = serve(&home);
    let first = script().lines().next().unwrap().to_owned();
    let ended = script().lines().nth(3).unwrap().to_owned();
    let thread = uuid::Uuid::new_v4().to_string();
    let lines = [first, ended, "say:finished".to_owned()].join("\n");
    server.run(&["run", "worker", &lines, "--thread", &thread]).expect(0);
    let children = || get(&server, &format!("/api/v1/threads?metadata.parent_thread_id={thread}"));
    let child = children()["items"][0]["id"].as_str().unwrap().to_owned();
    let copy = over_http(&server, &format!("/api/v1/threads/{child}/copy"), Some(&json!({})));
    let copy: Value = serde_json::from_str(&copy).unwrap();
    assert_eq!(copy["copied_from"].as_str().unwrap_or(&child), child, "{copy}");
    let metadata = copy["metadata"].as_object().unwrap();
    assert!(!metadata.keys().any(|key| key.starts_with("parent_")), "{copy}");
    assert_eq!(children()["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_conversation_shows_what_became_of_a_sub_agent_after_its_run() {
    let home = Home::new();
    let server = serve(&home);
    let first = script().lines().next().unwrap().to_owned();
    let thread = uuid::Uuid::new_v4().to_string();
    let lines = [first, ask_beside(), "say:finished".to_owned()].join("\n");
    server.run(&["run", "worker", &lines, "--thread", &thread, "--no-wait"]).expect(0);
    let ended = || get(&server, &format!("/api/v1/runs?thread_id={thread}"))["items"][0].clone();
    until(|| (ended()["status"] == "completed").then_some(()));
    let child = get(&server, &format!("/api/v1/threads?metadata.parent_thread_id={thread}"));
    let child = child["items"][0]["id"].as_str().unwrap().to_owned();
    let asks = || get(&server, &format!("/api/v1/runs?thread_id={child}"))["items"][0].clone();
    until(|| (asks()["status"] == "interrupted").then_some(()));
    server.stop(Signal::KILL);
    let server = serve(&home);
    let line = format!("sub-agent: Reader (state not known) thread {child}");
    let show = |thread: &str| server.run(&["threads", "show", thread]).expect(0).out;
    until(|| show(&thread).contains(&line).then_some(()));
    assert_eq!(show(&thread).lines().last(), Some(&*line), "{}", show(&thread));
    let whole = server.run(&["threads", "show", &thread, "--json"]).expect(0).json();
    let last = whole["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["type"], &last["state"]), (&json!("state.subagent"), &Value::Null));
    let shown = show(&child);
    assert!(shown.contains("not answered: the agent was lost"), "{shown}");
}
