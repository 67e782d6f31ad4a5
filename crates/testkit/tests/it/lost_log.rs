//! The write-ahead log of a killed server is damaged: the server reports the lost data, and nothing more.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use trilogue_testkit::{Client, Folder, Home, Seed, Server, ServerOptions};

use crate::{echo, events};

/// The number of damages to try.
const DAMAGES: u64 = 100;
const THREADS: usize = 6;
/// The largest number of commits after the last acknowledged event.
const MAX_ROW_COMMITS: u64 = 2;

type Truth = BTreeMap<String, Vec<Value>>;

/// The server's report on its threads and its log.
#[derive(Debug)]
struct Report {
    /// Threads whose events differ from the acknowledged ones.
    differing: Vec<String>,
    /// Threads that the list marks as damaged.
    damaged: Vec<String>,
    lost_commits: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_log_is_reported_exactly_where_it_loses_what_was_acknowledged() {
    let (number, mut seed) = Seed::from_env("TRILOGUE_SEED");
    eprintln!("TRILOGUE_SEED={number}");
    let dir = Folder::new().unwrap();
    let server = Server::start(dir.path(), &ServerOptions::default()).await.unwrap();
    let client = server.client();
    let mut truth = Truth::new();
    for index in 0..THREADS {
        let thread = format!("t{index}");
        echo(&client, &thread, &format!("first {index}")).await.ok().unwrap();
        echo(&client, &thread, &format!("second {index}")).await.ok().unwrap();
        truth.insert(thread.clone(), events(&client, &thread).await.unwrap());
    }
    let home = server.kill().await.unwrap();
    let files = read_files(&home);
    let log = home.store_dir().join("trilogue.db-wal");
    let whole = fs::read(&log).unwrap();

    let mut losses = 0;
    for damage in 0..DAMAGES {
        write_files(&home, &files);
        match seed.below(8) {
            0 => fs::remove_file(&log).unwrap(),
            1 | 2 => {
                let length = seed.below(whole.len() as u64);
                fs::File::options().write(true).open(&log).unwrap().set_len(length).unwrap();
            }
            _ => {
                let mut bytes = whole.clone();
                bytes[seed.below(whole.len() as u64) as usize] ^= 1 << seed.below(8);
                fs::write(&log, bytes).unwrap();
            }
        }
        let server = home.start().await.unwrap();
        let report = read(&server.client(), &truth).await;
        let is_lost = !report.differing.is_empty();
        let is_reported = report.lost_commits > 0;
        assert!(is_reported || !is_lost, "damage {damage} is not reported: {report:?}");
        // A thread's last commits may have changed rows only, without events.
        let is_of_rows = is_reported && !is_lost && report.lost_commits <= MAX_ROW_COMMITS;
        assert!(is_lost == is_reported || is_of_rows, "damage {damage} lost nothing: {report:?}");
        let is_marked = |thread| report.damaged.contains(thread);
        assert!(report.differing.iter().all(is_marked), "damage {damage}: {report:?}");
        losses += usize::from(is_lost);
        if is_lost && losses == 1 {
            assert!(home.log_end().contains("the write-ahead log is damaged: "));
            let home = server.kill().await.unwrap();
            stays_reported_until_erased(&home, &report, &truth).await;
        } else {
            server.kill().await.unwrap();
        }
    }
    eprintln!("{losses} of {DAMAGES} damages lost something");
    assert!(losses > 20, "{losses}");

    write_files(&home, &files);
    let server = home.start().await.unwrap();
    let report = read(&server.client(), &truth).await;
    assert!(report.differing.is_empty() && report.lost_commits == 0, "{report:?}");
}

/// The report survives a restart, and disappears once its threads are erased.
async fn stays_reported_until_erased(home: &Home, before: &Report, truth: &Truth) {
    let server = home.start().await.unwrap();
    let client = server.client();
    let again = read(&client, truth).await;
    assert_eq!((&again.damaged, again.lost_commits), (&before.damaged, before.lost_commits));
    let metrics = String::from_utf8(client.get("/metrics").await.unwrap().body.to_vec()).unwrap();
    let count = format!("trilogue_store_lost_commits {}", before.lost_commits);
    assert!(metrics.contains(&count), "{metrics}");
    for thread in &again.damaged {
        let path = format!("/api/v1/threads/{thread}");
        let reply =
            client.send(http::Method::DELETE, &path, &[], bytes::Bytes::new()).await.unwrap();
        assert!(reply.status < 300, "{reply:?}");
        echo(&client, thread, "begins again").await.ok().unwrap();
    }
    let (home, _) = server.stop().await.unwrap();
    let server = home.start().await.unwrap();
    let after = read(&server.client(), &Truth::new()).await;
    assert!(after.damaged.is_empty() && after.lost_commits == 0, "{after:?}");
    server.kill().await.unwrap();
}

async fn read(client: &Client, truth: &Truth) -> Report {
    let mut differing = Vec::new();
    for (thread, expected) in truth {
        if events(client, thread).await.ok().as_ref() != Some(expected) {
            differing.push(thread.clone());
        }
    }
    let list = client.get("/api/v1/threads?limit=100").await.unwrap().ok().unwrap();
    let listed = list["items"].as_array().cloned().unwrap_or_default();
    let mut damaged: Vec<_> = listed
        .iter()
        .filter(|thread| thread["damage"].is_string())
        .filter_map(|thread| thread["id"].as_str().map(str::to_owned))
        .collect();
    damaged.sort();
    let status = client.get("/api/v1/status").await.unwrap().ok().unwrap();
    let lost_commits = status["store"]["lost_commits"].as_u64().unwrap();
    Report { differing, damaged, lost_commits }
}

fn read_files(home: &Home) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(home.store_dir()).unwrap().map(|entry| entry.unwrap().path());
    let is_kept = |path: &PathBuf| path.is_file() && !is_reserve(path);
    files.filter(is_kept).map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

fn write_files(home: &Home, files: &[(PathBuf, Vec<u8>)]) {
    for entry in fs::read_dir(home.store_dir()).unwrap() {
        let path = entry.unwrap().path();
        if !is_reserve(&path) {
            fs::remove_file(path).unwrap();
        }
    }
    for (path, bytes) in files {
        fs::write(path, bytes).unwrap();
    }
}

/// Whether this is the reserve file, which is large and has no content.
fn is_reserve(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "reserve")
}
