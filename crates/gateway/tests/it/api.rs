//! The endpoints, each through its own routes.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_domain::event::MessageEvent;
use trilogue_domain::{AgentName, Body, MessageId, RunId, Scope, TenantId, ThreadId};
use trilogue_mapping::agent_client::{IdFormat, shown_id};
use trilogue_testkit::client::Reply;
use trilogue_testkit::until;

use crate::rig::{LIMIT, Rig, text};

#[tokio::test]
async fn a_run_is_waited_for_and_answers_with_its_output() {
    let rig = Rig::start().await;
    let reply = rig
        .alice()
        .post("/api/v1/runs", &json!({"agent": "puppet", "input": "hello there"}))
        .await
        .unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["trilogue-durability"], "memory");
    assert!(reply.headers.contains_key("x-request-id"));
    let run = reply.json();
    assert_eq!(text(&run, "/status"), "completed");
    assert_eq!(text(&run, "/outcome/status"), "completed");
    assert_eq!(text(&run, "/output/0/parts/0/content"), "hello there");
    assert_eq!(text(&run, "/output/0/role"), "agent");
    let again = rig.alice().get(&format!("/api/v1/runs/{}", text(&run, "/id"))).await.unwrap();
    assert_eq!(again.ok().unwrap(), run);
}

#[tokio::test]
async fn a_run_says_who_began_it_whatever_protocol_that_was() {
    let rig = Rig::start().await;
    rig.run("through our own interface").await;
    let body = json!({"agent_id": "puppet", "input": {"message": "hello"}});
    rig.alice().post("/connect/runs/wait", &body).await.unwrap().ok().unwrap();
    let message =
        json!({"role": "user", "parts": [{"content_type": "text/plain", "content": "hello"}]});
    let body = json!({"agent_name": "puppet", "input": [message]});
    rig.alice().post("/communication/runs", &body).await.unwrap().ok().unwrap();
    let list = rig.alice().get("/api/v1/runs").await.unwrap().ok().unwrap();
    let by: Vec<_> =
        list["items"].as_array().unwrap().iter().map(|run| &run["created_by"]).collect();
    assert_eq!(by, ["alice"; 3], "{list}");
}

#[tokio::test]
async fn messages_and_values_go_in_as_they_are() {
    let rig = Rig::start().await;
    let body = json!({"agent": "puppet", "input": {"z": 1, "a": [1.50]}});
    let run = rig.alice().post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    assert_eq!(run["result"], json!({"z": 1, "a": [1.5]}));
    let parts =
        json!([{"content": "aGkgeW91", "content_encoding": "base64"}, {"content": "say this"}]);
    let body = json!({"agent": "puppet", "input": [{"role": "user", "parts": parts}]});
    let run = rig.alice().post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    assert_eq!(text(&run, "/output/0/parts/0/content"), "say this");
}

#[tokio::test]
async fn an_accepted_run_is_waited_for_listed_and_removed() {
    let rig = Rig::start().await;
    let client = rig.alice();
    let body = json!({"agent": "puppet", "input": "x", "mode": "async", "metadata": {"k": "v"}});
    let reply = client.post("/api/v1/runs", &body).await.unwrap();
    assert_eq!(reply.status, 202);
    let path = reply.headers["location"].to_str().unwrap().to_owned();
    let run = client.get(&format!("{path}/wait")).await.unwrap().ok().unwrap();
    assert_eq!(text(&run, "/status"), "completed");
    let list =
        client.get("/api/v1/runs?metadata.k=v&status=completed").await.unwrap().ok().unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["next"], Value::Null);
    let none = client.get("/api/v1/runs?metadata.k=w").await.unwrap().ok().unwrap();
    assert_eq!(none["items"], json!([]));
    let gone = client.send(Method::DELETE, &path, &[], Bytes::new()).await.unwrap();
    assert_eq!(gone.status, 204);
    assert_eq!(client.get(&path).await.unwrap().code(), "run_not_found");
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_panic_in_an_agent_is_that_runs_failure_without_its_text() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    // The runtime of this test has one thread.
    let _guard = tracing::subscriber::set_default(subscriber);
    let rig = Rig::start().await;
    let run = rig.run("panic").await;
    assert_eq!(text(&run, "/status"), "failed");
    assert_eq!(text(&run, "/outcome/error/code"), "agent_panicked");
    assert!(!run.to_string().contains("secret plans"));
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("secret plans") && log.contains(text(&run, "/id")), "{log}");
    assert_eq!(text(&rig.run("still serving").await, "/status"), "completed");
}

