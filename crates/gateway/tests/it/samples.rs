//! Streams of the Agent Connect Protocol: the newest state, each update once, one end.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use trilogue_gateway::Options;
use trilogue_testkit::client::Stream;
use trilogue_testkit::{Client, Seed, until};

use crate::fountain::{Fountain, Hand, Step};
use crate::rig::{LIMIT, Rig, Setup, next_event, text};

type Events = Vec<(String, Value)>;

struct Scene {
    rig: Rig,
    hand: Hand,
}

impl Scene {
    async fn start() -> Self {
        Self::of(Setup::default()).await
    }

    async fn of(setup: Setup) -> Self {
        let (agent, hand) = Fountain::new();
        let rig = Rig::of(Setup { agents: vec![agent], ..setup }).await;
        Self { rig, hand }
    }

    fn client(&self) -> Client {
        self.rig.alice()
    }

    fn request(modes: &Value, on_disconnect: &str) -> Bytes {
        let body = json!({
            "agent_id": "fountain", "input": {}, "stream_mode": modes,
            "on_disconnect": on_disconnect,
        });
        Bytes::from(body.to_string())
    }

    async fn create(&self, modes: &Value) -> String {
        let body = Self::request(modes, "continue");
        let made = self.client().send(Method::POST, "/connect/runs", &[], body).await.unwrap();
        text(&made.ok().unwrap(), "/run_id").to_owned()
    }

    async fn join(&self, run: &str, after: Option<&str>) -> Stream {
        self.client().stream(&format!("/connect/runs/{run}/stream"), after).await.unwrap()
    }

    async fn create_and_stream(&self, modes: &Value, on_disconnect: &str) -> Stream {
        let body = Self::request(modes, on_disconnect);
        self.client().stream_of(Method::POST, "/connect/runs/stream", &[], body).await.unwrap()
    }

    async fn status(&self, run: &str) -> String {
        let run = self.client().get(&format!("/api/v1/runs/{run}")).await.unwrap().ok().unwrap();
        text(&run, "/status").to_owned()
    }

    async fn reaches(&self, run: &str, status: &str) {
        let is_there = async || (self.status(run).await == status).then_some(());
        until(status, LIMIT, is_there).await.unwrap();
    }

    async fn answer(&self, run: &str) {
        let path = format!("/api/v1/runs/{run}");
        let asked = self.client().get(&path).await.unwrap().ok().unwrap();
        let path = format!("/api/v1/interrupts/{}/answer", text(&asked, "/interrupts/0/id"));
        self.client().post(&path, &json!({"value": {}})).await.unwrap().ok().unwrap();
    }

    async fn newest_run(&self) -> String {
        let found = async || {
            let runs = self.client().get("/api/v1/runs").await.ok()?.ok().ok()?;
            Some(runs["items"][0]["id"].as_str()?.to_owned())
        };
        until("a run", LIMIT, found).await.unwrap()
    }
}

async fn next(stream: &mut Stream) -> Option<(String, Value)> {
    let (id, name, data) = next_event(stream).await?;
    assert_eq!(name.as_deref(), Some("agent_event"), "{data}");
    Some((id, data))
}

async fn rest(stream: &mut Stream) -> Events {
    let mut events = Events::new();
    while let Some(event) = next(stream).await {
        events.push(event);
    }
    events
}

fn is_pending(event: &Value) -> bool {
    event["status"] == "pending"
}

/// Parses an event's id: its number, and whether it is the id of a sample.
fn place(id: &str) -> (u64, bool) {
    match id.strip_suffix(".v") {
        Some(number) => (number.parse().unwrap(), true),
        None => (id.parse().unwrap(), false),
    }
}

fn check_order(events: &Events) {
    let places: Vec<_> = events.iter().map(|(id, _)| place(id)).collect();
    assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
}

fn check_one_end(events: &Events) {
    check_order(events);
    let ends = events.iter().filter(|(_, event)| !is_pending(event)).count();
    assert_eq!(ends, 1, "{:?}", events.last());
    assert!(!is_pending(&events.last().unwrap().1));
}

