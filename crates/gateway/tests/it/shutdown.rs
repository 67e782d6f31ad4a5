//! Stopping.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use crate::rig::{LIMIT, Rig, text};

#[tokio::test]
async fn a_shutdown_ends_streams_with_a_reason_and_reports_what_it_abandoned() {
    let rig = Rig::start().await;
    let waiting = rig.run_on("w", "suspend").await;
    let body = json!({"agent": "puppet", "input": "sleep", "mode": "async"});
    let run = rig.alice().post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let mut stream = rig.alice().stream("/api/v1/threads/w/events", None).await.unwrap();
    assert!(stream.next().await.unwrap().is_some());
    let path = format!("/api/v1/runs/{}/events", text(&run, "/id"));
    let mut own = rig.alice().stream(&path, None).await.unwrap();
    let client = rig.alice();
    let report = timeout(LIMIT, rig.server.shutdown(Duration::from_millis(200))).await.unwrap();
    let named = |ids: &[trilogue_domain::RunId]| {
        ids.iter().map(|id| id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(named(&report.runs.abandoned), [text(&run, "/id")]);
    assert_eq!(named(&report.runs.waiting), [text(&waiting, "/id")]);
    let mut last = None;
    while let Some(event) = stream.next().await.unwrap() {
        last = Some(event);
    }
    let last = last.unwrap();
    assert_eq!(last.event.as_deref(), Some("error"));
    assert!(last.data.contains("shutting_down") && last.data.contains("\"transient\":true"));
    let mut kinds = Vec::new();
    while let Some(event) = own.next().await.unwrap() {
        kinds.push(event.data);
    }
    assert!(kinds.last().unwrap().contains("agent_lost"), "{kinds:?}");
    assert!(client.get("/healthz").await.is_err());
}