#[tokio::test]
async fn the_same_key_creates_one_run_and_another_body_is_refused() {
    let rig = Rig::start().await;
    let client = rig.alice();
    let send = async |input: &str| {
        let body = json!({"agent": "puppet", "input": input}).to_string();
        let headers = [("idempotency-key", "k1"), ("content-type", "application/json")];
        client.send(Method::POST, "/api/v1/runs", &headers, Bytes::from(body)).await.unwrap()
    };
    let (one, two) = (send("x").await, send("x").await);
    assert_eq!(one.json()["id"], two.json()["id"]);
    assert_eq!(one.headers.get("idempotent-replay"), None);
    assert_eq!(two.headers["idempotent-replay"], "true");
    let other = send("y").await;
    assert_eq!((other.status, other.code().as_str()), (422, "idempotency_mismatch"));
}

#[tokio::test]
async fn an_interrupt_is_shown_and_answered_once() {
    let rig = Rig::start().await;
    let client = rig.alice();
    let run = rig.run_on("t", "suspend").await;
    assert_eq!(text(&run, "/status"), "interrupted");
    let interrupt = text(&run, "/interrupts/0/id");
    assert_eq!(text(&run, "/interrupts/0/run_id"), text(&run, "/id"));
    assert_eq!(run["interrupts"][0]["payload"], json!({"b": 1.0, "a": 2}));
    let list = client.get("/api/v1/interrupts?pending=true").await.unwrap().ok().unwrap();
    assert_eq!(text(&list, "/items/0/id"), interrupt);
    let path = format!("/api/v1/interrupts/{interrupt}/answer");
    let wrong = client.post(&path, &json!({"option": "yes"})).await.unwrap();
    assert_eq!((wrong.status, wrong.code().as_str()), (422, "answer_invalid"));
    let both = client.post(&path, &json!({"option": "yes", "text": "x"})).await.unwrap();
    assert_eq!((both.status, both.code().as_str()), (400, "invalid_request"));
    let answered = client.post(&path, &json!({"value": null})).await.unwrap().ok().unwrap();
    assert_eq!(text(&answered, "/resolution/kind"), "answered");
    assert_eq!(text(&answered, "/resolution/by"), "alice");
    let late = client.post(&path, &json!({"value": 2})).await.unwrap();
    assert_eq!((late.status, late.code().as_str()), (409, "interrupt_resolved"));
    let wait = format!("/api/v1/runs/{}/wait", text(&run, "/id"));
    let run = client.get(&wait).await.unwrap().ok().unwrap();
    assert_eq!(text(&run, "/status"), "completed");
}

#[tokio::test]
async fn an_answer_to_a_run_is_for_the_interrupt_last_shown() {
    let rig = Rig::start().await;
    let run = rig.run_on("t", "ask").await;
    assert_eq!(text(&run, "/status"), "interrupted");
    let path = format!("/api/v1/runs/{}/answer", text(&run, "/id"));
    let gone = json!({"option": "yes", "interrupt_id": "nonsense"});
    let gone = rig.alice().post(&path, &gone).await.unwrap();
    assert_eq!((gone.status, gone.code().as_str()), (404, "interrupt_not_found"));
    rig.alice().post(&path, &json!({"option": "no"})).await.unwrap().ok().unwrap();
    let wait = format!("/api/v1/runs/{}/wait", text(&run, "/id"));
    let run = rig.alice().get(&wait).await.unwrap().ok().unwrap();
    assert_eq!(text(&run, "/output/0/parts/0/content"), "no");
}

#[tokio::test]
async fn a_running_run_is_cancelled() {
    let rig = Rig::start().await;
    let body = json!({"agent": "puppet", "input": "sleep", "mode": "async"});
    let run = rig.alice().post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let path = format!("/api/v1/runs/{}", text(&run, "/id"));
    let now = rig.alice().get(&format!("{path}/wait?timeout_seconds=0")).await.unwrap();
    assert!(["queued", "running"].contains(&text(&now.ok().unwrap(), "/status")));
    rig.alice().post(&format!("{path}/cancel"), &json!({})).await.unwrap().ok().unwrap();
    let run = rig.alice().get(&format!("{path}/wait")).await.unwrap().ok().unwrap();
    assert_eq!(text(&run, "/status"), "cancelled");
}

