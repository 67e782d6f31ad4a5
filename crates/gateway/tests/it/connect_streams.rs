//! Streams as the routes open them: modes, heads, ends.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_gateway::Options;

use crate::connect::{BASE, Face, expected_refusal, refusal, run_body};
use crate::connect_document::hold_event;
use crate::rig::{Setup, kinds, text};

fn events(body: &Bytes) -> Vec<(String, Value)> {
    let text = std::str::from_utf8(body).unwrap();
    assert!(text.is_ascii(), "{text}");
    let mut events = Vec::new();
    for block in text.split_terminator("\n\n") {
        let lines: Vec<_> = block.lines().filter(|line| !line.starts_with(':')).collect();
        let [id, event, data] = lines.as_slice() else { panic!("{block}") };
        let id = id.strip_prefix("id: ").unwrap();
        assert_eq!(*event, "event: agent_event");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        hold_event(&json!({"id": id, "event": "agent_event", "data": data}));
        events.push((id.to_owned(), data));
    }
    events
}

async fn streamed(face: &Face, path: &str, body: &Value) -> Vec<(String, Value)> {
    let reply = face.post(path, body).await;
    assert_eq!(reply.status, 200, "{}", reply.json());
    assert_eq!(reply.headers["content-type"], "text/event-stream; charset=utf-8");
    let run = reply.headers["x-run-id"].to_str().unwrap();
    let place = reply.headers["content-location"].to_str().unwrap();
    assert!(place.starts_with(BASE) && place.ends_with(run), "{place}");
    events(&reply.body)
}

#[tokio::test]
async fn a_stream_ends_with_the_whole_output() {
    let face = Face::start().await;
    let thread = face.thread().await;
    for path in ["/runs/stream".to_owned(), format!("/threads/{thread}/runs/stream")] {
        let all = streamed(&face, &path, &run_body("stream", "")).await;
        let (last, before) = all.split_last().unwrap();
        assert_eq!(last.1["status"], "success");
        assert_eq!(last.1["values"], json!({"message": "xxx!"}));
        assert!(!before.is_empty(), "the first event is no end");
        for (_, data) in before {
            assert_eq!((text(data, "/type"), text(data, "/status")), ("values", "pending"));
        }
    }
}

#[tokio::test]
async fn updates_come_alone_or_beside_the_output() {
    let face = Face::start().await;
    let mut body = run_body("stream", "");
    for (mode, values, updates) in [
        (json!("custom"), false, 3),
        (json!(["values", "custom"]), true, 3),
        (json!(["custom"]), false, 3),
        (json!("values"), true, 0),
        (Value::Null, true, 0),
    ] {
        body["stream_mode"] = mode.clone();
        let all = streamed(&face, "/runs/stream", &body).await;
        let (last, before) = all.split_last().unwrap();
        assert_eq!((text(&last.1, "/type"), text(&last.1, "/status")), ("values", "success"));
        let count = |kind: &str| kinds(before).iter().filter(|it| **it == kind).count();
        assert_eq!((count("custom"), count("values") > 0), (updates, values), "{mode}");
        let steps: Vec<_> = before
            .iter()
            .filter(|(_, data)| data["type"] == "custom")
            .map(|(_, data)| data["update"]["step"].as_u64().unwrap())
            .collect();
        assert_eq!(steps, (0..updates as u64).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_question_and_an_error_end_a_stream() {
    let face = Face::start().await;
    let asks = streamed(&face, "/runs/stream", &run_body("ask", "")).await;
    let (_, last) = asks.last().unwrap();
    assert_eq!((text(last, "/type"), text(last, "/status")), ("interrupt", "interrupted"));
    assert_eq!(last["interrupt"], json!({"approval": {"question": "shall I?"}}));
    let run = format!("/runs/{}", text(last, "/run_id"));
    face.post_ok(&run, &json!({"approved": true})).await;
    let done = face.get_ok(&format!("{run}/wait")).await;
    assert_eq!(done["run"]["status"], "success");
    let fails = streamed(&face, "/runs/stream", &run_body("fail", "")).await;
    let (_, last) = fails.last().unwrap();
    assert_eq!((text(last, "/type"), text(last, "/code")), ("error", "agent_error"));
    assert_eq!(kinds(&fails).iter().filter(|kind| **kind == "error").count(), 1);
}

#[tokio::test]
async fn a_run_that_has_ended_is_joined_at_its_end() {
    let face = Face::start().await;
    let mut body = run_body("stream", "");
    body["stream_mode"] = json!(["values", "custom"]);
    let id = face.begin("/runs", &body).await;
    face.get_ok(&format!("/runs/{id}/wait")).await;
    let path = format!("/runs/{id}/stream");
    let joined = events(&face.get(&path).await.body);
    assert_eq!(kinds(&joined), ["values"]);
    assert_eq!(joined[0].1["status"], "success");
    let headers = [("last-event-id", "0")];
    let again = face.send_raw(&face.client, Method::GET, &path, &headers, Bytes::new()).await;
    let again = events(&again.body);
    assert_eq!(kinds(&again).iter().filter(|kind| **kind == "custom").count(), 3);
    assert_eq!(again.last().unwrap(), joined.last().unwrap());
    let headers = [("last-event-id", "nonsense")];
    let reply = face.send_raw(&face.client, Method::GET, &path, &headers, Bytes::new()).await;
    assert_eq!(refusal(&reply), expected_refusal(422, "validation_error"));
}

#[tokio::test]
async fn what_is_not_streamed_is_refused_before_anything_runs() {
    let face = Face::start().await;
    for (agent, mode) in [
        ("plain", Value::Null),
        ("plain", json!("values")),
        ("plain", json!("custom")),
        ("primitive", json!("custom")),
    ] {
        let body = json!({"agent_id": agent, "input": "x", "stream_mode": mode});
        let reply = face.post("/runs/stream", &body).await;
        assert_eq!(
            refusal(&reply),
            expected_refusal(422, "stream_mode_not_supported"),
            "{agent} {mode}"
        );
    }
    assert_eq!(face.post_ok("/runs/search", &json!({})).await, json!([]));
}

#[tokio::test]
async fn a_run_whose_stream_finds_no_room_goes_on_only_where_its_client_said_so() {
    let options = Options { max_streams: 1, ..Options::default() };
    let face = Face::of(Setup { options, ..Setup::default() }).await;
    let held = face.begin("/runs", &run_body("hold", "x")).await;
    let _held = face.client.stream(&format!("{BASE}/runs/{held}/stream"), None).await.unwrap();
    for (word, status) in [("cancel", "error"), ("continue", "pending")] {
        let mut body = run_body("hold", "x");
        body["on_disconnect"] = json!(word);
        body["metadata"] = json!({"on": word});
        assert_eq!(face.post("/runs/stream", &body).await.status, 429, "{word}");
        let found = face.post_ok("/runs/search", &json!({"metadata": {"on": word}})).await;
        let path = format!("/runs/{}", text(&found, "/0/run_id"));
        face.reach(&path, status).await;
        if word == "continue" {
            face.gate.add_permits(2);
            face.reach(&path, "success").await;
        }
    }
}
