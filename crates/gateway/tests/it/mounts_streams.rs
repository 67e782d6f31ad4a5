//! Streams of the Agent Communication Protocol: their framing, their ends, and exact replay of missed events.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use trilogue_gateway::Options;
use trilogue_testkit::client::Stream;
use trilogue_testkit::{Client, Seed, until};

use crate::rig::{LIMIT, Rig, Setup, kinds, next_event, text};

type Events = Vec<(String, Value)>;

fn create(input: &str, mode: &str) -> Bytes {
    let input =
        json!([{"role": "user", "parts": [{"content_type": "text/plain", "content": input}]}]);
    Bytes::from(json!({"agent_name": "puppet", "input": input, "mode": mode}).to_string())
}

async fn start(rig: &Rig, input: &str) -> String {
    let alice = rig.alice();
    let made = alice.send(Method::POST, "/communication/runs", &[], create(input, "async"));
    let made = made.await.unwrap();
    assert_eq!(made.status, 202, "{}", made.json());
    text(&made.json(), "/run_id").to_owned()
}

async fn next(stream: &mut Stream) -> Option<(String, Value)> {
    let (id, name, data) = next_event(stream).await?;
    assert_eq!((id.is_empty(), name), (false, None), "{data}");
    Some((id, data))
}

async fn read(client: &Client, run: &str, after: Option<&str>, most: usize) -> Events {
    let path = format!("/communication/runs/{run}/events");
    let mut stream = client.stream(&path, after).await.unwrap();
    let mut events = Vec::new();
    while events.len() < most
        && let Some(event) = next(&mut stream).await
    {
        events.push(event);
    }
    events
}

