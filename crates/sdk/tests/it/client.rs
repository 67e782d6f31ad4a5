//! The client over a scripted transport.

use std::sync::Arc;
use std::time::Duration;

use trilogue_sdk::client::{
    Client, ClientError, Filter, NewRun, Options, Page, StreamItem, Transport, TransportError,
};
use trilogue_wire::native::{Gap, RunStatus};

use crate::script::{Script, events, events_of_a_minute, header, json};

fn event(number: u64, kind: &str, members: &str) -> String {
    format!(
        "id: {number}\nevent: {kind}\ndata: {{\"id\":\"{number}\",\"type\":\"{kind}\",\"number\":{number},\"run_id\":\"r\",\"at\":\"2025-01-01T00:00:00Z\"{members}}}\n\n"
    )
}

fn delta(number: u64) -> String {
    event(number, "message.delta", ",\"message_id\":\"m\",\"text\":\"x\"")
}

fn run_ended(number: u64) -> String {
    event(number, "run.ended", ",\"outcome\":{\"status\":\"completed\"}")
}

const RUN: &str = r#"{"id":"r","thread_id":"t","agent":"echo","status":"completed","created_at":"2025-01-01T00:00:00Z","metadata":{}}"#;

fn client(script: &Arc<Script>) -> Client {
    Client::new(Arc::clone(script) as Arc<dyn Transport>, Options::default())
}

#[tokio::test(start_paused = true)]
async fn a_torn_stream_is_resumed_after_the_last_event() {
    let script = Script::new(vec![
        events(&format!(": hello\n\n{}{}id: 3\ndata: {{\"cut", delta(1), delta(2)), true),
        Err(TransportError::new("connection refused")),
        json(
            503,
            r#"{"type":"","title":"","status":503,"code":"shutting_down","detail":"","transient":true}"#,
        ),
        events(&delta(3), false),
        events(
            &format!("event: gap\ndata: {{\"after\":3,\"first\":5}}\n\n{}", run_ended(5)),
            false,
        ),
    ]);
    let new = NewRun::new("echo", "hi");
    let mut stream = client(&script).stream_run(new).await.unwrap();
    let mut numbers = Vec::new();
    let mut gaps = Vec::new();
    while let Some(item) = stream.next().await.unwrap() {
        match item {
            StreamItem::Event { event, json, .. } => {
                assert!(json.contains(event.body.name()));
                numbers.push(event.number);
            }
            StreamItem::Gap(gap) => gaps.push(gap),
        }
    }
    assert_eq!(numbers, [1, 2, 3, 5]);
    assert_eq!(gaps, [Gap { after: 3, first: 5 }]);
    assert_eq!(stream.cursor(), Some("5"));

    let requests = script.requests();
    let first = String::from_utf8(requests[0].body.to_vec()).unwrap();
    let id = serde_json::from_str::<serde_json::Value>(&first).unwrap()["id"].clone();
    let resumed = format!("/api/v1/runs/{}/events", id.as_str().unwrap());
    assert!(requests[1..].iter().all(|request| request.path == resumed));
    let cursors: Vec<_> = requests[1..]
        .iter()
        .map(|request| {
            let header = request.headers.iter().find(|(name, _)| *name == "last-event-id");
            header.map(|(_, cursor)| cursor.as_str()).unwrap()
        })
        .collect();
    assert_eq!(cursors, ["2", "2", "2", "3"]);
}