#[tokio::test]
async fn a_run_that_ends_at_once_is_pending_first() {
    let scene = Scene::start().await;
    scene.hand.take(Step::Output(json!({"n": 1})));
    scene.hand.take(Step::End(json!({"n": 2})));
    let mut stream = scene.create_and_stream(&json!("values"), "cancel").await;
    let events = rest(&mut stream).await;
    check_one_end(&events);
    assert!(events.len() >= 2, "{events:?}");
    let (_, first) = &events[0];
    assert!(is_pending(first) && first["type"] == "values", "{first}");
    let (_, last) = events.last().unwrap();
    assert_eq!((text(last, "/type"), text(last, "/status")), ("values", "success"));
    assert_eq!(last["values"], json!({"n": 2}));
    let run = text(last, "/run_id");
    // A client that joins after the end gets only the end.
    let joined = rest(&mut scene.join(run, None).await).await;
    assert_eq!(joined, events[events.len() - 1..]);
    // A client that already has the end gets nothing.
    let behind = rest(&mut scene.join(run, Some(&events.last().unwrap().0)).await).await;
    assert_eq!(behind, []);
}

#[tokio::test]
async fn a_reader_is_given_the_newest_state_and_no_backlog() {
    const STATES: usize = 3_000;
    let scene = Scene::start().await;
    let begun = Instant::now();
    let mut stream = scene.create_and_stream(&json!("values"), "cancel").await;
    for n in 0..STATES {
        scene.hand.take(Step::Output(json!({"n": n, "filling": "x".repeat(200)})));
        if n % 100 == 0 {
            scene.hand.sync().await;
        }
    }
    scene.hand.take(Step::End(json!({"n": STATES})));
    let events = rest(&mut stream).await;
    check_one_end(&events);
    let most = begun.elapsed().as_millis() / 50 + 3;
    assert!(events.len() as u128 <= most, "{} of {most}", events.len());
    let shown: Vec<_> = events.iter().map(|(_, it)| it["values"]["n"].as_u64().unwrap()).collect();
    assert!(shown.windows(2).all(|pair| pair[0] <= pair[1]), "{shown:?}");
    assert_eq!(shown.last(), Some(&(STATES as u64)));
}

#[tokio::test]
async fn a_slow_reader_skips_what_it_did_not_fetch() {
    // Each state exceeds the socket's buffer, so the server waits for the client.
    let filling = "x".repeat(8 * 1024);
    let scene = Scene::start().await;
    let run = scene.create(&json!("values")).await;
    scene.hand.take(Step::Output(json!({"n": 0})));
    scene.hand.sync().await;
    let mut socket = TcpStream::connect(scene.rig.address).await.unwrap();
    let request = format!(
        "GET /connect/runs/{run}/stream HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer alpha-alice\r\nconnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    for n in 1..=2_000 {
        scene.hand.take(Step::Output(json!({"n": n, "filling": filling})));
    }
    scene.hand.take(Step::End(json!({"n": "all"})));
    scene.reaches(&run, "completed").await;
    let mut seen = Vec::new();
    timeout(LIMIT, socket.read_to_end(&mut seen)).await.unwrap().unwrap();
    assert!(seen.len() < 2_000 * filling.len() / 4, "{}", seen.len());
    let seen = String::from_utf8_lossy(&seen).into_owned();
    assert!(seen.contains("\"n\":\"all\""));
    assert_eq!(seen.matches("\"success\"").count(), 1);
}

#[tokio::test]
async fn a_sample_never_comes_before_the_updates_that_it_folded_in() {
    let scene = Scene::start().await;
    let (number, mut seed) = Seed::from_env("TRILOGUE_SEED");
    let mut stream = scene.create_and_stream(&json!(["values", "custom"]), "cancel").await;
    let updates = 400;
    for n in 1..=updates {
        scene.hand.take(Step::Update(json!({"n": n})));
        scene.hand.take(Step::Output(json!({"updates": n})));
        if seed.below(12) == 0 {
            scene.hand.sync().await;
        }
    }
    scene.hand.take(Step::End(json!({"updates": updates})));
    let events = rest(&mut stream).await;
    check_one_end(&events);
    let mut seen = 0;
    for (id, event) in &events {
        match text(event, "/type") {
            "custom" => {
                seen += 1;
                assert_eq!(event["update"]["n"], seen, "seed {number}: {event}");
            }
            _ => {
                let folded = event["values"]["updates"].as_u64().unwrap();
                assert!(folded <= seen, "seed {number}: {id} shows {folded} updates after {seen}");
            }
        }
    }
    assert_eq!(seen, updates);
}

