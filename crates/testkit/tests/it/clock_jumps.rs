//! A machine whose clock is set while the server runs.

use std::time::Duration;

use serde_json::json;
use trilogue_domain::Timestamp;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_testkit::{Client, Folder, Home, Server, ServerOptions, SkewedClock, until};

use crate::{echo, run_of};

const HOUR_S: i64 = 3_600;
/// The time limit for due work: much shorter than the clock's jump.
const LIMIT: Duration = Duration::from_secs(30);

async fn start(dir: &Folder, settings: &str) -> (Server, SkewedClock) {
    let clock = SkewedClock::new(dir.path()).unwrap();
    let options = ServerOptions {
        environment: clock.environment(),
        settings: settings.to_owned(),
        ..ServerOptions::default()
    };
    (Home::new(dir.path(), &options).unwrap().start().await.unwrap(), clock)
}

/// Schedules a run `seconds` from now, by the right time. Returns the run's path.
async fn schedule(client: &Client, thread: &str, seconds: i64) -> String {
    let due = Timestamp::from_micros(SystemClock.now().as_micros() + seconds * 1_000_000);
    let mut body = run_of("echo", thread, &json!("x"), "async");
    body["not_before"] = json!(due.to_string());
    let run = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    format!("/api/v1/runs/{}", run["id"].as_str().unwrap())
}

async fn until_completed(client: &Client, path: &str, limit: Duration) {
    until("the scheduled run to end", limit, || async {
        let run = client.get(path).await.unwrap().ok().unwrap();
        (run["status"] == "completed").then_some(())
    })
    .await
    .unwrap();
}

async fn until_logged(server: &Server, text: &str) {
    until("the log to tell of the jump", LIMIT, || async {
        server.home().log_end().contains(text).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduled_run_is_not_late_by_a_clock_that_is_set_back() {
    let dir = Folder::new().unwrap();
    let (server, clock) = start(&dir, "").await;
    let client = server.client();
    let soon = schedule(&client, "soon", 6).await;
    // Later than the time at which the server adopts the new clock.
    let later = schedule(&client, "later", 45).await;
    clock.set(-HOUR_S).unwrap();
    until_logged(&server, "clock jumped").await;
    until_completed(&client, &soon, LIMIT).await;
    let waiting = client.get(&later).await.unwrap().ok().unwrap();
    assert_eq!(waiting["status"], "queued");
    until_completed(&client, &later, Duration::from_secs(90)).await;
    assert!(server.home().log_end().contains("is followed"));
    server.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_of_seconds_removes_no_run_and_starts_none() {
    let dir = Folder::new().unwrap();
    let retention = "[runtime]\nkeep_runs_for = \"2h\"\nretention_interval = \"100ms\"\n";
    let (server, clock) = start(&dir, retention).await;
    let client = server.client();
    let ended = echo(&client, "kept", "x").await.ok().unwrap();
    let path = format!("/api/v1/runs/{}", ended["id"].as_str().unwrap());
    let later = schedule(&client, "later", HOUR_S).await;
    clock.set(3 * HOUR_S).unwrap();
    until_logged(&server, "clock jumped").await;
    // Retention runs many times in the meantime.
    let soon = schedule(&client, "soon", 5).await;
    until_completed(&client, &soon, LIMIT).await;
    assert_eq!(client.get(&path).await.unwrap().status, 200);
    clock.set(0).unwrap();
    until_logged(&server, "clock is back").await;
    assert_eq!(client.get(&path).await.unwrap().status, 200);
    let waiting = client.get(&later).await.unwrap().ok().unwrap();
    assert_eq!(waiting["status"], "queued");
    server.kill().await.unwrap();
}
