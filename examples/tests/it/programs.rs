//! Runs each program of this folder like a reader does: starts it, uses it through a client, and stops it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use trilogue_sdk::agent_client::network::AgentUrl;
use trilogue_sdk::agent_client::{
    Client as AgentClient, Options, Prompt, RejectAll, SessionOptions,
};
use trilogue_sdk::client::wire::{AnswerCreate, Json, Run, RunStatus};
use trilogue_sdk::client::{Client, HttpTransport, NewRun};
use trilogue_testkit::{Editor, Folder};

const LIMIT: Duration = Duration::from_secs(60);
/// The programs that other tests run: with editors and clients, and with the command line between them.
const RUN_ELSEWHERE: [&str; 3] = ["agent_client_agent", "agent_client_client", "callback_receiver"];
const SERVERS: [&str; 11] = [
    "agents_to_call",
    "asking",
    "calling",
    "linter",
    "remembering",
    "stopping",
    "streaming",
    "suspending",
    "ten_line_echo",
    "trait_agent",
    "typed",
];
const OTHERS: [&str; 6] = [
    "call_communication",
    "call_connect",
    "call_native",
    "prompting",
    "stdio_echo",
    "websocket_echo",
];

/// A program that serves its agent. Killed when dropped.
struct RunningProgram {
    child: Child,
    client: Client,
    url: String,
    token: String,
    _state: Folder,
}

// === impl RunningProgram ===

impl RunningProgram {
    /// Starts a program as the guide says, and reads its address and its token.
    async fn start(name: &str) -> Self {
        let state = Folder::new().unwrap();
        let mut child = Command::new(program(name))
            .args(["--listen", "127.0.0.1:0"])
            .current_dir(state.path())
            .env("XDG_STATE_HOME", state.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().unwrap();
        let url = line.strip_prefix("listening: ").unwrap();
        let file = url.strip_prefix("http://").unwrap().replace(':', "-");
        let token = std::fs::read_to_string(state.path().join("trilogue/tokens").join(file));
        let token = token.unwrap().trim().to_owned();
        let server = HttpTransport::to(url).unwrap().token(token.as_str());
        let client = Client::from_http(server);
        Self { child, client, url: url.to_owned(), token, _state: state }
    }

    async fn run(&self, agent: &str, input: Value) -> Run {
        let new = NewRun::new(agent, Json::from_value(&input));
        self.client.run_and_wait(new).await.unwrap()
    }

    /// Answers a run's question, and waits for its end.
    async fn answer(&self, run: &Run, answer: AnswerCreate) -> Run {
        let question = &run.interrupts.as_ref().unwrap()[0];
        self.client.answer(&question.id, &answer).await.unwrap();
        self.client.wait_for_run(&run.id).await.unwrap()
    }

    /// Stops the program like Ctrl-C does.
    async fn stop(mut self) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert!(timeout(LIMIT, self.child.wait()).await.unwrap().unwrap().success());
    }
}

pub(crate) fn program(name: &str) -> PathBuf {
    let me = std::env::current_exe().unwrap();
    me.ancestors().nth(2).unwrap().join("examples").join(name)
}

fn output_text(run: &Run) -> String {
    assert_eq!(run.status, RunStatus::Completed, "{run:?}");
    run.text()
}

fn result(run: &Run) -> Value {
    assert_eq!(run.status, RunStatus::Completed, "{run:?}");
    run.result.as_ref().unwrap().to_value()
}

#[tokio::test]
async fn programs_that_say_something_say_it() {
    for (name, agent, input, text) in [
        ("ten_line_echo", "ten-line-echo", "Hello!", "Hello!"),
        ("trait_agent", "echo", "Hello!", "Hello!"),
        ("streaming", "weather", "How is it?", "Tomorrow it will be 21 degrees."),
        ("remembering", "counter", "Count!", "Turn 1 after 0 messages."),
        ("linter", "linter", "a.md", "There is no editor here whose files I could work with."),
    ] {
        let served = RunningProgram::start(name).await;
        let run = served.run(agent, json!(input)).await;
        assert!(output_text(&run).starts_with(text), "{name}: {run:?}");
        served.stop().await;
    }
}

#[tokio::test]
async fn programs_that_ask_go_on_with_the_answer() {
    let served = RunningProgram::start("asking").await;
    let run = served.run("cleaner", json!("Clean up!")).await;
    let allow = AnswerCreate::option("allow");
    assert_eq!(output_text(&served.answer(&run, allow).await), "Removed.");
    served.stop().await;

    let served = RunningProgram::start("suspending").await;
    let run = served.run("buyer", json!({ "item": "a boat" })).await;
    let approval = Json::from_value(&json!({ "approved": true }));
    let run = served.answer(&run, AnswerCreate::value(approval)).await;
    assert_eq!(result(&run), json!({ "bought": true, "item": "a boat" }));
    served.stop().await;
}