#[tokio::test]
async fn a_reattached_stream_gives_each_update_once_and_one_end() {
    for on_disk in [false, true] {
        check_reattach(Scene::of(Setup { on_disk, ..Setup::default() }).await).await;
    }
}

async fn check_reattach(scene: Scene) {
    const UPDATES: u64 = 200;
    let (number, mut seed) = Seed::from_env("TRILOGUE_SEED");
    let run = scene.create(&json!(["values", "custom"])).await;
    let mut readers = Vec::new();
    for _ in 0..4 {
        let (client, path, mut seed) =
            (scene.client(), format!("/connect/runs/{run}/stream"), seed.fork());
        readers.push(tokio::spawn(async move {
            let (mut events, mut after) = (Events::new(), "0".to_owned());
            loop {
                let mut stream = client.stream(&path, Some(&after)).await.unwrap();
                for _ in 0..=seed.below(25) {
                    let Some(event) = next(&mut stream).await else { break };
                    after.clone_from(&event.0);
                    events.push(event);
                    if !is_pending(&events.last().unwrap().1) {
                        return events;
                    }
                }
            }
        }));
    }
    for n in 1..=UPDATES {
        scene.hand.take(Step::Update(json!({"n": n})));
        scene.hand.take(Step::Output(json!({"updates": n})));
        if n % 5 == 0 {
            scene.hand.sync().await;
        }
    }
    scene.hand.take(Step::End(json!({"updates": UPDATES})));
    for reader in readers {
        let events = reader.await.unwrap();
        check_one_end(&events);
        let updates = events.iter().filter(|(_, event)| event["type"] == "custom");
        let seen: Vec<_> = updates.map(|(_, it)| it["update"]["n"].as_u64().unwrap()).collect();
        assert_eq!(seen, (1..=UPDATES).collect::<Vec<_>>(), "seed {number}");
    }
}

#[tokio::test]
async fn whoever_joins_is_given_the_state_and_only_the_updates_that_follow() {
    let scene = Scene::start().await;
    let run = scene.create(&json!(["values", "custom"])).await;
    for n in 1..=5 {
        scene.hand.take(Step::Update(json!({"n": n})));
    }
    scene.hand.take(Step::Output(json!({"n": 5})));
    scene.hand.sync().await;
    let mut stream = scene.join(&run, None).await;
    let (id, first) = next(&mut stream).await.unwrap();
    assert_eq!(first["values"], json!({"n": 5}), "{id} {first}");
    scene.hand.take(Step::Update(json!({"n": 6})));
    scene.hand.take(Step::End(json!({})));
    let events = rest(&mut stream).await;
    assert_eq!(events[0].1["update"], json!({"n": 6}), "{events:?}");
    check_one_end(&events);
}

#[tokio::test]
async fn a_stream_ends_with_the_question_and_goes_on_behind_it() {
    let scene = Scene::start().await;
    let mut stream = scene.create_and_stream(&json!("values"), "cancel").await;
    scene.hand.take(Step::Output(json!({"n": 1})));
    scene.hand.take(Step::Ask);
    let events = rest(&mut stream).await;
    check_one_end(&events);
    let (id, last) = events.last().unwrap();
    assert_eq!((text(last, "/type"), text(last, "/status")), ("interrupt", "interrupted"));
    assert_eq!(last["interrupt"], json!({"whether": {"may": "I"}}));
    let run = text(last, "/run_id").to_owned();
    let joined = rest(&mut scene.join(&run, None).await).await;
    assert_eq!(joined, [events.last().unwrap().clone()]);
    // A stream that the server ends does not count as a disconnect.
    assert_eq!(scene.status(&run).await, "interrupted");
    let mut behind = scene.join(&run, Some(id)).await;
    assert!(timeout(Duration::from_millis(100), behind.next()).await.is_err());
    scene.answer(&run).await;
    scene.hand.take(Step::Output(json!({"n": 2})));
    scene.hand.take(Step::End(json!({"n": 3})));
    let events = rest(&mut behind).await;
    check_one_end(&events);
    assert_eq!(events.last().unwrap().1["values"], json!({"n": 3}));
}