/// Sends a request and reads until the response contains this text.
async fn raw(rig: &Rig, request: &str, until: &str) -> String {
    let mut socket = TcpStream::connect(rig.address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let (mut seen, mut buffer) = (Vec::new(), [0_u8; 4096]);
    while !String::from_utf8_lossy(&seen).contains(until) {
        let read = timeout(LIMIT, socket.read(&mut buffer)).await.unwrap().unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(buffer.get(..read).unwrap());
    }
    String::from_utf8_lossy(&seen).into_owned()
}

fn stream_request(body: &str) -> String {
    format!(
        "POST /communication/runs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer alpha-alice\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn an_event_is_an_id_and_one_line_of_data_and_nothing_else() {
    let rig = Rig::start().await;
    let body = create("line\u{2028}\u{2029}\u{85}\nends", "stream");
    let request = stream_request(std::str::from_utf8(&body).unwrap());
    let seen = raw(&rig, &request, "run.completed").await;
    let (head, body) = seen.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: text/event-stream; charset=utf-8"), "{head}");
    assert!(head.contains("run-id: "), "{head}");
    // Each chunk is framed by separate lines that end in CRLF.
    let lines: Vec<_> = body.split('\n').filter(|line| !line.ends_with('\r')).collect();
    assert!(lines.len() > 10, "{body}");
    for line in lines {
        let known = ["id: ", "data: {"].iter().any(|field| line.starts_with(field));
        assert!(known || line.is_empty(), "{line:?}");
    }
    for raw in ['\u{2028}', '\u{2029}', '\u{85}'] {
        assert!(!body.contains(raw), "{raw:?}");
    }
    assert!(body.contains("line\\u2028\\u2029\\u0085\\nends"), "{body}");
}

#[tokio::test]
async fn a_sign_of_life_is_a_comment_without_a_blank_line() {
    let quick = Duration::from_millis(50);
    let rig = Rig::with(Options { heartbeat: quick, ..Options::default() }).await;
    let body = create("sleep", "stream");
    let request = stream_request(std::str::from_utf8(&body).unwrap());
    let seen = raw(&rig, &request, ": keep-alive\n\r\n").await;
    // Each keep-alive is a separate chunk of 13 bytes, without a second line break.
    assert!(seen.contains("\r\nD\r\n: keep-alive\n\r\n"), "{seen}");
}

#[tokio::test]
async fn a_stream_ends_at_the_question_and_goes_on_behind_it() {
    let rig = Rig::start().await;
    let alice = rig.alice();
    let body = create("ask", "stream");
    let stream = alice.stream_of(Method::POST, "/communication/runs", &[], body);
    let (mut stream, mut first) = (stream.await.unwrap(), Events::new());
    while let Some(event) = next(&mut stream).await {
        first.push(event);
    }
    assert_eq!(kinds(&first), ["run.created", "run.in-progress", "run.awaiting"]);
    let run = text(&first[0].1, "/run/run_id").to_owned();
    // A reader from the beginning also gets the question, and its stream ends there too.
    assert_eq!(read(&alice, &run, None, usize::MAX).await, first);
    // A reader that has the question waits for later events.
    let path = format!("/communication/runs/{run}/events");
    let mut behind = alice.stream(&path, Some(&first[2].0)).await.unwrap();
    let early = timeout(Duration::from_millis(100), behind.next()).await;
    assert!(early.is_err(), "{early:?}");
    let asked = alice.get("/api/v1/interrupts?pending=true").await.unwrap().ok().unwrap();
    let answer = format!("/api/v1/interrupts/{}/answer", text(&asked, "/items/0/id"));
    alice.post(&answer, &json!({"option": "yes"})).await.unwrap().ok().unwrap();
    let mut rest = Events::new();
    while let Some(event) = next(&mut behind).await {
        rest.push(event);
    }
    assert_eq!(kinds(&rest).first(), Some(&"run.in-progress"));
    assert_eq!(kinds(&rest).last(), Some(&"run.completed"));
    // The question is now history: no stream ends at it any more.
    let all: Events = first.into_iter().chain(rest).collect();
    assert_eq!(read(&alice, &run, None, usize::MAX).await, all);
}

#[tokio::test]
async fn a_reattached_stream_gives_exactly_what_was_missed() {
    for rig in [Rig::start().await, Rig::on_disk().await] {
        check_reattach(rig).await;
    }
}

async fn check_reattach(rig: Rig) {
    let (number, mut seed) = Seed::from_env("TRILOGUE_SEED");
    let run = start(&rig, "count 200").await;
    let mut readers = Vec::new();
    for _ in 0..6 {
        let (client, run, mut seed) = (rig.alice(), run.clone(), seed.fork());
        readers.push(tokio::spawn(async move {
            let mut events = Events::new();
            loop {
                let after = events.last().map(|(id, _)| id.clone());
                let most = usize::try_from(1 + seed.below(90)).unwrap();
                events.extend(read(&client, &run, after.as_deref(), most).await);
                if kinds(&events).last() == Some(&"run.completed") {
                    return events;
                }
            }
        }));
    }
    let path = format!("/communication/runs/{run}/events");
    let whole = read(&rig.alice(), &run, None, usize::MAX).await;
    assert_eq!(whole.iter().filter(|(_, it)| it["type"] == "message.part").count(), 200);
    for reader in readers {
        let events = reader.await.unwrap();
        assert!(events == whole, "seed {number}");
    }
    let listed = rig.alice().get(&path).await.unwrap().ok().unwrap();
    let streamed: Vec<_> = whole.into_iter().map(|(_, data)| data).collect();
    assert!(listed["events"] == json!(streamed), "seed {number}");
}

#[tokio::test]
async fn a_client_may_begin_behind_any_of_several_events_of_one_moment() {
    let rig = Rig::start().await;
    // The value that an agent returns becomes a whole message at once.
    let body = json!({"agent": "puppet", "input": {"message": "hello", "n": 1}});
    let made = rig.alice().post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let run = text(&made, "/id");
    let whole = read(&rig.alice(), run, None, usize::MAX).await;
    let within = whole.iter().filter(|(id, _)| id.contains('.')).count();
    assert!(within >= 2, "{whole:?}");
    for (place, (id, _)) in whole.iter().enumerate() {
        let rest = read(&rig.alice(), run, Some(id), usize::MAX).await;
        assert_eq!(rest, whole.get(place + 1..).unwrap(), "behind {id}");
    }
    for bad in ["x", "4000"] {
        let headers = [("accept", "text/event-stream"), ("last-event-id", bad)];
        let path = format!("/communication/runs/{run}/events");
        let reply = rig.alice().send(Method::GET, &path, &headers, Bytes::new()).await.unwrap();
        assert_eq!((reply.status, text(&reply.json(), "/code")), (422, "invalid_input"));
        assert_eq!(text(&reply.json(), "/data/reason"), "invalid_cursor");
    }
}

#[tokio::test]
async fn large_content_stands_in_the_event_while_there_is_room_and_is_linked_else() {
    for (room, inline) in [(32 * 1024 * 1024, true), (50 * 1024, false)] {
        let options = Options { max_output_bytes: room, ..Options::default() };
        let rig = Rig::of(Setup { options, ..Setup::default() }).await;
        let run = start(&rig, "large").await;
        let events = read(&rig.alice(), &run, None, usize::MAX).await;
        let parts: Vec<_> =
            events.iter().filter(|(_, it)| it["type"] == "message.part").map(|it| &it.1).collect();
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[1]["part"]["content_encoding"], "base64");
        let part = &parts[0]["part"];
        if inline {
            assert_eq!(part["content"].as_str().unwrap().len(), 100 * 1024);
            continue;
        }
        assert_eq!(part["content"], Value::Null);
        let base = format!("http://{}", rig.address);
        let link = text(part, "/content_url").strip_prefix(&base).unwrap();
        assert!(link.starts_with("/communication/sessions/"), "{link}");
        assert_eq!(rig.alice().get(link).await.unwrap().body.len(), 100 * 1024);
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_off_says_why_in_the_protocols_words() {
    let recheck = Duration::from_millis(20);
    let rig = Rig::with(Options { token_recheck: recheck, ..Options::default() }).await;
    let (short, token) = rig.short_lived().await;
    let run = start(&rig, "sleep").await;
    let path = format!("/communication/runs/{run}/events");
    let mut stream = short.stream(&path, None).await.unwrap();
    assert_eq!(next(&mut stream).await.unwrap().1["type"], "run.created");
    rig.revoke(&token).await;
    let last = loop {
        let event = timeout(LIMIT, stream.next()).await.unwrap().unwrap().unwrap();
        // An event without an id keeps the client's cursor.
        if event.id.is_none() {
            break event;
        }
    };
    assert_eq!(last.event, None);
    let data: Value = serde_json::from_str(&last.data).unwrap();
    assert_eq!(data["type"], "error");
    assert_eq!(data["error"]["code"], "server_error");
    assert_eq!(data["error"]["data"]["reason"], "unauthenticated");
    assert!(timeout(LIMIT, stream.next()).await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn a_client_that_reads_nothing_loses_its_stream_and_the_run_goes_on() {
    let write_timeout = Duration::from_millis(500);
    let rig = Rig::with(Options { write_timeout, ..Options::default() }).await;
    let run = start(&rig, "count 20000").await;
    let mut stuck = TcpStream::connect(rig.address).await.unwrap();
    let request = format!(
        "GET /communication/runs/{run}/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nauthorization: Bearer alpha-alice\r\n\r\n"
    );
    stuck.write_all(request.as_bytes()).await.unwrap();
    // Reads the response's begin to know that the stream is open: an open-stream count could come too late.
    let mut begin = [0_u8; 12];
    timeout(LIMIT, stuck.read_exact(&mut begin)).await.unwrap().unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    let dropped = async || {
        let status = rig.alice().get("/api/v1/status").await.ok()?.ok().ok()?;
        (status["streams"] == 0).then_some(())
    };
    until("the stream to be dropped", LIMIT, dropped).await.unwrap();
    let wait = format!("/api/v1/runs/{run}/wait");
    let ended = rig.alice().get(&wait).await.unwrap().ok().unwrap();
    assert_eq!(ended["status"], "completed");
}
