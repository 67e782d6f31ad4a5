//! Commands that an agent runs.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;
use trilogue_backends::workspace::{Grants, Limits, Workspace};
use trilogue_wire::jsonrpc::ErrorObject;

use crate::harness::DEADLINE;

struct Shell {
    folder: TempDir,
    workspace: Workspace,
}

impl Shell {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let env = ["PATH", "HOME"].map(|name| (name.to_owned(), std::env::var(name).unwrap()));
        let grants = Grants { terminals: true, env: env.into(), limits, ..Grants::default() };
        let workspace = Workspace::open(folder.path(), grants).unwrap();
        Self { folder, workspace }
    }

    async fn call(&self, method: &str, mut params: Value) -> Result<Value, ErrorObject> {
        params["sessionId"] = json!("");
        let params = params.to_string();
        let call = self.workspace.call(method, &params);
        let result = timeout(DEADLINE, call).await.unwrap()?;
        Ok(serde_json::from_slice(&result).unwrap())
    }

    async fn create(&self, params: Value) -> Result<String, ErrorObject> {
        let result = self.call("terminal/create", params).await?;
        Ok(result["terminalId"].as_str().unwrap().to_owned())
    }

    async fn sh(&self, line: &str) -> String {
        self.create(json!({ "command": "sh", "args": ["-c", line] })).await.unwrap()
    }

    async fn call_terminal(&self, method: &str, id: &str) -> Result<Value, ErrorObject> {
        self.call(&format!("terminal/{method}"), json!({ "terminalId": id })).await
    }

    async fn final_output(&self, id: &str) -> String {
        self.call_terminal("wait_for_exit", id).await.unwrap();
        self.call_terminal("output", id).await.unwrap()["output"].as_str().unwrap().to_owned()
    }

    async fn wait_for_file(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        until(|| std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))).await
    }
}

async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, found).await.unwrap()
}

/// Whether a process exists and is not a zombie.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(PathBuf::from(format!("/proc/{}/stat", pid.trim())));
    stat.is_ok_and(|stat| {
        !matches!(stat.rsplit(')').next().unwrap().trim().as_bytes().first(), Some(b'Z' | b'X'))
    })
}

#[tokio::test]
async fn a_command_says_what_it_says_and_how_it_ended() {
    let shell = Shell::new();
    let id = shell.sh("echo out; echo err >&2; echo last; exit 3").await;
    assert_eq!(shell.call_terminal("wait_for_exit", &id).await.unwrap(), json!({ "exitCode": 3 }));
    let shown = shell.call_terminal("output", &id).await.unwrap();
    let expected = json!({
        "output": "out\nerr\nlast\n", "truncated": false, "exitStatus": { "exitCode": 3 }
    });
    assert_eq!(shown, expected);
    assert_eq!(shell.call_terminal("kill", &id).await.unwrap(), json!({}));
    assert_eq!(shell.call_terminal("output", &id).await.unwrap(), expected);
    assert_eq!(shell.call_terminal("release", &id).await.unwrap(), json!({}));
    for method in ["output", "wait_for_exit", "kill", "release"] {
        assert_eq!(shell.call_terminal(method, &id).await.unwrap_err().code.0, -32002, "{method}");
    }
}

