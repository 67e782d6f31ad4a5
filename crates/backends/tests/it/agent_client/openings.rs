//! Events while a session is opened, and requests to open it with other params.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use trilogue_backends::agent_client::{ClientMeta, Processes};
use trilogue_backends::workspace::{Files, Grants};
use trilogue_domain::{Json, RunStatus, ThreadId};
use trilogue_store::rows::RunRow;

use super::rig::{HEARD, Rig, caller, caller_in, settle, until, until_async};
use crate::harness::failure;

fn opening(cwd: &Path, more: &Value) -> Json {
    let mut params = json!({ "cwd": cwd, "mcpServers": [] });
    for (name, value) in more.as_object().unwrap() {
        params[name] = value.clone();
    }
    Json::from_value(&params)
}

async fn open(rig: &Rig, thread: &ThreadId, params: Json) -> Json {
    let context = rig.context(thread).await;
    rig.sessions().open(&context, &caller("{}"), params).await.unwrap()
}

/// The agent's output for these words, by line.
async fn output_lines(rig: &Rig, thread: &ThreadId, words: &str) -> Vec<String> {
    let run = rig.run(thread, words).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
    rig.reply_text(&run).await.lines().map(str::to_owned).collect()
}

fn count_requests(record: &Path, method: &str) -> usize {
    let text = std::fs::read_to_string(record).unwrap_or_default();
    text.lines().filter(|line| line.contains(&format!("\"method\":\"{method}\""))).count()
}

async fn row(rig: &Rig, submitted: &trilogue_runtime::Submitted) -> RunRow {
    rig.store.run(&rig.by.scope(), &submitted.run.id).await.unwrap().unwrap()
}

async fn wait_for_openings(rig: &Rig, count: usize) {
    let asked = || count_requests(&rig.path(HEARD), "session/new");
    until("a session is being opened", || asked() >= count).await;
}

/// An agent that answers `session/new` once a file exists.
struct Gate {
    folder: tempfile::TempDir,
}

impl Gate {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    async fn rig(&self, change: impl FnOnce(&mut trilogue_backends::agent_client::Launch)) -> Rig {
        Rig::with(&["--open-when", &self.path().display().to_string()], change).await
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("gate")
    }

    fn open(&self) {
        std::fs::write(self.path(), "").unwrap();
    }
}

#[tokio::test]
async fn an_open_session_is_opened_again_where_its_client_wants_it_otherwise() {
    for how in ["--load", "--resume"] {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let rig = Rig::new(&[how, "--store", "{store}"]).await;
        let record = rig.path(HEARD);
        open(&rig, &rig.thread, opening(one.path(), &json!({}))).await;
        let remote = rig.context(&rig.thread).await.binding().await.unwrap().unwrap().remote;
        let first = output_lines(&rig, &rig.thread, "pid\nsession").await;
        // The same params again change nothing.
        open(&rig, &rig.thread, opening(one.path(), &json!({}))).await;
        let again = |record: &Path| {
            count_requests(record, "session/load") + count_requests(record, "session/resume")
        };
        assert_eq!(again(&record), 0);

        let servers =
            json!({ "mcpServers": [{ "name": "m", "command": "x", "args": [], "env": [] }] });
        open(&rig, &rig.thread, opening(one.path(), &servers)).await;
        assert_eq!(again(&record), 1);
        let second = output_lines(&rig, &rig.thread, "pid\nsession").await;
        assert_eq!(second[0], first[0]);
        let session: Value = serde_json::from_str(&second[1]).unwrap();
        assert_eq!(session["mcpServers"][0]["name"], "m");

        open(&rig, &rig.thread, opening(two.path(), &json!({}))).await;
        let third = output_lines(&rig, &rig.thread, "session").await;
        let session: Value = serde_json::from_str(&third[0]).unwrap();
        assert_eq!((&session["mcpServers"], &session["cwd"]), (&json!([]), &json!(two.path())));
        let binding = rig.context(&rig.thread).await.binding().await.unwrap().unwrap();
        assert_eq!(binding.remote, remote);
        assert_eq!(binding.capabilities.to_value()["cwd"], json!(two.path()));
        let log = rig.log(&rig.thread).await;
        let named = |event: &trilogue_domain::Event| format!("{:?}", event.body);
        assert!(!log.iter().any(|event| named(event).contains("session_restarted")));
        rig.end().await;
    }
}

