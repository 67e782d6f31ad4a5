//! A machine with a wrong clock: the database's clock decides when work is due.

use serde_json::json;
use trilogue_domain::Timestamp;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_testkit::services::{new_schema, service};
use trilogue_testkit::{Folder, Home, ServerOptions, SkewedClock};

use crate::kill_rounds::stop;
use crate::run_of;

const HOUR_S: i64 = 3_600;

/// The right time plus this many seconds.
fn now_and(seconds: i64) -> Timestamp {
    Timestamp::from_micros(SystemClock.now().as_micros() + seconds * 1_000_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clock_is_hours_off_starts_nothing_early_and_writes_down_the_right_time() {
    let (database, schema) = new_schema("clock").await.unwrap();
    let dir = Folder::new().unwrap();
    let clock = SkewedClock::new(dir.path()).unwrap();
    // Two hours ahead, and behind: one of the two shows each wrong use of the machine's clock.
    for ahead in [2 * HOUR_S, -2 * HOUR_S] {
        clock.set(ahead).unwrap();
        let options = ServerOptions {
            store: format!(
                "{}?options=-csearch_path%3D{schema}",
                service("TRILOGUE_POSTGRES").unwrap()
            ),
            environment: clock.environment(),
            ..ServerOptions::default()
        };
        let home = Home::new(dir.path(), &options).unwrap();
        let server = home.start().await.unwrap();
        let client = server.client();
        let ask = |due: Timestamp, thread: &str, mode: &str| {
            let mut body = run_of("echo", thread, &json!("x"), mode);
            body["not_before"] = json!(due.to_string());
            let client = client.clone();
            async move { client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap() }
        };
        let later = ask(now_and(HOUR_S), "later", "async").await;
        let over = ask(now_and(-HOUR_S), "over", "wait").await;
        assert_eq!(over["status"], "completed", "{ahead}: {over}");
        let path = format!("/api/v1/runs/{}", later["id"].as_str().unwrap());
        let later = client.get(&path).await.unwrap().ok().unwrap();
        assert_eq!(later["status"], "queued", "{ahead}: {later}");
        let written = Timestamp::parse(later["created_at"].as_str().unwrap()).unwrap();
        let is_right = now_and(-HOUR_S) < written && written < now_and(HOUR_S);
        assert!(is_right, "{ahead}: {written}");
        stop(server).await;
    }
    database.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
}