#[tokio::test]
async fn a_thread_has_its_state_of_every_event() {
    let rig = Rig::start().await;
    let client = rig.alice();
    let body = json!({"id": "kept", "metadata": {"n": 1}});
    client.post("/api/v1/threads", &body).await.unwrap().ok().unwrap();
    rig.run_on("kept", "state one").await;
    rig.run_on("kept", "state two").await;
    let patch = json!({"metadata": {"n": 2}, "values": {"v": 3}}).to_string();
    let path = "/api/v1/threads/kept";
    client.send(Method::PATCH, path, &[], Bytes::from(patch)).await.unwrap().ok().unwrap();
    let page = client.get(&format!("{path}/events?limit=1000")).await.unwrap().ok().unwrap();
    let events = page["items"].as_array().unwrap();
    let (mut values, mut open) = (Value::Null, false);
    for event in events {
        match text(event, "/type") {
            "state.values" => {
                (values, open) = (event["values"].clone(), event["run_id"].is_string())
            }
            "run.ended" => open = false,
            _ => {}
        }
        let path = format!("{path}/state?at={}", event["number"]);
        let state = client.get(&path).await.unwrap().ok().unwrap();
        assert_eq!(state["number"], event["number"]);
        assert_eq!(state["run_id"].is_string(), open, "{event} {state}");
        // Values that a client sets are visible from the event that moves the head.
        if event["type"] != "state.values" || open {
            assert_eq!(state["values"], values, "{event}");
        }
    }
    let first = client.get(&format!("{path}/state?at=1")).await.unwrap().ok().unwrap();
    assert_eq!((&first["metadata"], &first["values"]), (&json!({"n": 1}), &Value::Null));
    let now = client.get(&format!("{path}/state")).await.unwrap().ok().unwrap();
    assert_eq!(now["number"], events.last().unwrap()["number"]);
    assert_eq!((&now["metadata"], &now["values"]), (&json!({"n": 2}), &json!({"v": 3})));
    for bad in ["0", "x", "-1"] {
        let refused = client.get(&format!("{path}/state?at={bad}")).await.unwrap();
        assert_eq!(refused.code(), "invalid_request", "{bad}");
    }
}