#[tokio::test]
async fn a_session_in_which_a_turn_is_on_is_opened_otherwise_when_the_turn_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::new(&["--load", "--store", "{store}"]).await;
    open(&rig, &rig.thread, opening(folder.path(), &json!({}))).await;
    let busy = rig.begin(&rig.thread, "say:at work\nslow").await;
    let busy = row(&rig, &busy).await;
    until_async("it works", async || !rig.messages(&busy).await.is_empty()).await;
    let servers = json!({ "mcpServers": [{ "name": "m", "command": "x", "args": [], "env": [] }] });
    open(&rig, &rig.thread, opening(folder.path(), &servers)).await;
    assert_eq!(row_status(&rig, &busy).await, RunStatus::Running);
    // Closing the thread's session does not end a session in use either.
    rig.sessions().close(&rig.context(&rig.thread).await).await;
    assert_eq!(rig.cancel(&busy).await.status, RunStatus::Cancelled);
    let said = output_lines(&rig, &rig.thread, "session").await;
    let session: Value = serde_json::from_str(&said[0]).unwrap();
    assert_eq!(session["mcpServers"][0]["name"], "m");
    rig.end().await;
}

async fn row_status(rig: &Rig, run: &RunRow) -> RunStatus {
    rig.store.run(&rig.by.scope(), &run.id).await.unwrap().unwrap().status
}

#[tokio::test]
async fn a_process_is_started_where_its_thread_works() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let rig = Rig::with(&[], |launch| launch.cwd = None).await;
    // The process that only answers `initialize` runs in the server's directory.
    rig.sessions().greet(&caller("{}")).await.unwrap();
    for folder in [&one, &two] {
        let thread = rig.thread().await;
        open(&rig, &thread, opening(folder.path(), &json!({}))).await;
        let cwd = folder.path().canonicalize().unwrap().display().to_string();
        assert_eq!(output_lines(&rig, &thread, "cwd").await, [cwd]);
    }
    until("only the processes of the threads are left", || rig.children.count() == 2).await;
    rig.end().await;
}

#[tokio::test]
async fn a_process_is_started_where_it_is_said_wherever_its_session_works() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::new(&[]).await;
    rig.sessions().greet(&caller("{}")).await.unwrap();
    open(&rig, &rig.thread, opening(folder.path(), &json!({}))).await;
    let said = output_lines(&rig, &rig.thread, "cwd\nsession").await;
    assert_eq!(said[0], rig.folder.path().canonicalize().unwrap().display().to_string());
    let session: Value = serde_json::from_str(&said[1]).unwrap();
    assert_eq!(session["cwd"], json!(folder.path()));
    // The process that answered `initialize` has the session.
    assert_eq!(rig.children.count(), 1);
    rig.end().await;
}

#[tokio::test]
async fn a_process_that_opens_a_session_makes_room_for_another_when_it_has() {
    let gate = Gate::new();
    let rig = gate
        .rig(|launch| {
            launch.max_processes = 1;
            launch.idle_stop = Some(Duration::from_millis(1));
        })
        .await;
    let (one, two) = (rig.thread().await, rig.thread().await);
    let first = rig.begin(&one, "say:hello").await;
    wait_for_openings(&rig, 1).await;
    let second = rig.begin(&two, "say:hello").await;
    gate.open();
    let run = settle(first).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
    let run = settle(second).await;
    // Its turn may have taken longer than the wait for space.
    let is_refused = || &*failure(&run).code == "overloaded";
    assert!(run.status == RunStatus::Completed || is_refused(), "{:?}", run.outcome);
    rig.end().await;
}