#[tokio::test]
async fn what_a_command_says_is_there_while_it_runs() {
    let shell = Shell::new();
    let id = shell.sh("echo ready; exec sleep 1000").await;
    let shown = loop {
        let shown = shell.call_terminal("output", &id).await.unwrap();
        if shown["output"] != "" {
            break shown;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(shown, json!({ "output": "ready\n", "truncated": false }));
    let (waited, killed) =
        tokio::join!(shell.call_terminal("wait_for_exit", &id), shell.call_terminal("kill", &id));
    assert_eq!(waited.unwrap(), json!({ "signal": "SIGTERM" }));
    assert_eq!(killed.unwrap(), json!({}));
}

#[tokio::test]
async fn a_command_gets_its_folder_and_no_more_of_the_environment_than_it_should() {
    let shell = Shell::new();
    let real = shell.folder.path().canonicalize().unwrap();
    std::fs::create_dir(real.join("inner")).unwrap();
    let env = json!([{ "name": "GREETING", "value": "hi" }, { "name": "HOME", "value": "/x" }]);
    let id = shell.create(json!({ "command": "env", "env": env })).await.unwrap();
    let said = shell.final_output(&id).await;
    let mut names: Vec<_> = said.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["GREETING", "HOME", "PATH", "PWD", "TRILOGUE_TERMINAL"]);
    assert!(said.contains("GREETING=hi\n") && said.contains("HOME=/x\n"), "{said}");
    let inner = real.join("inner");
    for (cwd, expected) in [
        (Value::Null, real.clone()),
        (json!("inner"), inner.clone()),
        (json!(inner), inner.clone()),
        (json!(shell.folder.path().join("inner/..")), real.clone()),
    ] {
        let id = shell.create(json!({ "command": "pwd -P; pwd", "cwd": cwd })).await.unwrap();
        let expected = expected.display();
        assert_eq!(shell.final_output(&id).await, format!("{expected}\n{expected}\n"));
    }
    std::os::unix::fs::symlink("/etc", real.join("out")).unwrap();
    for cwd in ["/etc", "..", "out", "inner/../.."] {
        let error = shell.create(json!({ "command": "pwd", "cwd": cwd })).await.unwrap_err();
        assert!(error.message.contains("outside of the workspace"), "{cwd}: {error}");
    }
    let error = shell.create(json!({ "command": "pwd", "cwd": "none" })).await.unwrap_err();
    assert_eq!(error.code.0, -32002);
}

#[tokio::test]
async fn a_line_is_for_the_shell_and_arguments_are_not() {
    let shell = Shell::new();
    for (params, expected) in [
        (json!({ "command": "echo a | tr a b" }), "b\n"),
        (json!({ "command": "echo", "args": ["$HOME", "a | b", ""] }), "$HOME a | b \n"),
        (json!({ "command": "echo", "args": null, "env": null }), "\n"),
    ] {
        let id = shell.create(params).await.unwrap();
        assert_eq!(shell.final_output(&id).await, expected);
    }
    for (params, why) in [
        (json!({ "command": "no-such-program", "args": ["x"] }), "'no-such-program' cannot be run"),
        (json!({ "command": "" }), "empty"),
        (json!({ "command": "a\0" }), "zero bytes"),
        (
            json!({ "command": "true", "env": [{ "name": "A=B", "value": "" }] }),
            "name of a variable",
        ),
        (json!({ "command": "true", "args": ["x".repeat(200_000)] }), "more than 131072 bytes"),
    ] {
        let error = shell.create(params).await.unwrap_err();
        assert_eq!(error.code.0, -32602);
        assert!(error.message.contains(why), "{error}");
    }
}

#[tokio::test]
async fn output_is_cut_at_the_front_on_a_character() {
    let shell = Shell::with(Limits { max_output_bytes: 1_000, ..Limits::default() });
    let line = "i=0; while [ $i -lt 400 ]; do printf 'ü%d' $i; i=$((i+1)); done";
    let args = json!(["-c", line]);
    for (asked, most) in
        [(json!(100), 100), (Value::Null, 1_000), (json!(5_000_000_000_u64), 1_000)]
    {
        let params = json!({ "command": "sh", "args": args, "outputByteLimit": asked });
        let id = shell.create(params).await.unwrap();
        let said = shell.final_output(&id).await;
        assert!(said.len() <= most && said.len() >= most - 1, "{}", said.len());
        assert!(said.ends_with("ü399"), "{said}");
        assert_eq!(shell.call_terminal("output", &id).await.unwrap()["truncated"], true);
    }
}

#[tokio::test]
async fn a_command_that_says_without_end_is_held_back() {
    let limits =
        Limits { max_output_bytes: 64 * 1024, max_output_rate: 1024 * 1024, ..Limits::default() };
    let shell = Shell::with(limits);
    // It writes ten times the allowed output of a second, and reports how long that took.
    let line = "s=$(date +%s%N); head -c 2097152 /dev/zero; e=$(date +%s%N); echo $(((e-s)/1000000)) > took";
    let id = shell.sh(line).await;
    shell.final_output(&id).await;
    let took: u64 = shell.wait_for_file("took").await.trim().parse().unwrap();
    assert!(took >= 1_000, "{took} ms");
}

#[tokio::test]
async fn all_that_a_command_started_goes_with_its_terminal() {
    let shell = Shell::with(Limits { kill_grace: Duration::from_millis(200), ..Limits::default() });
    // One process in the group, one that left it, and one that ignores signals. The command itself exits or does not.
    let family = "sleep 1000 & echo $! > a; setsid sh -c 'echo $$ > b; sleep 1000; :' & \
        sh -c 'trap \"\" TERM; echo $$ > c; while :; do sleep 1; done' &";
    for (method, rest) in
        [("release", "wait"), ("release", "exit 0"), ("kill", "wait"), ("close", "wait")]
    {
        for name in ["a", "b", "c"] {
            let _ = std::fs::remove_file(shell.folder.path().join(name));
        }
        let id = shell.sh(&format!("{family} {rest}")).await;
        let mut pids = Vec::new();
        for name in ["a", "b", "c"] {
            pids.push(shell.wait_for_file(name).await);
        }
        if rest == "exit 0" {
            assert_eq!(
                shell.call_terminal("wait_for_exit", &id).await.unwrap(),
                json!({ "exitCode": 0 })
            );
        }
        assert!(pids.iter().all(|pid| lives(pid)), "{method}: {pids:?}");
        match method {
            "close" => timeout(DEADLINE, shell.workspace.close()).await.unwrap(),
            method => drop(shell.call_terminal(method, &id).await.unwrap()),
        }
        until(|| pids.iter().all(|pid| !lives(pid)).then_some(())).await;
    }
    // No command starts after the end.
    assert!(shell.create(json!({ "command": "true" })).await.is_err());
}

#[tokio::test]
async fn a_workspace_that_is_dropped_takes_its_commands_along() {
    let shell = Shell::new();
    shell.sh("echo $$ > pid; exec sleep 1000").await;
    let pid = shell.wait_for_file("pid").await;
    assert!(lives(&pid));
    drop(shell);
    until(|| (!lives(&pid)).then_some(())).await;
}

#[tokio::test]
async fn terminals_are_counted() {
    let limits = Limits { max_terminals: 2, max_terminals_per_minute: 4, ..Limits::default() };
    let shell = Shell::with(limits);
    let one = shell.sh("exit 0").await;
    let other = shell.sh("exit 0").await;
    assert_ne!(one, other);
    let create = || shell.create(json!({ "command": "true" }));
    let error = create().await.unwrap_err();
    assert!(error.message.contains("release one"), "{error}");
    for id in [one, other] {
        shell.call_terminal("release", &id).await.unwrap();
    }
    for _ in 0..2 {
        let id = create().await.unwrap();
        shell.call_terminal("release", &id).await.unwrap();
    }
    let error = create().await.unwrap_err();
    assert!(error.message.contains("within a minute"), "{error}");
}
