//! A hosted agent that works while no prompt is open, over every protocol and through a crash of the server.

use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::connect_editor::Editor;
use crate::harness::{Home, Server, until};
use crate::hosted::over_http;
use crate::terminal::Screen;

/// A server with an agent that is quiet after this time.
fn serve(home: &Home, quiet: &str) -> Server {
    let config = format!(
        "[store]\nurl = \"sqlite:{}\"\n\n[agents.worker]\nkind = \"agent-client\"\ncommand = [{:?}]\nbackground_quiet = {quiet:?}\n",
        home.work().join("store.db").display(),
        example("scripted_agent").to_str().unwrap(),
    );
    let config = home.write("trilogue.toml", &config);
    home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

/// A prompt after whose answer the agent says this as soon as the file exists.
fn prompt(file: &Path, text: &str) -> String {
    let content = json!({ "type": "text", "text": text });
    let chunk = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
    format!("say:started\nonce:{}:{chunk}", file.display())
}

fn get(server: &Server, path: &str) -> Value {
    serde_json::from_str(&over_http(server, path, None)).unwrap()
}

/// Whether the history of the Agent Communication Protocol names a message with this text.
fn communication_has(server: &Server, thread: &str, text: &str) -> bool {
    let session = get(server, &format!("/communication/sessions/{thread}"));
    let history = session["history"].as_array().unwrap();
    history.iter().any(|address| {
        let path = address.as_str().unwrap().strip_prefix(&server.url()).unwrap();
        get(server, path).to_string().contains(text)
    })
}

fn newest_run(server: &Server, thread: &str) -> Value {
    get(server, &format!("/api/v1/runs?thread_id={thread}&limit=1"))["items"][0].clone()
}

#[test]
fn a_report_after_the_answer_is_in_every_protocol_and_survives_a_crash() {
    let home = Home::new();
    let server = serve(&home, "1h");
    let (file, thread) = (home.work().join("go"), uuid::Uuid::new_v4().to_string());
    let said = prompt(&file, "the build is green");
    server.run(&["run", "worker", &said, "--thread", &thread]).expect(0);
    std::fs::write(&file, "").unwrap();
    let run =
        until(|| Some(newest_run(&server, &thread)).filter(|run| run["started_by"] == "agent"));
    assert_eq!(run["status"], "running", "{run}");
    let has = |path: String| get(&server, &path).to_string().contains("the build is green");
    until(|| has(format!("/api/v1/threads/{thread}/messages")).then_some(()));
    assert!(has(format!("/connect/threads/{thread}")));
    assert!(communication_has(&server, &thread, "the build is green"));
    server.stop(Signal::KILL);
    let server = serve(&home, "1h");
    let run = newest_run(&server, &thread);
    assert_eq!((&run["status"], &run["started_by"]), (&json!("failed"), &json!("agent")));
    assert_eq!(run["outcome"]["error"]["code"], "agent_lost", "{run}");
    // Every history has what the agent said, and the checkpoint is at the end of the run.
    assert!(communication_has(&server, &thread, "the build is green"));
    let has = |path: String| get(&server, &path).to_string().contains("the build is green");
    assert!(has(format!("/api/v1/threads/{thread}/messages")));
    assert!(has(format!("/connect/threads/{thread}")));
    assert!(has(format!("/connect/threads/{thread}/history")));
    let mut editor = Editor::launch_initialized(&home, &["connect", "worker"]);
    let replayed = editor.load(&thread);
    assert!(replayed.iter().any(|line| line.contains("the build is green")), "{replayed:?}");
    let checkpoints = get(&server, &format!("/api/v1/threads/{thread}/checkpoints"));
    let id = run["id"].as_str().unwrap();
    let events = get(&server, &format!("/api/v1/runs/{id}/events?limit=100"));
    let last = events["items"].as_array().unwrap().last().unwrap();
    assert_eq!(last["type"], "run.ended", "{last}");
    let newest = &checkpoints["items"][0];
    assert_eq!((&newest["run_id"], &newest["position"]), (&run["id"], &last["number"]));
    // The next prompt continues behind it.
    server.run(&["run", "worker", "say:next", "--thread", &thread]).expect(0);
    assert_eq!(newest_run(&server, &thread)["status"], "completed");
}

#[test]
fn a_chat_shows_what_the_agent_does_between_two_lines() {
    let home = Home::new();
    let server = serve(&home, "200ms");
    let file = home.work().join("go");
    let mut screen = Screen::of_columns(server.command(&["chat", "worker", "--plain"]), 2_000);
    let content = json!({ "type": "text", "text": "the build is green" });
    let chunk = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
    screen.answer("> ", &format!("once:{}:{chunk}\r", file.display()));
    // The next prompt: the turn has ended.
    screen.wait_for("> ");
    std::fs::write(&file, "").unwrap();
    screen.wait_for("the build is");
    screen.answer("> ", "say:next\r");
    screen.wait_for("next");
    screen.answer("> ", "/quit\r");
    let seen = screen.end_well();
    // The chat follows the thread between two lines, which resumes no stream.
    assert!(!seen.contains("the stream broke"), "{seen}");
}

/// The question of work before this run is shown, and this run's own end decides.
#[test]
fn a_question_of_an_earlier_run_does_not_decide_the_exit_code() {
    let home = Home::new();
    let server = serve(&home, "1h");
    let (file, end) = (home.work().join("go"), home.work().join("end"));
    let thread = uuid::Uuid::new_v4().to_string();
    let option = |id: &str, kind: &str| json!({ "optionId": id, "name": id, "kind": kind });
    let question = json!({ "call": "session/request_permission", "params": {
        "toolCall": { "toolCallId": "t1", "title": "Read a file", "kind": "read" },
        "options": [option("yes", "allow_once"), option("no", "reject_once")],
    }});
    let said = format!("say:started\nonce:{}:{question}", file.display());
    server.run(&["run", "worker", &said, "--thread", &thread]).expect(0);
    std::fs::write(&file, "").unwrap();
    let open = || {
        let open = get(&server, "/api/v1/interrupts?pending=true")["items"][0].clone();
        open["id"].as_str().map(str::to_owned)
    };
    let first = until(open);
    let text = format!("wait:{}\nsay:mine", end.display());
    let (shown, second) = std::thread::scope(|scope| {
        let run = scope.spawn(|| server.run(&["run", "worker", &text, "--thread", &thread]));
        let second = until(|| open().filter(|id| *id != first));
        std::fs::write(&end, "").unwrap();
        (run.join().unwrap(), second)
    });
    let shown = shown.expect(0);
    assert!(shown.out.contains("mine"), "{}", shown.out);
    assert!(shown.err.contains("a question of an earlier run is still open"), "{}", shown.err);
    // The command that it names shows the question, which has another id now.
    assert!(shown.err.contains("trilogue inbox"), "{}", shown.err);
    assert!(!shown.err.contains(&second[..8]), "{second}: {}", shown.err);
    let third = until(|| open().filter(|id| *id != second));
    let listed = server.run(&["inbox"]).expect(0);
    assert!(listed.out.contains(&third[..8]), "{third}: {}", listed.out);
    server.run(&["approve", &third, "--yes"]).expect(0);
}
