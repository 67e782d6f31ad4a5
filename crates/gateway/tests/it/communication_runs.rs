//! Runs: created in three modes, read, listed, cancelled, streamed, and streamed again.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;
use trilogue_testkit::Client;

use crate::communication::{
    begin, events, get, kinds, on_disk, post, reach, run, run_in, run_of, served, start, stream_of,
    streamed,
};
use crate::rig::{LIMIT, Rig, text};

const RUNS: &str = "/communication/runs";
const SSE: [(&str, &str); 1] = [("accept", "text/event-stream")];

/// An input that has times.
fn dated() -> Value {
    json!([{
        "role": "user",
        "parts": [{"content": "Howdy!", "content_type": "text/plain"}],
        "created_at": "2026-11-20T23:50:09.133102Z",
        "completed_at": "2026-11-20T23:50:09.133111Z",
    }])
}

const PART: &str = r#"{"name":null,"content_type":"text/plain","content":"Howdy!","content_encoding":"plain","content_url":null,"metadata":null}"#;

/// The message of this run's output, with these parts.
fn dated_message(run: &Value, parts: &str, completed: &str) -> String {
    let id = text(run, "/output/0/x_trilogue/message_id");
    assert!(uuid::Uuid::try_parse(id).is_ok(), "{id}");
    format!(
        r#"{{"role":"agent/echo","parts":[{parts}],"created_at":"2026-11-20T23:50:09.133102Z","completed_at":{completed},"x_trilogue":{{"message_id":"{id}"}}}}"#
    )
}

const COMPLETED: &str = "\"2026-11-20T23:50:09.133111Z\"";

/// The expected text of a run, with the ids and times of this run.
fn run_text(run: &Value, status: &str, output: &str, finished: bool) -> String {
    let finished = if finished { run["finished_at"].to_string() } else { "null".to_owned() };
    format!(
        r#"{{"run_id":{},"agent_name":"echo","session_id":{},"status":"{status}","await_request":null,"output":[{output}],"error":null,"created_at":{},"finished_at":{finished}}}"#,
        run["run_id"], run["session_id"], run["created_at"]
    )
}

#[tokio::test]
async fn a_synchronous_run_answers_with_the_whole_run_byte_for_byte() {
    for rig in [start().await, on_disk().await] {
        sync_is_exact(rig).await;
    }
}

async fn sync_is_exact(rig: Rig) {
    let client = rig.alice();
    let body = json!({"agent_name": "echo", "input": dated(), "mode": "sync"});
    let reply = post(&client, "/runs", &body).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-type"], "application/json");
    let done = reply.json();
    assert_eq!(reply.headers["run-id"], text(&done, "/run_id"));
    let expected = run_text(&done, "completed", &dated_message(&done, PART, COMPLETED), true);
    assert_eq!(std::str::from_utf8(&reply.body).unwrap(), expected);
    let again = get(&client, &format!("/runs/{}", text(&done, "/run_id"))).await;
    assert_eq!(again.body, reply.body);
    assert!(!again.headers.contains_key("run-id"));
}