#[tokio::test]
async fn a_hundred_readers_see_the_same_end_and_states_that_grow() {
    let scene = Scene::start().await;
    let run = scene.create(&json!("values")).await;
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (client, path) = (scene.client(), format!("/connect/runs/{run}/stream"));
        readers.spawn(async move { rest(&mut client.stream(&path, None).await.unwrap()).await });
    }
    let open = async || {
        let status = scene.client().get("/api/v1/status").await.ok()?.ok().ok()?;
        (status["streams"] == 100).then_some(())
    };
    until("the readers", LIMIT, open).await.unwrap();
    for n in 0..500 {
        scene.hand.take(Step::Output(json!({"n": n})));
        if n % 50 == 0 {
            scene.hand.sync().await;
        }
    }
    scene.hand.take(Step::End(json!({"n": 500})));
    let all = readers.join_all().await;
    for events in &all {
        check_one_end(events);
        assert_eq!(events.last(), all[0].last());
    }
}

#[tokio::test]
async fn a_run_that_is_removed_under_its_readers_ends_with_an_error() {
    let scene = Scene::start().await;
    for modes in [json!("values"), json!(["values", "custom"])] {
        let run = scene.create(&modes).await;
        let mut stream = scene.join(&run, None).await;
        scene.hand.take(Step::Output(json!({"n": 1})));
        scene.hand.sync().await;
        assert!(is_pending(&next(&mut stream).await.unwrap().1));
        let path = format!("/connect/runs/{run}/cancel?wait=true&action=rollback");
        let gone = scene.client().send(Method::POST, &path, &[], Bytes::new()).await.unwrap();
        assert_eq!(gone.status, 204, "{}", gone.json());
        let events = rest(&mut stream).await;
        check_one_end(&events);
        let (_, last) = events.last().unwrap();
        assert_eq!((text(last, "/type"), text(last, "/status")), ("error", "error"), "{last}");
        assert_eq!(last["errcode"], 6, "{last}");
        let join = format!("/connect/runs/{run}/stream");
        assert_eq!(scene.client().get(&join).await.unwrap().status, 404);
    }
}

#[tokio::test]
async fn places_beyond_the_log_and_malformed_ones_are_refused() {
    let scene = Scene::start().await;
    scene.hand.take(Step::End(json!({})));
    let run = scene.create(&json!("values")).await;
    scene.reaches(&run, "completed").await;
    let path = format!("/connect/runs/{run}/stream");
    for bad in ["x", "-2", "1.x", "4000", "99999999999999999999"] {
        let headers = [("last-event-id", bad)];
        let reply = scene.client().send(Method::GET, &path, &headers, Bytes::new()).await.unwrap();
        assert_eq!(reply.status, 422, "{bad}: {}", reply.json());
        assert_eq!(reply.headers["x-acp-error-code"], "validation_error");
    }
    for beginning in ["0", "-1"] {
        let events = rest(&mut scene.join(&run, Some(beginning)).await).await;
        check_one_end(&events);
    }
}

