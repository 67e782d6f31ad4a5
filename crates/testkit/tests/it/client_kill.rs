//! `kill -9` under hosted agents and attached editors.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use trilogue_testkit::editor::agent_text;
use trilogue_testkit::{Editor, Folder, Home, Seed, Server, ServerOptions, until};

use crate::client_official::{hosted, scripted};
use crate::kill_rounds::{announced_seed, kill_late, rounds, stop};

const AGENTS: usize = 24;
/// The time limit for the next server to clean up after the killed one.
const CLEAR_LIMIT: Duration = Duration::from_secs(60);
/// How many times the server is killed under editors; `TRILOGUE_KILL_ROUNDS` overrides it.
const ROUNDS: u64 = 6;
const LATEST_KILL_MS: u64 = 400;
/// An environment variable that all processes of an agent have.
const MARK: &str = "TRILOGUE_TEST_MARK";

fn marked_pids(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let found = processes.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| variable == wanted.as_bytes()).then_some(number)
    });
    found.collect()
}

/// Starts a server with an agent behind a shell that forwards no signals. The agent starts another process and ignores the end of its input.
async fn serve_stubborn(dir: &Folder, store: &Folder, mark: &str) -> Server {
    let stray = store.path().join("stray").display().to_string();
    let agent =
        scripted(&store.path().join("sessions"), &["--ignore-eof", "--stray", &stray]).await;
    let shell = ["sh", "-c", "\"$0\" \"$@\"; true"].map(str::to_owned);
    let command = shell.into_iter().chain(agent).collect();
    let mut settings = hosted(&[("stubborn", command)]);
    settings.push_str(&format!(
        "max_processes = {}\noutlive = false\n\n[agents.stubborn.env]\n{MARK} = \"{mark}\"\n",
        2 * AGENTS
    ));
    let options = ServerOptions { settings, ..ServerOptions::default() };
    Server::start(dir.path(), &options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_behind_shells_are_gone_after_kill_9_and_their_sessions_load() {
    let (dir, store, cwd) =
        (Folder::new().unwrap(), Folder::new().unwrap(), Folder::new().unwrap());
    let mark = format!("{}-{:016x}", std::process::id(), Seed::from_env("TRILOGUE_SEED").1.draw());
    let server = serve_stubborn(&dir, &store, &mark).await;
    let command = server.home().command_line(&["connect", "stubborn"]).await.unwrap();
    let mut editor = Editor::launch(&command, cwd.path()).await;
    let mut sessions = Vec::new();
    for _ in 0..AGENTS {
        sessions.push(editor.session_in(cwd.path()).await);
    }
    let mut turns = Vec::new();
    for (number, session) in sessions.iter().enumerate() {
        turns.push(editor.start_prompt(session, &format!("say:I am {number}")).await);
    }
    for turn in turns {
        editor.end_turn(&turn).await;
    }
    // The shell, the agent, and the process that the agent started.
    assert_eq!(marked_pids(&mark).len(), 3 * AGENTS, "processes of {AGENTS} agents");
    editor.kill().await;

    let home = server.kill().await.unwrap();
    let server = home.start().await.unwrap();
    let gone = until("no stray", CLEAR_LIMIT, || {
        let left = marked_pids(&mark);
        async move { left.is_empty().then_some(()) }
    });
    gone.await
        .unwrap_or_else(|error| panic!("{error}: {:?}\n{}", marked_pids(&mark), home.log_end()));

    let mut editor = Editor::launch(&command, cwd.path()).await;
    for (number, session) in sessions.iter().enumerate() {
        editor.load_in(session, cwd.path()).await;
        assert_eq!(agent_text(&editor.updates_of(session)), format!("I am {number}"));
        assert_eq!(editor.prompt(session, "say:, still").await["stopReason"], "end_turn");
    }
    editor.close().await;
    stop(server).await;
    let gone = until("no process after the stop", CLEAR_LIMIT, || {
        let left = marked_pids(&mark);
        async move { left.is_empty().then_some(()) }
    });
    gone.await.unwrap();
}

/// The updates that an editor received on a session, without its own prompts.
fn agent_updates(editor: &Editor, session: &str) -> Vec<Value> {
    let mut updates = editor.updates_of(session);
    updates.retain(|update| update["sessionUpdate"] != "user_message_chunk");
    updates
}

/// Two editors send prompts, each on its session, while the server is killed; both stay attached all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn editors_notice_a_pause_and_nothing_else() {
    let mut seed = announced_seed();
    let (dir, store, cwd) =
        (Folder::new().unwrap(), Folder::new().unwrap(), Folder::new().unwrap());
    let settings = hosted(&[("scripted", scripted(store.path(), &[]).await)]);
    let options = ServerOptions { settings, ..ServerOptions::default() };
    let mut server = Server::start(dir.path(), &options).await.unwrap();
    let mut players = Vec::new();
    for agent in ["researcher", "scripted"] {
        let command = server.home().command_line(&["connect", agent]).await.unwrap();
        let mut editor = Editor::launch(&command, cwd.path()).await;
        let session = editor.session_in(cwd.path()).await;
        players.push((command, editor, session));
    }
    let (mut ends, mut failures) = (0, 0);
    for round in 0..rounds(ROUNDS) {
        let mut turns = Vec::new();
        for (_, editor, session) in &mut players {
            let text =
                format!("think:round {round}\nchunks:{}\ntool\nsay:end {round}", seed.below(400));
            turns.push(editor.start_prompt(session, &text).await);
        }
        let home = kill_late(server, seed.below(LATEST_KILL_MS)).await;
        server = home.start().await.unwrap();
        for (turn, (_, editor, _)) in turns.iter().zip(&mut players) {
            let answer = editor.answer(turn).await;
            // A hosted agent is killed with its server: its turn fails, with a reason.
            match answer["result"]["stopReason"].as_str() {
                Some(reason) => assert_eq!(reason, "end_turn", "{answer}"),
                None => assert!(answer["error"]["message"].is_string(), "{answer}"),
            }
            ends += u32::from(answer["error"].is_null());
            failures += u32::from(!answer["error"].is_null());
        }
    }
    eprintln!("{ends} turns ended, {failures} failed");
    // A turn succeeds after all kills, and the editors received exactly what the log has: nothing twice, nothing lost.
    for (command, mut editor, session) in players {
        assert_eq!(editor.prompt(&session, "say:over").await["stopReason"], "end_turn");
        let mut other = Editor::launch(&command, cwd.path()).await;
        other.load_in(&session, cwd.path()).await;
        assert_eq!(
            agent_updates(&editor, &session),
            agent_updates(&other, &session),
            "live and replayed"
        );
        assert!(editor.close().await.success());
    }
}

/// A question of a built-in agent survives the server: the editor answers a question from before the kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_outlives_the_server() {
    let (dir, cwd) = (Folder::new().unwrap(), Folder::new().unwrap());
    let server = Server::start(dir.path(), &ServerOptions::default()).await.unwrap();
    let command = server.home().command_line(&["connect", "mailcomposer"]).await.unwrap();
    let mut editor = Editor::launch(&command, cwd.path()).await;
    let session = editor.session_in(cwd.path()).await;
    let letter = "Write to ada@example.com about the report: it is ready.";
    let turn = editor.start_prompt(&session, letter).await;
    let is_question = |message: &Value| {
        let method = message["method"].as_str().unwrap_or_default();
        matches!(method, "session/request_permission" | "elicitation/create")
    };
    let question = editor.until(is_question).await;
    let home: Home = server.kill().await.unwrap();
    let server = home.start().await.unwrap();
    let options = question["params"]["options"].as_array().cloned().unwrap_or_default();
    let allow = options.iter().find(|option| option["kind"] == "allow_once").unwrap();
    editor.choose(&question, allow["optionId"].as_str().unwrap()).await;
    editor.end_turn(&turn).await;
    assert!(!editor.has_before(is_question), "the editor was asked twice");
    assert!(editor.close().await.success());
    stop(server).await;
}
