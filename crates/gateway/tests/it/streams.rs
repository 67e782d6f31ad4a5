//! Event streams: exactly the missed events, then the live ones.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;
use trilogue_gateway::Options;
use trilogue_testkit::{Client, Seed, until};

use crate::rig::{LIMIT, Rig, text};

async fn read(
    client: &Client,
    path: &str,
    after: Option<&str>,
    most: usize,
) -> Vec<(String, Value)> {
    let reading = async {
        let mut stream = client.stream(path, after).await.unwrap();
        let mut events = Vec::new();
        while events.len() < most
            && let Some(event) = stream.next().await.unwrap()
        {
            assert_eq!(event.event, None, "{event:?}");
            events.push((event.id.unwrap(), serde_json::from_str(&event.data).unwrap()));
        }
        events
    };
    timeout(LIMIT, reading).await.unwrap()
}

fn ids(events: &[(String, Value)]) -> Vec<u64> {
    events.iter().map(|(id, _)| id.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_run_streams_from_its_creation_to_its_end() {
    let rig = Rig::start().await;
    let body = json!({"agent": "puppet", "input": "count 5", "mode": "stream"}).to_string();
    let client = rig.alice();
    let stream = client.stream_of(Method::POST, "/api/v1/runs", &[], Bytes::from(body));
    let mut stream = stream.await.unwrap();
    let mut seen = Vec::new();
    while let Some(event) = timeout(LIMIT, stream.next()).await.unwrap().unwrap() {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(event.id.unwrap(), text(&data, "/id"));
        assert_eq!(data["run_number"].to_string(), text(&data, "/id"));
        seen.push(text(&data, "/type").to_owned());
    }
    assert_eq!(seen.first().unwrap(), "run.created");
    assert_eq!(seen.last().unwrap(), "run.ended");
    assert_eq!(seen.iter().filter(|kind| *kind == "message.part").count(), 6);
}

#[tokio::test]
async fn a_page_and_a_stream_show_the_same_events() {
    let rig = Rig::start().await;
    let run = rig.run_on("t", "count 40").await;
    for path in [
        "/api/v1/threads/t/events".to_owned(),
        format!("/api/v1/runs/{}/events", text(&run, "/id")),
    ] {
        let mut paged = Vec::new();
        let mut after = "0".to_owned();
        loop {
            let page = rig.alice().get(&format!("{path}?limit=17&after={after}")).await.unwrap();
            let page = page.ok().unwrap();
            paged.extend(page["items"].as_array().unwrap().clone());
            match page["next"].as_str() {
                Some(next) => next.clone_into(&mut after),
                None => break,
            }
        }
        let streamed = read(&rig.alice(), &path, None, paged.len()).await;
        let streamed: Vec<_> = streamed.into_iter().map(|(_, data)| data).collect();
        assert_eq!(paged, streamed, "{path}");
    }
}

#[tokio::test]
async fn a_resume_gives_exactly_what_was_missed_whenever_the_connection_breaks() {
    check_resumes(Rig::start().await).await;
}

#[tokio::test]
async fn a_resume_gives_exactly_what_was_missed_on_disk() {
    check_resumes(Rig::on_disk().await).await;
}

async fn check_resumes(rig: Rig) {
    let (number, mut seed) = Seed::from_env("TRILOGUE_SEED");
    let body = json!({"agent": "puppet", "input": "count 300", "mode": "async", "thread_id": "t", "create_thread": true});
    let run = rig.alice().post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let path = format!("/api/v1/runs/{}/events", text(&run, "/id"));
    let mut readers = Vec::new();
    for _ in 0..6 {
        let (client, path, mut seed) = (rig.alice(), path.clone(), seed.fork());
        readers.push(tokio::spawn(async move {
            let mut events: Vec<(String, Value)> = Vec::new();
            loop {
                let after = events.last().map(|(id, _)| id.clone());
                let most = usize::try_from(1 + seed.below(120)).unwrap();
                let more = read(&client, &path, after.as_deref(), most).await;
                let ended = more.len() < most
                    || more.last().is_some_and(|(_, data)| data["type"] == "run.ended");
                events.extend(more);
                if ended {
                    return events;
                }
            }
        }));
    }
    for reader in readers {
        let events = reader.await.unwrap();
        let expected: Vec<u64> = (1..=events.len() as u64).collect();
        assert_eq!(ids(&events), expected, "seed {number}");
        assert_eq!(events.last().unwrap().1["type"], "run.ended", "seed {number}");
    }
}

#[tokio::test]
async fn a_thread_stream_goes_on_over_runs() {
    let rig = Rig::start().await;
    rig.run_on("t", "one").await;
    let path = "/api/v1/threads/t/events";
    let mut stream = rig.alice().stream(path, None).await.unwrap();
    let mut runs = std::collections::BTreeSet::new();
    let mut ends = 0;
    while ends < 2 {
        let event = timeout(LIMIT, stream.next()).await.unwrap().unwrap().unwrap();
        let data: Value = serde_json::from_str(&event.data).unwrap();
        runs.extend(data["run_id"].as_str().map(str::to_owned));
        if data["type"] == "run.ended" {
            ends += 1;
            if ends == 1 {
                rig.run_on("t", "two").await;
            }
        }
    }
    assert_eq!(runs.len(), 2);
}

#[tokio::test]
async fn positions_that_are_none_are_refused_and_the_end_is_the_end() {
    let rig = Rig::start().await;
    let run = rig.run_on("t", "x").await;
    let path = format!("/api/v1/runs/{}/events", text(&run, "/id"));
    for bad in ["x", "-1", "1.x", "99999999999999999999"] {
        let headers = [("accept", "text/event-stream"), ("last-event-id", bad)];
        for path in [&path[..], "/api/v1/threads/t/events"] {
            let reply = rig.alice().send(Method::GET, path, &headers, Bytes::new()).await.unwrap();
            assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_cursor"), "{bad}");
        }
    }
    // The log of an open run has an end too, and a page refuses positions after it like a stream.
    let body = json!({"agent": "puppet", "input": "sleep", "mode": "async"});
    let open = rig.alice().post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let open = format!("/api/v1/runs/{}/events", text(&open, "/id"));
    for path in [&path[..], &open, "/api/v1/threads/t/events"] {
        for accepted in ["text/event-stream", "application/json"] {
            let headers = [("accept", accepted), ("last-event-id", "4000")];
            let reply = rig.alice().send(Method::GET, path, &headers, Bytes::new()).await.unwrap();
            let refused = (reply.status, reply.code());
            assert_eq!(refused, (400, "invalid_cursor".to_owned()), "{path}, {accepted}");
        }
    }
    let first = read(&rig.alice(), &open, None, 1).await;
    assert_eq!(ids(&read(&rig.alice(), &open, Some(&first[0].0), 1).await), [2]);
    let all = read(&rig.alice(), &path, None, usize::MAX).await;
    let last = &all.last().unwrap().0;
    assert_eq!(read(&rig.alice(), &path, Some(last), usize::MAX).await, []);
}

#[tokio::test]
async fn a_removed_run_leaves_a_gap_that_is_named() {
    let rig = Rig::start().await;
    let first = rig.run_on("t", "one").await;
    rig.run_on("t", "two").await;
    let all = read(&rig.alice(), "/api/v1/threads/t/events", None, 1).await;
    assert_eq!(all[0].1["type"], "thread.created");
    let path = format!("/api/v1/runs/{}", text(&first, "/id"));
    let gone = rig.alice().send(Method::DELETE, &path, &[], Bytes::new()).await.unwrap();
    assert_eq!(gone.status, 204);
    let mut stream = rig.alice().stream("/api/v1/threads/t/events", Some("1")).await.unwrap();
    let event = timeout(LIMIT, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(event.event.as_deref(), Some("gap"));
    let gap: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!(gap["after"], 1);
    let event = timeout(LIMIT, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(event.id.unwrap(), gap["first"].to_string());
}

#[tokio::test]
async fn a_quiet_stream_says_that_it_lives_and_ends_when_its_thread_is_erased() {
    let quick = std::time::Duration::from_millis(50);
    let rig = Rig::with(Options { heartbeat: quick, ..Options::default() }).await;
    rig.run_on("t", "x").await;
    let mut socket = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    let request = "GET /api/v1/threads/t/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nauthorization: Bearer alpha-alice\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut socket, request.as_bytes()).await.unwrap();
    let mut seen = String::new();
    let mut buffer = [0_u8; 4096];
    let mut more = async |seen: &mut String| {
        let read = tokio::io::AsyncReadExt::read(&mut socket, &mut buffer);
        let read = timeout(LIMIT, read).await.unwrap().unwrap();
        seen.push_str(&String::from_utf8_lossy(buffer.get(..read).unwrap()));
    };
    while !seen.contains(": still here") {
        more(&mut seen).await;
    }
    let erased = rig.alice().send(Method::DELETE, "/api/v1/threads/t", &[], Bytes::new()).await;
    assert_eq!(erased.unwrap().status, 204);
    while !seen.contains("event: error") {
        more(&mut seen).await;
    }
    assert!(seen.contains("thread_not_found"), "{seen}");
}

#[tokio::test]
async fn many_readers_of_one_run_see_the_same() {
    let rig = Rig::start().await;
    let body = json!({"agent": "puppet", "input": "ask", "mode": "async"});
    let run = rig.alice().post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let path = format!("/api/v1/runs/{}/events", text(&run, "/id"));
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (client, path) = (rig.alice(), path.clone());
        readers.spawn(async move { read(&client, &path, None, usize::MAX).await });
    }
    let open = async || {
        let status = rig.alice().get("/api/v1/status").await.ok()?.ok().ok()?;
        (status["streams"] == 200).then_some(())
    };
    until("the readers", LIMIT, open).await.unwrap();
    let shown = async || {
        let page = rig.alice().get("/api/v1/interrupts?pending=true").await.ok()?.ok().ok()?;
        Some(page["items"][0]["id"].as_str()?.to_owned())
    };
    let interrupt = until("the question", LIMIT, shown).await.unwrap();
    let path = format!("/api/v1/interrupts/{interrupt}/answer");
    rig.alice().post(&path, &json!({"option": "yes"})).await.unwrap().ok().unwrap();
    let all = readers.join_all().await;
    assert!(all.iter().all(|events| *events == all[0]));
    assert_eq!(all[0].last().unwrap().1["type"], "run.ended");
}