#[tokio::test]
async fn the_session_of_a_run_that_was_cancelled_meanwhile_is_there_for_the_next() {
    let gate = Gate::new();
    let rig = gate.rig(|_| {}).await;
    let begun = rig.begin(&rig.thread, "say:hello").await;
    wait_for_openings(&rig, 1).await;
    let begun = row(&rig, &begun).await;
    assert_eq!(rig.cancel(&begun).await.status, RunStatus::Cancelled);
    gate.open();
    assert_eq!(output_lines(&rig, &rig.thread, "say:again").await, ["again"]);
    assert_eq!(count_requests(&rig.path(HEARD), "session/new"), 1);
    assert_eq!(rig.children.count(), 1);
    rig.end().await;
}

#[tokio::test]
async fn erasing_a_thread_does_not_wait_for_its_session() {
    let gate = Gate::new();
    let rig = gate.rig(|_| {}).await;
    for by_run in [true, false] {
        let thread = rig.thread().await;
        let context = rig.context(&thread).await;
        let before = count_requests(&rig.path(HEARD), "session/new");
        let client = caller("{}");
        let params = opening(rig.folder.path(), &json!({}));
        let opened = async {
            if by_run {
                rig.begin(&thread, "say:hello").await;
                true
            } else {
                rig.sessions().open(&context, &client, params).await.is_err()
            }
        };
        let erased = async {
            wait_for_openings(&rig, before + 1).await;
            let erasing = rig.runtime.erase_thread(&rig.by, &thread);
            // Far less than an erasure waits at most, and more than the end of a process takes.
            tokio::time::timeout(Duration::from_secs(8), erasing).await.unwrap().unwrap();
        };
        let (opened, ()) = tokio::join!(opened, erased);
        assert!(opened);
        until("its process is gone", || rig.children.count() == 0).await;
    }
    rig.end().await;
}

#[tokio::test]
async fn an_idle_process_makes_room_though_its_session_is_lost_with_it() {
    let rig = Rig::with(&[], |launch| launch.max_processes = 1).await;
    let (one, two) = (rig.thread().await, rig.thread().await);
    output_lines(&rig, &one, "say:the answer is 42").await;
    output_lines(&rig, &two, "say:x").await;
    assert_eq!(rig.children.count(), 1);
    let run = rig.run(&one, "prompt").await;
    assert!(rig.reply_text(&run).await.contains("the answer is 42"));
    assert_eq!(rig.custom(&run, "session_restarted").await.len(), 1);
    rig.end().await;
}

#[tokio::test]
async fn what_is_asked_before_the_session_is_known_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "what it says").unwrap();
    let file = folder.path().join("file").display().to_string();
    let rig = Rig::with(&["--early-read", &file], |launch| {
        launch.cwd = Some(folder.path().to_owned());
        launch.grants = Grants { files: Files::Read, ..Grants::default() };
    })
    .await;
    output_lines(&rig, &rig.thread, "say:x").await;
    let record = rig.path(HEARD);
    let answered = || std::fs::read_to_string(&record).unwrap_or_default();
    until("it is answered", || answered().contains("answered")).await;
    assert!(answered().contains("what it says"), "{}", answered());
    rig.end().await;
}

#[tokio::test]
async fn a_question_before_the_session_is_open_is_cancelled_and_the_opening_continues() {
    for is_new in [true, false] {
        let flags: &[&str] = match is_new {
            true => &["--ask-at-open"],
            false => &["--ask-at-open", "--load", "--store", "{store}"],
        };
        let rig = Rig::with(flags, |launch| launch.open_timeout = Duration::from_secs(600)).await;
        output_lines(&rig, &rig.thread, "say:x").await;
        if !is_new {
            rig.run(&rig.thread, "crash").await;
            output_lines(&rig, &rig.thread, "say:y").await;
            assert_eq!(count_requests(&rig.path(HEARD), "session/load"), 1);
        }
        let record = std::fs::read_to_string(rig.path(HEARD)).unwrap();
        let lines = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut answers: Vec<_> =
            lines.filter(|line| line["answered"] == "session/request_permission").collect();
        assert_eq!(answers.len(), if is_new { 1 } else { 2 });
        let last = answers.pop().unwrap();
        assert_eq!(last["result"], json!({ "outcome": { "outcome": "cancelled" } }));
        rig.end().await;
    }
}