#[tokio::test]
async fn a_key_goes_with_every_way_to_create_a_run() {
    let script = Script::new(vec![json(200, RUN), json(202, RUN), json(200, RUN)]);
    let client = client(&script);
    let new = || NewRun::new("echo", "hi");
    client.run_and_wait(new().idempotency_key("order-7")).await.unwrap();
    client.start_run(new().idempotency_key("order-8")).await.unwrap();
    client.start_run(new()).await.unwrap();
    let requests = script.requests();
    let keys: Vec<_> = requests.iter().map(|it| header(it, "idempotency-key")).collect();
    assert_eq!(keys, [Some("order-7"), Some("order-8"), None]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_under_a_key_asks_with_the_same_request_until_it_knows_its_run() {
    let script = Script::new(vec![
        events(": hello\n\nid: 1\ndata: {\"cut", true),
        events(&delta(1), true),
        events(&run_ended(2), false),
    ]);
    let new = NewRun::new("echo", "hi").idempotency_key("k");
    let mut stream = client(&script).stream_run(new).await.unwrap();
    let mut numbers = Vec::new();
    while let Some(StreamItem::Event { event, .. }) = stream.next().await.unwrap() {
        numbers.push(event.number);
    }
    assert_eq!(numbers, [1, 2]);
    let requests = script.requests();
    assert_eq!(requests[0], requests[1], "the server compares whole requests");
    assert_eq!(header(&requests[0], "idempotency-key"), Some("k"));
    assert_eq!(requests[2].path, "/api/v1/runs/r/events");
    assert_eq!(header(&requests[2], "last-event-id"), Some("1"));
}

#[tokio::test]
async fn a_wait_is_as_long_as_was_said_and_no_longer_than_the_server_waits() {
    let script = Script::new(vec![json(200, RUN), json(200, RUN), json(200, RUN)]);
    let client = client(&script);
    for limit in [Duration::ZERO, Duration::from_millis(1_500), Duration::MAX] {
        client.wait_for_run_within("r", limit).await.unwrap();
    }
    let paths: Vec<_> = script.requests().into_iter().map(|request| request.path).collect();
    let path = |seconds: u32| format!("/api/v1/runs/r/wait?timeout_seconds={seconds}");
    assert_eq!(paths, [path(0), path(2), path(3_600)]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_after_the_end_ends() {
    let script = Script::new(vec![events("", false), json(200, RUN)]);
    let mut stream = client(&script).run_events("r", Some("9"));
    assert_eq!(stream.next().await.unwrap(), None);
    assert_eq!(stream.next().await.unwrap(), None);
    assert_eq!(script.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn json_of_many_small_values_is_refused_before_it_is_read() {
    let many = vec![r#"{"a":1}"#; 30_000].join(",");
    let run = RUN.replace("\"metadata\":{}", &format!("\"metadata\":{{\"m\":[{many}]}}"));
    let script = Script::new(vec![json(200, &run)]);
    let response = client(&script).run("r").await.unwrap_err();
    let sent =
        event(1, "message.delta", &format!(",\"message_id\":\"m\",\"text\":\"x\",\"m\":[{many}]"));
    let script = Script::new(vec![events(&sent, false)]);
    let event = client(&script).run_events("r", None).next().await.unwrap_err();
    for error in [response, event] {
        assert!(error.to_string().contains("too many values"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_endless_comments_is_given_up() {
    let options = || Options { max_unused_stream_bytes: 4096, ..Options::default() };
    for line in [": nothing\n", "unknown: field\n", "\n", "id: 7\n", "retry: 1\n", "event: gap\n\n"]
    {
        let noise = line.repeat(2 * 64 * 1024 / line.len());
        // The client connects again after the first one, and counts on.
        let part = ": nothing\n".repeat(200);
        let script = Script::new(vec![events(&part, true), events(&noise, false)]);
        let transport = Arc::clone(&script) as Arc<dyn Transport>;
        let mut stream = Client::new(transport, options()).run_events("r", None);
        let error = stream.next().await.unwrap_err();
        assert!(error.to_string().contains("4096 bytes of comments"), "{line:?}: {error}");
        assert!(stream.next().await.unwrap().is_none(), "{line:?}");
        assert_eq!(script.requests().len(), 2, "{line:?}");
    }
    // Heartbeats between events are far fewer.
    let sent: String = (1..=300).map(|number| format!(": ping\n\n{}", delta(number))).collect();
    let script = Script::new(vec![events(&format!("{sent}{}", run_ended(301)), false)]);
    let transport = Arc::clone(&script) as Arc<dyn Transport>;
    let mut stream = Client::new(transport, options()).run_events("r", None);
    let mut count = 0;
    while stream.next().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 301);
}

/// An event that never ends counts too, also if each connection brings a part of it.
#[tokio::test(start_paused = true)]
async fn events_that_connections_cut_off_are_given_up() {
    let options = || Options { max_unused_stream_bytes: 4096, ..Options::default() };
    for part in ["data: ", "data: x\ndata: ", "event: x\nid: 7\ndata: "] {
        let cut_off = format!("{part}{}", "x".repeat(1500));
        // Heartbeats would let the client connect again without end.
        let connection = || events(&format!(": ping\n\n{cut_off}"), true);
        let script = Script::new((0..20).map(|_| connection()).collect());
        let transport = Arc::clone(&script) as Arc<dyn Transport>;
        let mut stream = Client::new(transport, options()).run_events("r", None);
        let error = stream.next().await.unwrap_err();
        assert!(error.to_string().contains("4096 bytes of comments"), "{part:?}: {error}");
        assert!(stream.next().await.unwrap().is_none(), "{part:?}");
        assert_eq!(script.requests().len(), 3, "{part:?}");
    }
}

/// The delay grows from 100 ms to 5 s, so a minute has about 16 connections.
#[tokio::test(start_paused = true)]
async fn a_server_that_ends_each_connection_after_an_event_gets_few_requests() {
    for torn in [false, true] {
        let script = Script::new((1..1000).map(|number| events(&delta(number), torn)).collect());
        let mut stream = client(&script).run_events("r", None);
        let count = events_of_a_minute(async || stream.next().await.unwrap().is_some()).await;
        assert!((10..20).contains(&count), "{count} events");
        assert!((10..20).contains(&script.requests().len()), "{}", script.requests().len());
    }
}

/// One connection that is long or delivers much resets the delay.
#[tokio::test(start_paused = true)]
async fn a_connection_that_delivers_much_is_followed_by_the_next_one_soon() {
    let much = |first: u64| (first..first + 16).map(delta).collect::<String>();
    let script = Script::new(vec![
        events(&delta(1), true),
        events(&delta(2), true),
        events(&delta(3), true),
        events(&much(4), true),
        events(&run_ended(20), false),
    ]);
    let mut stream = client(&script).run_events("r", None);
    let mut at = Vec::new();
    let start = tokio::time::Instant::now();
    while let Some(StreamItem::Event { event, .. }) = stream.next().await.unwrap() {
        at.push((event.number, start.elapsed().as_millis() / 100));
    }
    let moments: Vec<_> = [1, 2, 3, 4, 20].map(|number| at[number - 1].1).into();
    assert_eq!(moments, [0, 1, 3, 7, 8]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stays_away_is_an_error_and_a_refusal_is_one_at_once() {
    let script = Script::new(Vec::new());
    let mut stream = client(&script).run_events("r", None);
    assert!(matches!(stream.next().await, Err(ClientError::Transport(_))));
    let attempts = Options::default().attempts;
    assert_eq!(script.requests().len(), usize::try_from(attempts).unwrap());

    let refusal = r#"{"type":"","title":"","status":404,"code":"run_not_found","detail":"run 'r' not found","hint":"list them"}"#;
    let script = Script::new(vec![json(404, refusal)]);
    let error = client(&script).run_events("r", None).next().await.unwrap_err();
    assert_eq!((error.code(), error.hint()), (Some("run_not_found"), Some("list them")));
    assert_eq!(error.to_string(), "run 'r' not found");
    assert_eq!(script.requests().len(), 1);
}

#[tokio::test]
async fn listings_name_what_is_wanted() {
    let empty = || json(200, r#"{"items":[]}"#);
    let script = Script::new(vec![empty(), empty(), empty()]);
    let client = client(&script);
    let page = Page { after: Some("7".to_owned()), limit: Some(5) };
    let metadata = vec![("team name".to_owned(), "a&b".to_owned())];
    let filter = Filter { thread: Some("t".to_owned()), metadata, ..Filter::default() };
    client.runs(&filter, &page).await.unwrap();
    client.interrupts(&Filter::default(), &Page::default()).await.unwrap();
    let all = Filter { resolved: true, ..Filter::default() };
    client.interrupts(&all, &Page::default()).await.unwrap();
    let paths: Vec<_> = script.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(
        paths,
        [
            "/api/v1/runs?thread_id=t&metadata.team%20name=a%26b&after=7&limit=5",
            "/api/v1/interrupts?pending=true",
            "/api/v1/interrupts",
        ]
    );
}

#[tokio::test]
async fn responses_are_read_up_to_a_limit() {
    let script = Script::new(vec![json(200, RUN), json(200, RUN), json(502, "<html>")]);
    let run = client(&script).run("r").await.unwrap();
    assert_eq!(run.status, RunStatus::Completed);
    let options = Options { max_response_bytes: 20, ..Options::default() };
    let small = Client::new(Arc::clone(&script) as Arc<dyn Transport>, options);
    assert!(matches!(small.run("r").await, Err(ClientError::Unexpected(_))));
    let error = small.run("r").await.unwrap_err();
    assert!(error.to_string().contains("502"), "{error}");
}

#[tokio::test]
async fn the_text_of_a_stream_is_the_agents_without_the_input_and_artifacts() {
    let message = |number, id: &str, role: &str, parts: &[&str]| {
        let started = format!(",\"message_id\":\"{id}\",\"role\":\"{role}\"");
        let mut all = event(number, "message.started", &started);
        for part in parts {
            let members = format!(",\"message_id\":\"{id}\",\"part\":{part}");
            all.push_str(&event(number, "message.part", &members));
        }
        all + &event(number, "message.completed", &format!(",\"message_id\":\"{id}\""))
    };
    let text = r#"{"content_type":"text/plain","content":"Hi"}"#;
    let artifact = r#"{"content_type":"text/plain","content":"file","name":"a.txt"}"#;
    let stream = [
        message(1, "i", "user", &[text]),
        message(2, "o", "agent/echo", &[text, artifact]),
        delta(3),
        run_ended(4),
    ];
    let script = Script::new(vec![events(&stream.concat(), false)]);
    let new = NewRun::new("echo", "Hi").on_new_thread("t").config(serde_json::json!({ "a": 1 }));
    let mut events = client(&script).stream_run(new).await.unwrap();
    let mut texts = Vec::new();
    while let Some(item) = events.next().await.unwrap() {
        texts.extend(item.text().map(str::to_owned));
    }
    assert_eq!(texts, ["Hi", "x"]);
    let sent: serde_json::Value = serde_json::from_slice(&script.requests()[0].body).unwrap();
    assert_eq!(sent["input"], "Hi");
    assert_eq!((&sent["thread_id"], &sent["create_thread"]), (&"t".into(), &true.into()));
    assert_eq!(sent["config"], serde_json::json!({ "a": 1 }));
}