#[tokio::test]
async fn a_thread_lives_from_creation_to_erasure() {
    let rig = Rig::start().await;
    let client = rig.alice();
    let body = json!({"id": "my thread/1", "metadata": {"topic": "a", "n": 1}});
    let made = client.post("/api/v1/threads", &body).await.unwrap();
    assert_eq!(made.status, 201);
    let twice = client.post("/api/v1/threads", &body).await.unwrap();
    assert_eq!((twice.status, twice.code().as_str()), (409, "already_exists"));
    let path = "/api/v1/threads/my%20thread%2F1";
    rig.run_on("my thread/1", "first").await;
    rig.run_on("my thread/1", "state two").await;
    let thread = client.get(path).await.unwrap().ok().unwrap();
    assert_eq!(thread["values"], json!({"said": "two"}));
    let messages = client.get(&format!("{path}/messages")).await.unwrap().ok().unwrap();
    let said: Vec<_> = messages["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| text(message, "/parts/0/content"))
        .collect();
    assert_eq!(said, ["state two", "first", "first"]);
    let page = client.get(&format!("{path}/messages?limit=1")).await.unwrap().ok().unwrap();
    let after = text(&page, "/next");
    let rest = client.get(&format!("{path}/messages?after={after}")).await.unwrap().ok().unwrap();
    assert_eq!(rest["items"].as_array().unwrap().len(), 2);
    let points = client.get(&format!("{path}/checkpoints")).await.unwrap().ok().unwrap();
    assert_eq!(points["items"][0]["id"], thread["head"]);
    assert_eq!(points["items"][0]["parent_id"], points["items"][1]["id"]);

    let patch = json!({"metadata": {"n": null, "m": true}, "values": {"v": 1}}).to_string();
    let patched =
        client.send(Method::PATCH, path, &[], Bytes::from(patch)).await.unwrap().ok().unwrap();
    assert_eq!(patched["metadata"], json!({"topic": "a", "m": true}));
    assert_eq!(patched["values"], json!({"v": 1}));
    let copy = client.post(&format!("{path}/copy"), &json!({"id": "c"})).await.unwrap();
    assert_eq!(copy.status, 201);
    let found = client.get("/api/v1/threads?metadata.m=true").await.unwrap().ok().unwrap();
    assert_eq!(found["items"].as_array().unwrap().len(), 2);

    let gone = client.send(Method::DELETE, path, &[], Bytes::new()).await.unwrap();
    assert_eq!(gone.status, 204);
    assert_eq!(client.get(path).await.unwrap().code(), "thread_not_found");
    let messages = client.get("/api/v1/threads/c/messages").await.unwrap().ok().unwrap();
    assert_eq!(messages["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn large_content_is_a_link_and_an_export_holds_it() {
    let rig = Rig::start().await;
    let run = rig.run_on("t", "large").await;
    let blob = &run["output"][0]["parts"][0]["blob"];
    assert_eq!(blob["length"], 100 * 1024);
    assert_eq!(text(&run, "/output/0/parts/1/content"), "BwcHBwc=");
    let reply = rig.alice().get(text(blob, "/url")).await.unwrap();
    assert_eq!(reply.body, "x".repeat(100 * 1024));
    assert!(reply.headers["content-security-policy"].to_str().unwrap().contains("sandbox"));

    let export = rig.alice().get("/api/v1/threads/t/export").await.unwrap();
    let lines: Vec<Value> = export
        .body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let kinds = |kind: &str| lines.iter().filter(|line| line.get(kind).is_some()).count();
    assert_eq!((kinds("thread"), kinds("run"), kinds("blob"), kinds("end")), (1, 1, 1, 1));
    assert_eq!(lines.last().unwrap()["end"]["events"], kinds("event"));
    let numbers: Vec<_> =
        lines.iter().filter_map(|line| line["event"]["number"].as_u64()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn text_that_is_streamed_is_content_whatever_its_length() {
    let rig = Rig::start().await;
    let run = rig.run_on("t", "stream").await;
    let part = &run["output"][0]["parts"][0];
    assert_eq!(part["content"].as_str().map(str::len), Some(200 * 1024));
    assert_eq!(part.get("blob"), None);
}

#[tokio::test]
async fn a_long_history_is_exported_whole_and_shows_the_state_set_at_its_beginning() {
    let rig = Rig::start().await;
    rig.run_on("t", "state first").await;
    for _ in 0..80 {
        rig.run_on("t", "more").await;
    }
    let thread = rig.alice().get("/api/v1/threads/t").await.unwrap().ok().unwrap();
    assert_eq!(thread["values"], json!({"said": "first"}));
    let export = rig.alice().get("/api/v1/threads/t/export").await.unwrap();
    let lines = export.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let lines: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
    let path: Vec<_> = lines.iter().filter_map(|line| line.get("checkpoint")).collect();
    assert_eq!(path.len(), 81);
    assert_eq!(path[0]["id"], thread["head"]);
    for pair in path.windows(2) {
        assert_eq!(pair[0]["parent_id"], pair[1]["id"]);
    }
    assert_eq!(path[80].get("parent_id"), None);
}

#[tokio::test]
async fn status_health_and_metrics_say_what_they_should_and_no_more() {
    let rig = Rig::start().await;
    rig.run("x").await;
    for path in ["/healthz", "/readyz"] {
        let reply = rig.stranger().get(path).await.unwrap();
        assert_eq!((reply.status, reply.body.as_ref()), (200, &b"ok\n"[..]));
        tells_nothing_in_headers(&reply);
    }
    let status = rig.alice().get("/api/v1/status").await.unwrap().ok().unwrap();
    assert_eq!(text(&status, "/durability"), "memory");
    assert_eq!(status["store"]["runs"], 1);
    assert_eq!(rig.stranger().get("/metrics").await.unwrap().status, 401);
    let metrics = rig.metrics().await;
    assert!(
        metrics.contains(
            "trilogue_http_requests_total{face=\"native\",operation=\"create_run\",route=\"/api/v1/runs\",status=\"2xx\"}"
        ),
        "{metrics}"
    );
    assert!(metrics.contains("# HELP trilogue_event_streams Open event streams"), "{metrics}");
    rig.store.close().await.unwrap();
    let ready = async || (rig.stranger().get("/readyz").await.ok()?.status == 503).then_some(());
    until("the closed store to show", LIMIT, ready).await.unwrap();
    let reply = rig.stranger().get("/readyz").await.unwrap();
    assert_eq!(reply.body, &b"not ready: shutting_down\n"[..], "it says why, and no path");
    tells_nothing_in_headers(&reply);
    assert_eq!(rig.stranger().get("/healthz").await.unwrap().status, 200);
}

/// A stranger's response has only headers whose values are the same for every server, the id of the request, and how durable the store is, if that is little.
fn tells_nothing_in_headers(reply: &Reply) {
    let mut headers: Vec<_> = reply
        .headers
        .iter()
        .filter(|(name, _)| !["date", "x-request-id"].contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    headers.sort();
    let length = format!("content-length: {}", reply.body.len());
    let expected = [
        "cache-control: no-store",
        &length,
        "content-type: text/plain; charset=utf-8",
        "trilogue-durability: memory",
        "x-content-type-options: nosniff",
    ];
    assert_eq!(headers, expected);
    let id = reply.headers["x-request-id"].to_str().unwrap();
    assert!(uuid::Uuid::parse_str(id).is_ok(), "{id}");
}

#[tokio::test]
async fn trace_context_and_request_ids_come_back() {
    let rig = Rig::start().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = [("traceparent", trace), ("x-request-id", "mine-1")];
    let reply =
        rig.alice().send(Method::GET, "/api/v1/agents", &headers, Bytes::new()).await.unwrap();
    assert_eq!(reply.headers["traceparent"], trace);
    assert_eq!(reply.headers["x-request-id"], "mine-1");
    let headers = [("traceparent", "nonsense"), ("x-request-id", "no way")];
    let reply =
        rig.alice().send(Method::GET, "/api/v1/nothing", &headers, Bytes::new()).await.unwrap();
    assert_eq!(reply.headers.get("traceparent"), None);
    assert_ne!(reply.headers["x-request-id"], "no way");
    assert_eq!(reply.json()["request_id"], reply.headers["x-request-id"].to_str().unwrap());
}

#[tokio::test]
async fn a_backup_is_the_store_as_it_was() {
    let rig = Rig::on_disk().await;
    let run = rig.run("keep me").await;
    let copy = rig.alice().post("/api/v1/backup", &json!({})).await.unwrap();
    assert_eq!(copy.status, 200);
    assert!(copy.body.starts_with(b"SQLite format 3\0"));
    assert_eq!(copy.headers["content-length"], copy.body.len().to_string());
    let id = text(&run, "/id").as_bytes();
    assert!(copy.body.windows(id.len()).any(|window| window == id));
    let reply = Rig::start().await.alice().post("/api/v1/backup", &json!({})).await.unwrap();
    assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"));
}

#[tokio::test]
async fn a_message_that_was_said_outside_of_runs_is_found_where_it_begins() {
    for rig in [Rig::start().await, Rig::on_disk().await] {
        let run = rig.run_on("talk", "hello").await;
        let tenant = TenantId::parse("alpha").unwrap();
        let thread = ThreadId::parse("talk").unwrap();
        let row = rig.store.thread(&Scope { tenant, owner: None }, &thread).await.unwrap().unwrap();
        let agent = AgentName::parse("puppet").unwrap();
        let context = rig.runtime.thread_context(&row, &agent);
        let (late, behind) = (MessageId::parse("late").unwrap(), text(&run, "/id"));
        assert!(context.begin_message(&late, &RunId::parse(behind).unwrap()).await.unwrap());
        let said = MessageEvent::Delta { message: late.clone(), text: "and more".into() };
        context.append_event(Body::Message(said), None).await.unwrap();
        rig.run_on("talk", "again").await;
        for id in ["late", &shown_id(IdFormat::Uuid, "talk", "late")] {
            let path = format!("/api/v1/threads/talk/events?from_message={id}&limit=2");
            let events = rig.alice().get(&path).await.unwrap().ok().unwrap();
            let of = |place: usize| {
                let event = &events["items"][place];
                (event["type"].clone(), event["message_id"].clone())
            };
            assert_eq!(of(0), (json!("message.started"), json!("late")), "{id}: {events}");
            assert_eq!(of(1), (json!("message.delta"), json!("late")), "{id}: {events}");
        }
    }
}

#[tokio::test]
async fn a_short_id_means_what_begins_with_it_or_ends_in_a_group_that_does() {
    let rig = Rig::start().await;
    let client = rig.alice();
    let run = rig.run("hello").await;
    for thread in ["lunch-1", "lunch-2"] {
        client.post("/api/v1/threads", &json!({ "id": thread })).await.unwrap().ok().unwrap();
    }
    let ids = async |list: &str, short: &str| {
        let path = format!("/api/v1/{list}?short_id={short}");
        let list = client.get(&path).await.unwrap().ok().unwrap();
        assert_eq!(list["next"], Value::Null);
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| text(item, "/id").to_owned()).collect::<Vec<_>>()
    };
    let run = text(&run, "/id");
    assert_eq!(ids("runs", &run[24..30]).await, [run]);
    assert_eq!(ids("runs", run).await, [run]);
    assert_eq!(ids("runs", "lunch").await, [""; 0]);
    assert_eq!(ids("threads", "lunc").await, ["lunch-1", "lunch-2"]);
    assert_eq!(ids("threads", "lunc&limit=1").await, ["lunch-1"]);
    assert_eq!(ids("threads", "lunch-1").await, ["lunch-1"]);
    assert_eq!(ids("threads", "lun").await, [""; 0]);
    assert_eq!(ids("interrupts", "0000").await, [""; 0]);
    let tokens = client.get("/api/v1/tokens?short_id=0").await.unwrap().ok().unwrap();
    assert_eq!(tokens["items"], json!([]));
}