#[tokio::test]
async fn what_names_no_session_is_of_the_only_one_in_a_process_of_its_own() {
    for processes in [Processes::Thread, Processes::Shared] {
        let rig = Rig::with(&[], |launch| launch.processes = processes).await;
        let line = r#"{"jsonrpc":"2.0","method":"_x/nameless","params":{"a":1}}"#;
        output_lines(&rig, &rig.thread, &format!("put:{line}\nsay:x")).await;
        let log = rig.log(&rig.thread).await;
        let originals = log.iter().filter_map(|event| event.original.as_ref());
        let known = originals.map(super::rig::text_of).any(|it| it.contains("_x/nameless"));
        assert_eq!(known, processes == Processes::Thread);
        rig.end().await;
    }
}

#[tokio::test]
async fn an_open_that_cannot_be_leaves_the_session_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::with(&["--load", "--store", "{store}"], |launch| launch.cwd = None).await;
    open(&rig, &rig.thread, opening(folder.path(), &json!({}))).await;
    let before = output_lines(&rig, &rig.thread, "pid\nsession").await;
    let (context, client) = (rig.context(&rig.thread).await, caller("{}"));
    let missing = opening(&folder.path().join("none"), &json!({}));
    assert!(rig.sessions().open(&context, &client, missing).await.is_err());
    assert_eq!(output_lines(&rig, &rig.thread, "pid\nsession").await, before);
    assert_eq!(count_requests(&rig.path(HEARD), "session/load"), 0);
    rig.end().await;
}

#[tokio::test]
async fn an_open_that_nobody_waits_for_any_more_is_as_if_it_had_not_been_asked_for() {
    let gate = Gate::new();
    let folder = tempfile::tempdir().unwrap();
    let rig = gate.rig(|_| {}).await;
    let (context, client) = (rig.context(&rig.thread).await, caller("{}"));
    tokio::select! {
        _ = rig.sessions().open(&context, &client, opening(folder.path(), &json!({}))) => panic!(),
        () = wait_for_openings(&rig, 1) => {}
    }
    gate.open();
    let said = output_lines(&rig, &rig.thread, "session").await;
    let session: Value = serde_json::from_str(&said[0]).unwrap();
    assert_eq!(session["cwd"], json!(rig.folder.path()));
    rig.end().await;
}

#[tokio::test]
async fn folders_that_are_not_there_are_no_fault_of_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::with(&[], |launch| launch.cwd = None).await;
    let client = caller("{}");
    for number in 0..8 {
        let thread = rig.thread().await;
        let context = rig.context(&thread).await;
        let missing = folder.path().join(format!("none-{number}"));
        let opened = rig.sessions().open(&context, &client, opening(&missing, &json!({}))).await;
        let why = opened.unwrap_err();
        assert_eq!(why.code, trilogue_runtime::CallError::INVALID_PARAMS, "{why}");
        assert!(why.message.contains(&format!("none-{number}")), "{why}");
    }
    let thread = rig.thread().await;
    open(&rig, &thread, opening(folder.path(), &json!({}))).await;
    assert_eq!(output_lines(&rig, &thread, "say:hello").await, ["hello"]);
    rig.end().await;
}

#[tokio::test]
async fn an_agent_that_dies_before_it_has_done_anything_is_left_alone_after_a_while() {
    for (flags, text, said) in [
        (vec!["--die-at-open", "3"], "x", "told to die when a session is opened"),
        (vec![], "stderr:a broken agent\ncrash", "a broken agent"),
    ] {
        let rig = Rig::new(&flags).await;
        let mut tried = 0;
        let why = loop {
            let why = failure(&rig.run(&rig.thread, text).await).message;
            if why.contains("failed 5 times within 60 seconds") {
                break why;
            }
            tried += 1;
            assert!(tried < 20, "{why}");
        };
        assert!(tried >= 5 && why.contains(said), "{tried}: {why}");
        rig.end().await;
    }
}

