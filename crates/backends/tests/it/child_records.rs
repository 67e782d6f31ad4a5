//! The records of children on disk.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use trilogue_backends::child::{Children, MARKER};

use super::child::{is_running, pid_in, records, start, until};

async fn open(state: &Path) -> Arc<Children> {
    Children::open(Some(state.to_owned())).await.unwrap()
}

#[tokio::test]
async fn records_that_cannot_be_read_keep_nothing_from_starting() {
    let folder = TempDir::new().unwrap();
    let all = folder.path().join("children");
    // An earlier life that has ended, as its lock shows.
    let life = all.join(uuid::Uuid::new_v4().to_string());
    std::fs::create_dir_all(&life).unwrap();
    let names = [0; 3].map(|_| uuid::Uuid::new_v4().to_string());
    let half = format!("{}.new", names[0]);
    let long = "x".repeat(100_000);
    let other = r#"{"boot":"another","child":{"pid":1,"start":1}}"#;
    for (name, text) in [(&names[0], "{ nonsense"), (&names[1], &long), (&names[2], other)] {
        std::fs::write(life.join(name), text).unwrap();
    }
    std::fs::write(life.join(&half), "").unwrap();
    std::fs::write(all.join("other"), "x").unwrap();
    std::fs::create_dir(all.join("folder")).unwrap();
    let children = open(folder.path()).await;
    assert_eq!(children.strays(), 0);
    assert!(!life.exists() && all.join("other").exists() && all.join("folder").exists());
}

#[tokio::test]
async fn two_servers_in_one_process_know_their_own_children() {
    let folder = TempDir::new().unwrap();
    let one = open(folder.path()).await;
    let started = start(&one, &["sleep", "1000"], folder.path()).await;
    let pid = started.child.pid().unwrap();
    let other = open(folder.path()).await;
    assert_eq!((other.strays(), is_running(pid)), (0, true));
    let beside = start(&other, &["sleep", "1000"], folder.path()).await;
    other.close().await;
    assert!(is_running(pid) && !is_running(beside.child.pid().unwrap()));
    assert_eq!(records(folder.path()), [started.child.instance().to_string()]);
    one.close().await;
    assert!(!is_running(pid) && records(folder.path()).is_empty());
}

#[tokio::test]
async fn a_child_that_ends_at_once_leaves_no_record() {
    let folder = TempDir::new().unwrap();
    let children = open(folder.path()).await;
    let mut all = Vec::new();
    for _ in 0..40 {
        all.push(start(&children, &["true"], folder.path()).await);
    }
    for started in &all {
        assert!(started.child.exited().await.is_success());
    }
    until("all are forgotten", || children.count() == 0).await;
    assert_eq!(records(folder.path()), Vec::<String>::new());
}

#[tokio::test]
async fn a_life_that_is_over_leaves_nothing_on_disk() {
    let folder = TempDir::new().unwrap();
    let children = open(folder.path()).await;
    start(&children, &["true"], folder.path()).await.child.stop().await;
    children.close().await;
    drop(children);
    let left = std::fs::read_dir(folder.path().join("children")).unwrap();
    let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["lock"]);
}

/// A record is useless if process ids have another meaning: then only the marker counts.
#[tokio::test]
async fn what_a_dead_life_left_is_found_by_its_marker_alone() {
    let folder = TempDir::new().unwrap();
    let instance = uuid::Uuid::new_v4();
    let life = folder.path().join("children").join(uuid::Uuid::new_v4().to_string());
    std::fs::create_dir_all(&life).unwrap();
    // The record names this very process, in another id namespace; the earlier life left a process with its marker.
    let own = std::process::id();
    let start = own_start();
    let text = format!(r#"{{"numbers":"elsewhere","child":{{"pid":{own},"start":{start}}}}}"#);
    std::fs::write(life.join(instance.to_string()), text).unwrap();
    let file = folder.path().join("pid");
    let mut stray = std::process::Command::new("sh")
        .args(["-c", &format!("echo $$ > {}; exec sleep 1000", file.display())])
        .env(MARKER, instance.to_string())
        .spawn()
        .unwrap();
    until("it runs", || pid_in(&file).is_some()).await;
    let mut beside = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let children = open(folder.path()).await;
    // Processes in this process's own group continue.
    assert_eq!((children.strays(), is_running(beside.id())), (1, true));
    assert!(!stray.wait().unwrap().success() && !life.exists());
    beside.kill().unwrap();
    beside.wait().unwrap();
}

fn own_start() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap()
}