#[tokio::test]
async fn framing_is_what_the_official_client_reads() {
    let quick = Duration::from_millis(50);
    let setup =
        Setup { options: Options { heartbeat: quick, ..Options::default() }, ..Setup::default() };
    let scene = Scene::of(setup).await;
    let run = scene.create(&json!("values")).await;
    let mut socket = TcpStream::connect(scene.rig.address).await.unwrap();
    let request = format!(
        "GET /connect/runs/{run}/stream HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\nauthorization: Bearer alpha-alice\r\nconnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    let mut more = async |seen: &mut Vec<u8>, what: &str| {
        while !String::from_utf8_lossy(seen).contains(what) {
            let mut buffer = [0_u8; 4096];
            let read = timeout(LIMIT, socket.read(&mut buffer)).await.unwrap().unwrap();
            assert!(read > 0, "{what}: {}", String::from_utf8_lossy(seen));
            seen.extend_from_slice(&buffer[..read]);
        }
    };
    more(&mut seen, "\r\n7\r\n: ping\n\r\n").await;
    scene.hand.take(Step::Output(json!({"text": "a\u{2028}b\u{2029}c\u{85}d\n\u{1f600}ä"})));
    more(&mut seen, "\"pending\"").await;
    scene.hand.take(Step::End(json!({})));
    more(&mut seen, "\"success\"").await;
    more(&mut seen, "\r\n0\r\n").await;
    assert!(seen.is_ascii());
    let seen = String::from_utf8(seen).unwrap();
    let (head, body) = seen.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: text/event-stream; charset=utf-8"), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    assert!(body.contains("a\\u2028b\\u2029c\\u0085d\\n\\ud83d\\ude00\\u00e4"), "{body}");
    for line in body.split('\n').filter(|line| !line.ends_with('\r')) {
        let known = ["id: ", "event: agent_event", "data: {", ": ping"];
        assert!(line.is_empty() || known.iter().any(|it| line.starts_with(it)), "{line:?}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_its_own_stream_ends_the_run_unless_it_said_otherwise() {
    let scene = Scene::start().await;
    for (on_disconnect, ends) in [("cancel", true), ("continue", false)] {
        let mut stream = scene.create_and_stream(&json!("values"), on_disconnect).await;
        let run = scene.newest_run().await;
        scene.hand.take(Step::Output(json!({"n": 1})));
        assert!(is_pending(&next(&mut stream).await.unwrap().1));
        // A client that only joined the run may leave at any time.
        drop(scene.join(&run, None).await);
        drop(stream);
        if ends {
            scene.reaches(&run, "cancelled").await;
        } else {
            scene.hand.take(Step::End(json!({})));
            scene.reaches(&run, "completed").await;
        }
    }
}

#[tokio::test]
async fn a_revoked_token_ends_its_stream_and_not_the_run() {
    let scene = Scene::start().await;
    let (bob, token) = scene.rig.short_lived().await;
    let body = Scene::request(&json!("values"), "cancel");
    let stream = bob.stream_of(Method::POST, "/connect/runs/stream", &[], body).await;
    let (mut stream, run) = (stream.unwrap(), scene.newest_run().await);
    scene.rig.revoke(&token).await;
    let events = rest(&mut stream).await;
    let (id, last) = events.last().unwrap();
    // The event has the reason, and does not say that the run has ended; the client's cursor stays.
    assert_eq!((id.as_str(), text(last, "/type"), is_pending(last)), ("", "error", true), "{last}");
    assert_eq!(last["code"], "unauthenticated");
    scene.hand.take(Step::End(json!({})));
    scene.reaches(&run, "completed").await;
}

#[tokio::test]
async fn a_place_that_is_none_is_refused_before_there_is_a_run() {
    let scene = Scene::start().await;
    let (body, headers) = (Scene::request(&json!("values"), "continue"), [("last-event-id", "x")]);
    let path = "/connect/runs/stream";
    let reply = scene.client().send(Method::POST, path, &headers, body).await.unwrap();
    assert_eq!(reply.status, 422, "{}", reply.json());
    let runs = scene.client().get("/api/v1/runs").await.unwrap().ok().unwrap();
    assert_eq!(runs["items"], json!([]));
}

#[tokio::test]
async fn a_place_beyond_a_run_that_goes_on_is_refused() {
    let scene = Scene::start().await;
    let run = scene.create(&json!("values")).await;
    let path = format!("/connect/runs/{run}/stream");
    let headers = [("last-event-id", "4000")];
    let reply = scene.client().send(Method::GET, &path, &headers, Bytes::new()).await.unwrap();
    assert_eq!(reply.status, 422, "{}", reply.json());
    assert_eq!(reply.headers["x-acp-error-code"], "validation_error");
}

#[tokio::test]
async fn a_revoked_token_learns_nothing_of_a_run_that_it_waits_for() {
    let scene = Scene::start().await;
    let (bob, token) = scene.rig.short_lived().await;
    let run = scene.create(&json!("values")).await;
    scene.hand.sync().await;
    let path = format!("/connect/runs/{run}/wait?timeout=20");
    let mut wait = tokio::spawn(async move { bob.get(&path).await });
    assert!(timeout(Duration::from_millis(200), &mut wait).await.is_err());
    scene.rig.revoke(&token).await;
    scene.hand.take(Step::End(json!({"n": 1})));
    let reply = wait.await.unwrap().unwrap();
    assert_eq!(reply.status, 401, "{}", reply.json());
}
