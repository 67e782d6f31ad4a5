//! Stopping.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
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

#[tokio::test]
async fn a_server_that_drains_says_so_and_answers_the_last_request_of_each_connection() {
    let rig = Rig::start().await;
    let body = json!({"agent": "puppet", "input": "sleep", "mode": "async"});
    let run = rig.alice().post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let stream = TcpStream::connect(rig.address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut ask = async |path: &str| {
        let request = http::Request::get(path).header("host", "localhost");
        let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await;
        let response = response.unwrap();
        let is_last = response.headers().get("connection").is_some_and(|it| it == "close");
        let status = response.status().as_u16();
        response.into_body().collect().await.unwrap();
        (status, is_last)
    };
    assert_eq!(ask("/readyz").await, (200, false));
    let client = rig.alice();
    let stopping = tokio::spawn(rig.server.shutdown(LIMIT));
    let unready = async { while client.get("/readyz").await.unwrap().status != 503 {} };
    timeout(LIMIT, unready).await.unwrap();
    assert_eq!(ask("/healthz").await, (200, true), "it lives until it has ended");
    let cancel = format!("/api/v1/runs/{}/cancel", text(&run, "/id"));
    assert_eq!(client.post(&cancel, &json!({})).await.unwrap().status, 200);
    let report = timeout(LIMIT, stopping).await.unwrap().unwrap();
    assert!(report.runs.abandoned.is_empty(), "{report:?}");
}