#[tokio::test]
async fn an_accepted_run_is_answered_as_created_and_goes_on() {
    let (_rig, client) = served().await;
    for _ in 0..5 {
        let body = json!({"agent_name": "echo", "input": dated(), "mode": "async"});
        let reply = post(&client, "/runs", &body).await;
        assert_eq!(reply.status, 202);
        let created = reply.json();
        assert_eq!(reply.headers["run-id"], text(&created, "/run_id"));
        let done = reach(&client, text(&created, "/run_id"), "completed").await;
        let expected = run_text(&done, "created", "", false);
        assert_eq!(std::str::from_utf8(&reply.body).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_streamed_run_is_exact_byte_for_byte() {
    for rig in [start().await, on_disk().await] {
        stream_is_exact(rig).await;
    }
}

async fn stream_is_exact(rig: Rig) {
    let client = rig.alice();
    let body = json!({"agent_name": "echo", "input": dated(), "mode": "stream"});
    let reply = streamed(&client, Method::POST, RUNS, &[], &body).await;
    let id = reply.headers["run-id"].to_str().unwrap();
    let done = get(&client, &format!("/runs/{id}")).await.ok().unwrap();
    let created = dated_message(&done, "", "null");
    let completed = dated_message(&done, PART, COMPLETED);
    let datas = [
        format!(r#"{{"type":"run.created","run":{}}}"#, run_text(&done, "created", "", false)),
        format!(
            r#"{{"type":"run.in-progress","run":{}}}"#,
            run_text(&done, "in-progress", "", false)
        ),
        format!(r#"{{"type":"message.created","message":{created}}}"#),
        format!(r#"{{"type":"message.part","part":{PART}}}"#),
        format!(r#"{{"type":"message.completed","message":{completed}}}"#),
        format!(
            r#"{{"type":"run.completed","run":{}}}"#,
            run_text(&done, "completed", &completed, true)
        ),
    ];
    let got = events(&reply);
    let expected: String = got
        .iter()
        .zip(&datas)
        .map(|((id, _), data)| format!("id: {id}\ndata: {data}\n\n"))
        .collect();
    assert_eq!(std::str::from_utf8(&reply.body).unwrap(), expected);
    let ids: Vec<u64> = got.iter().map(|(id, _)| id.parse().unwrap()).collect();
    assert!(ids.is_sorted_by(|one, other| one < other), "{ids:?}");
    let list = get(&client, &format!("/runs/{id}/events")).await;
    assert_eq!(list.body, format!("{{\"events\":[{}]}}", datas.join(",")));
}

#[tokio::test]
async fn everything_that_an_agent_does_is_streamed_in_order_and_listed_the_same() {
    let (_rig, client) = served().await;
    let reply = streamed(&client, Method::POST, RUNS, &[], &run_of("talker", "x", "stream")).await;
    let run = reply.headers["run-id"].to_str().unwrap();
    let streamed = events(&reply);
    let expected = [
        "run.created",
        "run.in-progress",
        "message.created",
        "message.part",
        "message.part",
        "message.part",
        "message.part",
        "message.part",
        "message.completed",
        "generic",
        "generic",
        "message.created",
        "message.part",
        "message.part",
        "message.part",
        "message.completed",
        "run.completed",
    ];
    assert_eq!(kinds(&streamed), expected, "{streamed:#?}");
    assert_eq!(streamed[9].1["generic"], json!({"progress": 0.5}));
    let whole = &streamed[8].1["message"];
    assert_eq!(text(whole, "/parts/0/metadata/message"), "let me see");
    assert_eq!(text(whole, "/parts/1/content"), "one two\u{2028}three");
    assert_eq!(text(whole, "/parts/2/name"), "data.json");
    assert!(!std::str::from_utf8(&reply.body).unwrap().contains('\u{2028}'));
    let output = &streamed[16].1["run"]["output"];
    assert_eq!(output[0], *whole);
    assert_eq!(output[1], streamed[15].1["message"]);
    assert_eq!(streamed[10].1["generic"]["status"], "in_progress");
    assert_eq!(output[1]["parts"][0]["metadata"]["tool_output"], json!({"value": [1]}));
    same_everywhere(&client, run, &streamed).await;
}

/// The list and a second stream show exactly what the first stream showed.
async fn same_everywhere(client: &Client, run: &str, streamed: &[(String, Value)]) {
    let list = get(client, &format!("/runs/{run}/events")).await.ok().unwrap();
    let listed = list["events"].as_array().unwrap();
    let first: Vec<_> = streamed.iter().map(|(_, data)| data.clone()).collect();
    assert_eq!(*listed, first);
    assert_eq!(stream_of(client, run).await, streamed);
}

#[tokio::test]
async fn a_reader_gets_exactly_the_rest_from_every_position() {
    for rig in [start().await, on_disk().await] {
        rest_is_exact(rig).await;
    }
}

async fn rest_is_exact(rig: Rig) {
    let client = rig.alice();
    let reply = streamed(&client, Method::POST, RUNS, &[], &run_of("talker", "x", "stream")).await;
    let run = reply.headers["run-id"].to_str().unwrap();
    let all = events(&reply);
    let path = format!("{RUNS}/{run}/events");
    for (place, (id, _)) in all.iter().enumerate() {
        let headers = [SSE[0], ("last-event-id", id)];
        let rest = streamed(&client, Method::GET, &path, &headers, &Value::Null).await;
        assert_eq!(events(&rest), all[place + 1..], "after {id}");
        let by_query = format!("{path}?after={id}");
        let queried = streamed(&client, Method::GET, &by_query, &SSE, &Value::Null).await;
        assert_eq!(queried.body, rest.body, "after {id}");
    }
    for bad in ["x", "-1", "999999"] {
        let headers = [SSE[0], ("last-event-id", bad)];
        let reply = client.send(Method::GET, &path, &headers, Bytes::new()).await.unwrap();
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_input"), "{bad}");
    }
}

#[tokio::test]
async fn a_reader_that_comes_back_gets_what_it_missed_and_then_what_comes() {
    let (_rig, client) = served().await;
    let run = begin(&client, "sleeper").await;
    let path = format!("{RUNS}/{run}/events");
    let seen = async |after: Option<&str>, count: usize| {
        let mut stream = client.stream(&path, after).await.unwrap();
        let mut events = Vec::new();
        while events.len() < count {
            let event = timeout(LIMIT, stream.next()).await.unwrap().unwrap().unwrap();
            events.push((event.id.unwrap(), serde_json::from_str::<Value>(&event.data).unwrap()));
        }
        events
    };
    let mut first = seen(None, 2).await;
    let more = seen(Some(&first[1].0), 2).await;
    assert_eq!(kinds(&more), ["message.created", "message.part"]);
    first.extend(more);
    let last = first.last().unwrap().0.clone();
    let live = tokio::spawn({
        let (client, path) = (client.clone(), path.clone());
        async move {
            let headers = [SSE[0], ("last-event-id", last.as_str())];
            streamed(&client, Method::GET, &path, &headers, &Value::Null).await
        }
    });
    let reply = post(&client, &format!("/runs/{run}/cancel"), &Value::Null).await;
    assert_eq!(reply.status, 202);
    first.extend(events(&live.await.unwrap()));
    assert_eq!(kinds(&first).last(), Some(&"run.cancelled"));
    same_everywhere(&client, &run, &first).await;
}

#[tokio::test]
async fn a_failed_run_is_an_answer_and_keeps_what_it_was_saying() {
    let (_rig, client) = served().await;
    let reply = post(&client, "/runs", &run_of("raiser", "x", "sync")).await;
    assert_eq!(reply.status, 200);
    let raised = reply.json();
    assert_eq!(text(&raised, "/status"), "failed");
    assert_eq!(
        raised["error"],
        json!({"code": "invalid_input", "message": "told to fail", "data": null})
    );
    assert_eq!(raised["output"], json!([]));
    let streamed =
        streamed(&client, Method::POST, RUNS, &[], &run_of("failer", "x", "stream")).await;
    let streamed = events(&streamed);
    assert_eq!(
        kinds(&streamed),
        ["run.created", "run.in-progress", "message.created", "message.part", "run.failed"]
    );
    let failed = &streamed[4].1["run"];
    assert_eq!(text(failed, "/output/0/parts/0/content"), "half");
    assert_eq!(failed["output"][0]["completed_at"], Value::Null);
    assert!(failed["finished_at"].is_string());
    let session = get(&client, &format!("/sessions/{}", text(failed, "/session_id"))).await;
    assert_eq!(session.ok().unwrap()["history"], json!([]));
}

#[tokio::test]
async fn a_panic_is_a_failure_that_tells_nothing_of_its_inside() {
    let (_rig, client) = served().await;
    let reply = post(&client, "/runs", &run_of("puppet", "panic", "sync")).await;
    let failed = reply.json();
    assert_eq!((reply.status, text(&failed, "/status")), (200, "failed"));
    assert_eq!(text(&failed, "/error/code"), "server_error");
    assert!(!failed.to_string().contains("secret"), "{failed}");
}

#[tokio::test]
async fn a_run_is_cancelled_in_every_state_and_not_after_its_end() {
    let (_rig, client) = served().await;
    let cancel =
        async |run: &str| post(&client, &format!("/runs/{run}/cancel"), &Value::Null).await;
    // A running run.
    let working = begin(&client, "sleeper").await;
    let session = text(&reach(&client, &working, "in-progress").await, "/session_id").to_owned();
    // A run that waits for its turn after it.
    let mut queued = run_of("echo", "x", "async");
    queued["session_id"] = json!(session);
    let queued = text(&post(&client, "/runs", &queued).await.ok().unwrap(), "/run_id").to_owned();
    assert_eq!(get(&client, &format!("/runs/{queued}")).await.json()["status"], "created");
    // Runs that wait for an answer, with and without a task.
    let awaiting = begin(&client, "awaiter").await;
    let (asking, twice) = (begin(&client, "asker").await, begin(&client, "two").await);
    for run in [&awaiting, &asking, &twice] {
        reach(&client, run, "awaiting").await;
    }
    for run in [&queued, &working, &awaiting, &asking, &twice] {
        let reply = cancel(run).await;
        assert_eq!(reply.status, 202);
        assert!(!reply.headers.contains_key("interrupt-id"));
        let asked = reply.json();
        assert_eq!(text(&asked, "/status"), "cancelling");
        assert_eq!((&asked["finished_at"], &asked["await_request"]), (&Value::Null, &Value::Null));
        let ended = reach(&client, run, "cancelled").await;
        assert!(ended["finished_at"].is_string());
        assert_eq!(ended["await_request"], Value::Null);
        assert_eq!(asked["output"], ended["output"]);
        let reply = cancel(run).await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "server_error"));
        let events = stream_of(&client, run).await;
        let kinds = kinds(&events);
        assert_eq!(kinds.last(), Some(&"run.cancelled"));
        let asked = kinds.iter().filter(|kind| **kind == "run.awaiting").count();
        assert_eq!(asked, usize::from([&awaiting, &asking, &twice].contains(&run)));
    }
    for agent in ["echo", "failer"] {
        let done = run(&client, agent, "x").await;
        assert_eq!(cancel(text(&done, "/run_id")).await.status, 403);
    }
}

#[tokio::test]
async fn a_waiting_client_is_told_when_somebody_else_cancels() {
    let (_rig, client) = served().await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { post(&client, "/runs", &run_of("sleeper", "x", "sync")).await }
    });
    let find = async || {
        let list = get(&client, "/runs?status=in-progress").await.json();
        Some(list["runs"].as_array()?.first()?["run_id"].as_str()?.to_owned())
    };
    let run = trilogue_testkit::until("the run", LIMIT, find).await.unwrap();
    post(&client, &format!("/runs/{run}/cancel"), &Value::Null).await.ok().unwrap();
    let reply = timeout(LIMIT, waiting).await.unwrap().unwrap();
    assert_eq!((reply.status, text(&reply.json(), "/status")), (200, "cancelled"));
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_its_run_alone() {
    let (_rig, client) = served().await;
    let body = Bytes::from(run_of("awaiter", "x", "stream").to_string());
    let mut stream = client.stream_of(Method::POST, RUNS, &[], body).await.unwrap();
    let first = timeout(LIMIT, stream.next()).await.unwrap().unwrap().unwrap();
    drop(stream);
    let first: Value = serde_json::from_str(&first.data).unwrap();
    reach(&client, text(&first, "/run/run_id"), "awaiting").await;
}

#[tokio::test]
async fn runs_are_listed_whole_newest_first_in_pages() {
    let (_rig, client) = served().await;
    let session = "00000000-0000-4000-8000-00000000000a";
    let mut made = Vec::new();
    for agent in ["echo", "raiser", "echo", "sessioner", "echo"] {
        made.push(run_in(&client, session, agent, "x").await);
    }
    let other = run(&client, "echo", "y").await;
    let list = async |query: &str| get(&client, &format!("/runs{query}")).await.ok().unwrap();
    let newest: Vec<_> = made.iter().rev().cloned().collect();
    let all = list("").await;
    assert_eq!(all["next"], Value::Null);
    assert_eq!(all["runs"][0], other);
    assert_eq!(all["runs"].as_array().unwrap()[1..], newest[..]);
    let of_session = list(&format!("?session_id={session}")).await;
    assert_eq!(of_session["runs"], json!(newest));
    let failed = list("?status=failed").await;
    assert_eq!(failed["runs"], json!([made[1]]));
    let echoed = list(&format!("?agent_name=echo&session_id={session}&status=completed")).await;
    assert_eq!(echoed["runs"], json!([made[4], made[2], made[0]]));
    let mut paged = Vec::new();
    let mut after = String::new();
    loop {
        let page = list(&format!("?session_id={session}&limit=2{after}")).await;
        let runs = page["runs"].as_array().unwrap();
        assert!(runs.len() <= 2);
        paged.extend(runs.clone());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(paged, newest);
    for (bad, status) in [
        ("limit=0", 422),
        ("limit=101", 422),
        ("after=x", 422),
        ("status=gone", 422),
        ("session_id=x", 422),
        ("agent_name=nope", 404),
        ("session_id=00000000-0000-4000-8000-00000000000b", 404),
        ("other=1", 200),
    ] {
        let reply = get(&client, &format!("/runs?{bad}")).await;
        assert_eq!(reply.status, status, "{bad}");
    }
}

#[tokio::test]
async fn one_key_creates_one_run() {
    for rig in [start().await, on_disk().await] {
        let client = rig.alice();
        let send = async |body: &Value, key: &str| {
            let body = Bytes::from(body.to_string());
            client.send(Method::POST, RUNS, &[("idempotency-key", key)], body).await.unwrap()
        };
        let body = run_of("echo", "once", "sync");
        let first = send(&body, "k").await;
        assert_eq!(first.status, 200);
        assert!(!first.headers.contains_key("idempotent-replay"));
        let second = send(&body, "k").await;
        assert_eq!((second.status, &second.body), (200, &first.body));
        assert_eq!(second.headers["idempotent-replay"], "true");
        assert_eq!(second.headers["run-id"], first.headers["run-id"]);
        let other = send(&run_of("echo", "twice", "sync"), "k").await;
        assert_eq!((other.status, other.code().as_str()), (422, "invalid_input"));
        let streamed = send(&run_of("echo", "s", "stream"), "s").await;
        let again = send(&run_of("echo", "s", "stream"), "s").await;
        assert_eq!(streamed.body, again.body);
        assert_eq!(send(&body, "").await.status, 422);
        let list = get(&client, "/runs").await.ok().unwrap();
        assert_eq!(list["runs"].as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn one_key_creates_one_run_however_many_ask_at_once() {
    let (_rig, client) = served().await;
    let mut body = run_of("echo", "once", "sync");
    body["session_id"] = json!("00000000-0000-4000-8000-00000000000c");
    let body = Bytes::from(body.to_string());
    let sends =
        (0..8).map(|_| client.send(Method::POST, RUNS, &[("idempotency-key", "k")], body.clone()));
    let replies = futures_util::future::join_all(sends).await;
    let replies: Vec<_> = replies.into_iter().map(Result::unwrap).collect();
    for reply in &replies {
        assert_eq!((reply.status, &reply.body), (200, &replies[0].body));
    }
    let replayed = replies.iter().filter(|reply| reply.headers.contains_key("idempotent-replay"));
    assert_eq!(replayed.count(), 7);
}
