//! The end of children, and of the processes that they started.

use std::path::Path;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use trilogue_backends::child::{Children, Leader, Program};

use super::child::{is_running, pid_in, program, start, until};

#[tokio::test]
async fn what_was_started_without_the_marker_goes_too() {
    let folder = TempDir::new().unwrap();
    let children = Children::open(None).await.unwrap();
    let file = folder.path().join("pid");
    // It has another session and another environment; its parent is still running.
    let script = format!(
        "env -i $(command -v setsid) sh -c 'echo $$ > {}; exec sleep 1000' & read line",
        file.display()
    );
    let started = start(&children, &["sh", "-c", &script], folder.path()).await;
    until("it runs", || pid_in(&file).is_some()).await;
    let pid = pid_in(&file).unwrap();
    assert!(is_running(pid));
    started.child.kill().await;
    assert!(!is_running(pid));
}

#[tokio::test]
async fn a_child_is_not_reaped_while_its_group_lives() {
    let folder = TempDir::new().unwrap();
    let children = Children::open(None).await.unwrap();
    let (file, heard) = (folder.path().join("pid"), folder.path().join("heard"));
    // It reports the request to exit but does not exit; its parent exits after that.
    let script = format!(
        "sh -c 'trap \"echo > {0}\" TERM; echo $$ > {1}; while :; do sleep 0.01; done' & \
         while [ ! -s {1} ]; do sleep 0.01; done; exit 0",
        heard.display(),
        file.display()
    );
    let started = start(&children, &["sh", "-c", &script], folder.path()).await;
    until("it runs", || pid_in(&file).is_some()).await;
    assert!(started.child.exited().await.is_success());
    until("it is asked to end", || heard.exists()).await;
    // The process id stays in use while signals are sent to the group.
    let pid = started.child.pid().unwrap();
    assert!(Path::new(&format!("/proc/{pid}")).exists() && !is_running(pid));
    started.child.kill().await;
    assert!(!is_running(pid_in(&file).unwrap()));
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn nothing_is_started_behind_a_close() {
    let folder = TempDir::new().unwrap();
    let children = Children::open(Some(folder.path().to_owned())).await.unwrap();
    // Children that are being started during the close are ended too.
    let all: Vec<_> = (0..8).map(|_| start_or_not(&children, folder.path())).collect();
    let started = futures_util::future::join_all(all);
    let (started, ()) = tokio::join!(started, async {
        tokio::task::yield_now().await;
        children.close().await;
    });
    assert_eq!(children.count(), 0);
    for pid in started.into_iter().flatten() {
        assert!(!is_running(pid));
    }
    let command = ["sleep".to_owned(), "1000".to_owned()];
    let refused = children.start(program(&command, folder.path())).await.unwrap_err();
    assert_eq!(refused.code().as_str(), "shutting_down");
}

async fn start_or_not(children: &Children, cwd: &Path) -> Option<u32> {
    let command = ["sleep".to_owned(), "1000".to_owned()];
    let started = children.start(program(&command, cwd)).await.ok()?;
    started.child.pid()
}

#[tokio::test]
async fn how_a_process_ended_is_known_before_it_is_reaped() {
    for (script, expected) in [
        ("exit 0", "exit status: 0"),
        ("exit 7", "exit status: 7"),
        ("exit 255", "exit status: 255"),
        ("kill -9 $$", "signal: 9 (SIGKILL)"),
    ] {
        let mut command = tokio::process::Command::new("sh");
        let leader = Leader::spawn(command.args(["-c", script])).unwrap();
        for _ in 0..2 {
            assert_eq!(leader.wait_for_exit().await.unwrap().to_string(), expected);
        }
        let path = format!("/proc/{}", leader.pid());
        assert!(Path::new(&path).exists());
        leader.reap().await;
        assert!(!Path::new(&path).exists());
    }
}

#[tokio::test]
async fn a_process_that_is_dropped_takes_its_group_along() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("pid");
    let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
    let mut command = tokio::process::Command::new("sh");
    let leader = Leader::spawn(command.args(["-c", &script])).unwrap();
    until("it runs", || pid_in(&file).is_some()).await;
    drop(leader);
    until("it is gone", || !is_running(pid_in(&file).unwrap())).await;
}

#[tokio::test]
async fn no_secret_is_shown_whatever_its_name_is_and_whenever_it_was_learnt() {
    let children = Children::open(None).await.unwrap();
    let script = "read later; echo \"$DATABASE_URL $PGPASS $later $HOME $PWD\" >&2; echo; read end";
    let command = ["sh".to_owned(), "-c".to_owned(), script.to_owned()];
    let env = [("DATABASE_URL", "postgres://u:pw@host/db"), ("PGPASS", "correct horse")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let program = Program { env: &env, ..program(&command, Path::new("/")) };
    let mut started = children.start(program).await.unwrap();
    started.child.hide(["token-of-a-client", "short"]);
    let written = tokio::io::AsyncWriteExt::write_all(&mut started.input, b"token-of-a-client\n");
    written.await.unwrap();
    let mut lines = BufReader::new(started.output).lines();
    lines.next_line().await.unwrap().unwrap();
    drop(started.input);
    started.child.stop().await;
    let home = std::env::var("HOME").unwrap();
    let expected = format!("[hidden] [hidden] [hidden] {home} /");
    assert_eq!(started.child.captured().tail(1_024), expected);
}