#[tokio::test]
async fn the_process_that_was_met_is_the_first_session_s_where_that_works_there() {
    let folder = tempfile::TempDir::new().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let params = || opening(&folder, &json!({}));
    // With the client's folder, with another one, and with a missing one.
    for (met_in, starts) in [(folder.clone(), 1), (PathBuf::from("/"), 2), ("/no/such".into(), 2)] {
        let rig = Rig::with(&[], |launch| launch.cwd = None).await;
        let client = caller_in(&met_in);
        rig.sessions().greet(&client).await.unwrap();
        let thread = rig.thread().await;
        let context = rig.context(&thread).await;
        rig.sessions().open(&context, &client, params()).await.unwrap();
        let run = rig.run(&thread, "cwd").await;
        assert_eq!(rig.reply_text(&run).await, folder.display().to_string());
        let heard = std::fs::read_to_string(rig.path(HEARD)).unwrap();
        let begun = heard.lines().filter(|line| line.contains(r#""method":"initialize""#)).count();
        assert_eq!(begun, starts, "{met_in:?}");
        rig.end().await;
    }
    // An agent with a fixed folder starts there for every client.
    let rig = Rig::new(&[]).await;
    let client = caller_in(&folder);
    rig.sessions().greet(&client).await.unwrap();
    let thread = rig.thread().await;
    let context = rig.context(&thread).await;
    rig.sessions().open(&context, &client, params()).await.unwrap();
    assert_eq!(rig.children.count(), 1);
    let run = rig.run(&thread, "cwd").await;
    let own = rig.folder.path().canonicalize().unwrap();
    assert_eq!(rig.reply_text(&run).await, own.display().to_string());
    rig.end().await;
}

#[tokio::test]
async fn instructions_that_are_too_long_to_be_kept_are_refused() {
    let rig = Rig::new(&["--system-prompt"]).await;
    let text = "x".repeat(32 * 1024);
    let prompt = json!({ "mode": "append", "content": [{ "type": "text", "text": text }] });
    let (context, client) = (rig.context(&rig.thread).await, caller("{}"));
    let params = opening(rig.folder.path(), &json!({ "systemPrompt": prompt }));
    let refused = rig.sessions().open(&context, &client, params).await.unwrap_err();
    assert_eq!(refused.code, trilogue_runtime::CallError::INVALID_PARAMS, "{refused}");
    assert!(refused.message.contains("32768 bytes"), "{refused}");
    rig.end().await;
}

fn last_params(record: &Path, method: &str) -> Value {
    let text = std::fs::read_to_string(record).unwrap();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut asked = lines.filter(|line| line["method"] == method);
    asked.next_back().unwrap()["params"].take()
}

#[tokio::test]
async fn what_a_client_says_beyond_what_is_known_comes_to_the_agent() {
    for meta in [ClientMeta::Pass, ClientMeta::Drop] {
        let rig = Rig::with(&[], |launch| launch.client_meta = meta).await;
        let prompt = json!({ "mode": "append", "content": [{ "type": "text", "text": "brief" }] });
        let more = json!({ "systemPrompt": prompt, "x": 1.5, "_meta": { "a": { "b": [null] } } });
        open(&rig, &rig.thread, opening(rig.folder.path(), &more)).await;
        let mut said = last_params(&rig.path(HEARD), "session/new");
        let known = said.as_object_mut().unwrap();
        assert_eq!(known.remove("cwd"), Some(json!(rig.folder.path())));
        assert_eq!(known.remove("mcpServers"), Some(json!([])));
        let mut expected = more.clone();
        if meta == ClientMeta::Drop {
            expected.as_object_mut().unwrap().remove("_meta");
        }
        assert_eq!(said, expected, "{meta:?}");
        rig.end().await;
    }
}
