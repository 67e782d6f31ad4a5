//! The processes that a command starts, and the events that end them.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;
use trilogue_backends::child::MARKER;
use trilogue_backends::workspace::{Files, Grants, Limits, Workspace};

use super::child::{is_running, pid_in, until};
use crate::harness::DEADLINE;

/// A workspace with files and terminals of an agent with this marker.
fn workspace(folder: &Path, limits: Limits) -> Workspace {
    let mut env: Vec<_> =
        ["PATH", "HOME"].map(|name| (name.to_owned(), std::env::var(name).unwrap())).into();
    env.push((MARKER.to_owned(), "the-agent".to_owned()));
    let grants = Grants { files: Files::Write, terminals: true, env, limits, ..Grants::default() };
    Workspace::open(folder, grants).unwrap()
}

async fn call(workspace: &Workspace, method: &str, params: Value) -> Value {
    let params = params.to_string();
    let result = timeout(DEADLINE, workspace.call(method, &params)).await.unwrap().unwrap();
    serde_json::from_slice(&result).unwrap()
}

fn sh(line: &str) -> Value {
    json!({ "sessionId": "", "command": "sh", "args": ["-c", line] })
}

/// A command line that leaves a process in a separate session, and prints its id.
fn stray(folder: &Path, rest: &str) -> Value {
    let file = folder.join("pid");
    sh(&format!("setsid sh -c 'echo $$ > {}; exec sleep 1000' & {rest}", file.display()))
}

#[tokio::test]
async fn a_workspace_that_is_dropped_takes_all_of_its_commands_along() {
    for rest in ["wait", "exit 0"] {
        let folder = TempDir::new().unwrap();
        let workspace = workspace(folder.path(), Limits::default());
        let created = call(&workspace, "terminal/create", stray(folder.path(), rest)).await;
        let file = folder.path().join("pid");
        until("it runs", || pid_in(&file).is_some()).await;
        let id = json!({ "sessionId": "", "terminalId": created["terminalId"] });
        if rest == "exit 0" {
            call(&workspace, "terminal/wait_for_exit", id).await;
        }
        let pid = pid_in(&file).unwrap();
        assert!(is_running(pid));
        // Another clone keeps the workspace.
        let clone = workspace.clone();
        drop(workspace);
        assert!(is_running(pid));
        drop(clone);
        until("it goes", || !is_running(pid)).await;
    }
}

#[tokio::test]
async fn a_command_cannot_take_itself_off_the_list() {
    let folder = TempDir::new().unwrap();
    let workspace = workspace(folder.path(), Limits::default());
    let env = json!([
        { "name": MARKER, "value": "-" },
        { "name": "TRILOGUE_TERMINAL", "value": "-" },
        { "name": "OTHER", "value": "x" },
    ]);
    let created =
        call(&workspace, "terminal/create", json!({ "command": "env", "env": env })).await;
    let id = json!({ "terminalId": created["terminalId"] });
    call(&workspace, "terminal/wait_for_exit", id.clone()).await;
    let shown = call(&workspace, "terminal/output", id).await;
    let said = shown["output"].as_str().unwrap();
    assert!(
        said.contains(&format!("{MARKER}=the-agent\n")) && said.contains("OTHER=x\n"),
        "{said}"
    );
    assert!(said.contains("TRILOGUE_TERMINAL=") && !said.contains("=-\n"), "{said}");
    workspace.close().await;
}

#[tokio::test]
async fn a_command_without_its_marker_goes_with_its_terminal() {
    let folder = TempDir::new().unwrap();
    let workspace = workspace(folder.path(), Limits::default());
    let file = folder.path().join("pid");
    let line = format!(
        "env -i $(command -v setsid) sh -c 'echo $$ > {}; exec sleep 1000' & wait",
        file.display()
    );
    let created = call(&workspace, "terminal/create", sh(&line)).await;
    until("it runs", || pid_in(&file).is_some()).await;
    call(&workspace, "terminal/release", json!({ "terminalId": created["terminalId"] })).await;
    assert!(!is_running(pid_in(&file).unwrap()));
}

#[tokio::test]
async fn a_terminal_that_nobody_waits_for_is_ended() {
    let folder = TempDir::new().unwrap();
    let limits = Limits { max_terminals: 1, max_terminals_per_minute: 1_000, ..Limits::default() };
    let workspace = workspace(folder.path(), limits);
    let release = |created: Vec<u8>| {
        let created: Value = serde_json::from_slice(&created).unwrap();
        call(&workspace, "terminal/release", json!({ "terminalId": created["terminalId"] }))
    };
    let mut given_up = 0;
    // A call that finishes at once cannot be abandoned.
    for number in 0..200 {
        if given_up == 3 {
            break;
        }
        let params = sh(&format!("echo $$ > pid-{number}; exec sleep 1000")).to_string();
        match timeout(Duration::ZERO, workspace.call("terminal/create", &params)).await {
            Err(_) => given_up += 1,
            Ok(Ok(created)) => drop(release(created).await),
            Ok(Err(error)) => assert!(error.message.contains("release one"), "{error}"),
        }
    }
    assert!(given_up > 0);
    // Each slot is free again, and no process is left.
    let free = async {
        loop {
            let params = sh("true").to_string();
            match workspace.call("terminal/create", &params).await {
                Ok(created) => return created,
                Err(error) => assert!(error.message.contains("release one"), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let created = timeout(DEADLINE, free).await.unwrap();
    release(created).await;
    timeout(DEADLINE, workspace.close()).await.unwrap();
    for number in 0..200 {
        let pid = pid_in(&folder.path().join(format!("pid-{number}")));
        assert!(pid.is_none_or(|pid| !is_running(pid)));
    }
}

#[tokio::test]
async fn what_is_no_file_is_not_even_opened() {
    let folder = TempDir::new().unwrap();
    let workspace = workspace(folder.path(), Limits::default());
    let path = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    // A writer blocks until the pipe is opened for reading, and opening it would end the wait.
    let script = format!("echo > {0}; echo > {0}.opened", path.display());
    let created = call(&workspace, "terminal/create", sh(&script)).await;
    let params = json!({ "sessionId": "", "path": "pipe" }).to_string();
    for _ in 0..50 {
        let refused = workspace.call("fs/read_text_file", &params).await.unwrap_err();
        assert!(refused.message.contains("not a regular file"), "{refused}");
    }
    let id = json!({ "terminalId": created["terminalId"] });
    call(&workspace, "terminal/release", id).await;
    assert!(!folder.path().join("pipe.opened").exists());
}