#[tokio::test]
async fn the_calling_program_passes_a_question_up() {
    let served = RunningProgram::start("calling").await;
    let run = served.run("editor", json!("ferries")).await;
    assert_eq!(run.status, RunStatus::Interrupted, "{run:?}");
    let allow = AnswerCreate::option("allow");
    let run = served.answer(&run, allow).await;
    assert_eq!(output_text(&run), "Printed.");
    assert!(format!("{:?}", run.output).contains("About ferries"), "{run:?}");
    served.stop().await;
}

#[tokio::test]
async fn the_typed_program_gives_its_result() {
    let served = RunningProgram::start("typed").await;
    let run = served.run("planner", json!({ "city": "Paris", "days": 1 })).await;
    assert_eq!(result(&run), json!({ "sights": ["The Louvre"] }));
    served.stop().await;
}

#[tokio::test]
async fn the_waiting_program_hears_a_cancellation() {
    let served = RunningProgram::start("stopping").await;
    let run = served.client.start_run(NewRun::new("waiter", "Wait!")).await.unwrap();
    served.client.cancel_run(&run.id).await.unwrap();
    let run = served.client.wait_for_run(&run.id).await.unwrap();
    assert_eq!(run.status, RunStatus::Cancelled);
    served.stop().await;
}

#[tokio::test]
async fn the_calling_programs_start_stream_answer_and_continue() {
    let served = RunningProgram::start("agents_to_call").await;
    let permission = r#"{"permission":{"#;
    for (name, question) in [
        ("call_native", "Remove 3 old files?"),
        ("call_communication", "Remove 3 old files?"),
        ("call_connect", permission),
    ] {
        let mut command = Command::new(program(name));
        command.args([&served.url, &served.token]).kill_on_drop(true);
        let output = timeout(LIMIT, command.output()).await.unwrap().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = printed.lines().collect();
        let [started, streamed, asked @ .., answered, continued] = lines.as_slice() else {
            panic!("{name}: {printed} {}", String::from_utf8_lossy(&output.stderr));
        };
        assert_eq!([*started, *streamed], ["Turn 1 after 0 messages."; 2], "{name}");
        assert!(asked.concat().contains(question), "{name}: {asked:?}");
        assert_eq!([*answered, *continued], ["Removed.", "Turn 2 after 2 messages."], "{name}");
        assert!(output.status.success(), "{name}");
    }
    served.stop().await;
}

#[tokio::test]
async fn the_prompting_program_prints_the_answers() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(program("prompting"));
    command.arg(here).arg(here.join("ten_line_echo.rs")).arg(program("agent_client_agent"));
    let output = timeout(LIMIT, command.kill_on_drop(true).output()).await.unwrap().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("ten_line_echo.rs"), "{printed}");
    assert!(printed.ends_with("I did not keep it.\n"), "{printed}");
}

/// The ten-line agent, launched and used like an editor does it.
#[tokio::test]
async fn the_program_on_standard_streams_answers_an_editor() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let agent = program("stdio_echo").display().to_string();
    let mut editor = Editor::launch(&[agent], here).await;
    let session = editor.session_in(here).await;
    let end = editor.prompt(&session, "Hello!").await;
    assert_eq!(end["stopReason"], "end_turn", "{end}");
    let updates = editor.updates_of(&session);
    assert_eq!(updates.len(), 1, "{updates:?}");
    assert_eq!(updates[0]["sessionUpdate"], "agent_message_chunk");
    assert_eq!(updates[0]["content"]["text"], "Hello!");
    assert!(editor.close().await.success());
}

/// The ten-line agent at an address, used by a client of the SDK.
#[tokio::test]
async fn the_program_behind_a_websocket_answers_a_client() {
    let address = trilogue_testkit::reserve_address().unwrap();
    let mut command = Command::new(program("websocket_echo"));
    let _running = command.env("ADDRESS", address.to_string()).kill_on_drop(true).spawn().unwrap();
    let url = AgentUrl::parse(&format!("ws://{address}/")).unwrap();
    let connecting = async {
        loop {
            // The program may not listen yet.
            match AgentClient::open(&url, RejectAll, Options::default()).await {
                Ok(client) => return client,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let client = timeout(LIMIT, connecting).await.unwrap();
    let session = client.new_session(SessionOptions::new("/work")).await.unwrap();
    let mut turn = session.prompt(Prompt::from("Hello!")).await.unwrap();
    let update = turn.next().await.unwrap().unwrap();
    assert_eq!(update.text(), "Hello!");
    assert!(turn.next().await.unwrap().is_none());
}

#[test]
fn no_program_is_left_out() {
    let manifest = include_str!("../../Cargo.toml");
    let mut names: Vec<&str> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
        .collect();
    names.retain(|name| *name != "trilogue-examples");
    names.sort_unstable();
    let mut run: Vec<&str> = [&SERVERS[..], &OTHERS, &RUN_ELSEWHERE].concat();
    run.sort_unstable();
    assert_eq!(names, run);
}
