//! A second process on the same store.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use trilogue_testkit::{Folder, Home, Server, ServerOptions, until};

use crate::client_official::{hosted, scripted};
use crate::{echo, events, run_of};

/// Far less than `server.shutdown_deadline`, which is 30 seconds.
const STOP_LIMIT: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_server_on_the_same_store_names_the_first() {
    let dir = Folder::new().unwrap();
    let server = Server::start(dir.path(), &ServerOptions::default()).await.unwrap();
    let client = server.client();
    echo(&client, "t", "one").await.ok().unwrap();

    // The same store from another folder, at another address.
    let other = Folder::new().unwrap();
    let store = server.home().store_dir().join("trilogue.db");
    let [file_link, folder_link, hard_link] =
        ["file.db", "folder", "hard.db"].map(|name| other.path().join(name));
    symlink(&store, &file_link).unwrap();
    symlink(server.home().store_dir(), &folder_link).unwrap();
    let pid = server.pid().unwrap().to_string();
    let backup = other.path().join("backup.db").display().to_string();
    let url = format!("http://{}", server.home().address());
    let made = server.home().command(&["--url", &url, "backup", &backup]).await.unwrap();
    assert!(made.status.success(), "{made:?}");
    for name in [&store, &file_link, &folder_link.join("trilogue.db")] {
        let message = refusal(other.path(), name).await;
        assert!(message.contains(&pid), "process {pid} is not named: {message}");
        let to = name.display().to_string();
        let restored = server.home().command(&["restore", &backup, "--to", &to, "--force"]).await;
        let restored = restored.unwrap();
        assert_eq!(restored.status.code(), Some(7), "{to}: {restored:?}");
    }
    assert!(file_link.is_symlink(), "a restore replaced a link to a store");
    std::fs::hard_link(&store, &hard_link).unwrap();
    let message = refusal(other.path(), &hard_link).await;
    assert!(message.contains("2 names"), "{message}");
    std::fs::remove_file(&hard_link).unwrap();

    // The first server is not affected.
    echo(&client, "t", "two").await.ok().unwrap();
    assert!(!events(&client, "t").await.unwrap().is_empty());

    // The lock of a killed server does not block a new one.
    let home = server.kill().await.unwrap();
    let server = home.start().await.unwrap();
    echo(&server.client(), "t", "three").await.ok().unwrap();
}

/// Why a server in this folder does not start on a store.
async fn refusal(folder: &Path, store: &Path) -> String {
    let store = format!("sqlite:{}", store.display());
    let options = ServerOptions { store, ..ServerOptions::default() };
    let second = Home::new(folder, &options).unwrap();
    let refused = tokio::time::timeout(Duration::from_secs(60), second.start()).await.unwrap();
    format!("{:#}", refused.unwrap_err())
}

/// A server that stops does not wait until the deadline of a hosted agent's permission, because no client can answer it any more. The next server asks again, if the agent works on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pending_permission_does_not_hold_a_stop_up() {
    for (setting, expected) in [("", "interrupted"), ("outlive = false\n", "failed")] {
        a_stop_is_not_held_up_with(setting, expected).await;
    }
}

async fn a_stop_is_not_held_up_with(setting: &str, expected: &str) {
    let (dir, store) = (Folder::new().unwrap(), Folder::new().unwrap());
    let settings = hosted(&[("scripted", scripted(store.path(), &[]).await)]) + setting;
    let options = ServerOptions { settings, ..ServerOptions::default() };
    let server = Server::start(dir.path(), &options).await.unwrap();
    let request = run_of("scripted", "t", &json!("choose:allow_once,reject_once"), "wait");
    let run = server.client().post("/api/v1/runs", &request).await.unwrap().ok().unwrap();
    assert_eq!(run["status"], "interrupted", "{run}");
    let begun = Instant::now();
    let (home, status) = server.stop().await.unwrap();
    assert!(status.success(), "{status}: {}", home.log_end());
    assert!(begun.elapsed() < STOP_LIMIT, "it took {:?}", begun.elapsed());

    let server = home.start().await.unwrap();
    let path = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    let look = || async {
        let run = server.client().get(&path).await.unwrap().ok().unwrap();
        // It runs until the agent has asked again.
        (run["status"] != "running").then_some(run)
    };
    let run = until("the run is as expected", STOP_LIMIT, look).await.unwrap();
    assert_eq!(run["status"], expected, "{run}");
    match expected {
        "failed" => assert_eq!(run["outcome"]["error"]["code"], "agent_lost", "{run}"),
        _ => assert_eq!(run["interrupts"].as_array().unwrap().len(), 1, "{run}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unused_server_has_few_metrics_and_a_used_route_has_its_own() {
    const MAX_BYTES: usize = 32 * 1024;
    let dir = Folder::new().unwrap();
    let server = Server::start(dir.path(), &ServerOptions::default()).await.unwrap();
    let client = server.client();
    let metrics = client.get("/metrics").await.unwrap();
    assert!(metrics.body.len() < MAX_BYTES, "{} bytes", metrics.body.len());
    echo(&client, "t", "one").await.ok().unwrap();
    let metrics = client.get("/metrics").await.unwrap();
    let text = std::str::from_utf8(&metrics.body).unwrap();
    let series = |begin: &str, part: &str| {
        text.lines().filter(|line| line.starts_with(begin) && line.contains(part)).count()
    };
    let run = r#"operation="create_run""#;
    assert_eq!(series("trilogue_http_requests_total", run), 1, "{text}");
    assert_eq!(series("trilogue_http_request_seconds_count", run), 1, "{text}");
    assert_eq!(series("trilogue_http_requests_total", "communication"), 0, "{text}");
    assert!(metrics.body.len() < MAX_BYTES, "{} bytes", metrics.body.len());
}
