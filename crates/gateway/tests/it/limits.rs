//! Slow, half-open and oversized clients.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use trilogue_domain::Rights;
use trilogue_gateway::Options;
use trilogue_testkit::until;

use crate::rig::{LIMIT, Rig, Setup, text};

async fn exchange(rig: &Rig, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    // The server may refuse and close before it has read everything.
    drop(stream.write_all(bytes).await);
    let mut answer = Vec::new();
    drop(timeout(LIMIT, stream.read_to_end(&mut answer)).await.unwrap());
    String::from_utf8_lossy(&answer).into_owned()
}

fn hasty() -> Options {
    Options {
        head_timeout: Duration::from_secs(1),
        body_timeout: Duration::from_secs(1),
        write_timeout: Duration::from_millis(500),
        max_body_bytes: 64 * 1024,
        ..Options::default()
    }
}

#[tokio::test]
async fn oversize_bodies_are_refused_whether_announced_or_not() {
    let rig = Rig::with(hasty()).await;
    let body = json!({"agent": "puppet", "input": "x".repeat(65 * 1024)});
    let reply = rig.alice().post("/api/v1/runs", &body).await.unwrap();
    assert_eq!((reply.status, reply.code().as_str()), (413, "body_too_large"));
    let mut chunked = b"POST /api/v1/runs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer alpha-alice\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..9 {
        chunked.extend_from_slice(b"2000\r\n");
        chunked.extend_from_slice(&[b' '; 0x2000]);
        chunked.extend_from_slice(b"\r\n");
    }
    let answer = exchange(&rig, &chunked).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn oversize_heads_are_refused() {
    let rig = Rig::with(Options { max_head_bytes: 8 * 1024, ..hasty() }).await;
    let long = "a".repeat(9 * 1024);
    let url = format!("GET /{long} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let header = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n");
    let many = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(200));
    for request in [url, header, many] {
        let answer = exchange(&rig, request.as_bytes()).await;
        let status = answer.get(9..12).unwrap_or_default();
        assert!(["414", "431", "400"].contains(&status), "{answer}");
    }
}

#[tokio::test]
async fn too_many_parts_and_messages_are_refused() {
    let rig = Rig::start().await;
    let parts: Vec<_> = (0..1_025).map(|_| json!({"content": "x"})).collect();
    let messages: Vec<_> = (0..257).map(|_| json!({"parts": []})).collect();
    for input in [json!([{ "parts": parts }]), json!(messages)] {
        let body = json!({"agent": "puppet", "input": input});
        let reply = rig.alice().post("/api/v1/runs", &body).await.unwrap();
        assert_eq!((reply.status, reply.code().as_str()), (413, "too_many_parts"));
    }
}

#[tokio::test]
async fn slow_loris_is_cut_off_wherever_it_dawdles() {
    let rig = Rig::with(hasty()).await;
    let begun = Instant::now();
    let heads =
        [&b""[..], b"P", b"GET / HTTP/1.1\r\nhost: local", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"];
    futures_util::future::join_all(heads.map(|bytes| exchange(&rig, bytes))).await;
    let body = b"POST /api/v1/threads HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer alpha-alice\r\ncontent-length: 10\r\n\r\n{";
    let answer = exchange(&rig, body).await;
    assert!(answer.contains("did not arrive"), "{answer}");
    assert!(begun.elapsed() < LIMIT);
    assert_eq!(rig.run("still serving").await["status"], "completed");
}

#[tokio::test]
async fn a_client_that_reads_nothing_loses_its_connection_and_harms_nobody() {
    let rig = Rig::with(hasty()).await;
    let run = rig.run_on("t", "count 20000").await;
    let mut stuck = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        let request = "GET /api/v1/threads/t/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nauthorization: Bearer alpha-alice\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        // Reads the response's begin to know that the stream is open: an open-stream count could come too late for the first one.
        let mut begin = [0_u8; 12];
        timeout(LIMIT, stream.read_exact(&mut begin)).await.unwrap().unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200");
        stuck.push(stream);
    }
    let dropped = async || {
        let status = rig.alice().get("/api/v1/status").await.ok()?.ok().ok()?;
        (status["streams"] == 0).then_some(())
    };
    until("the streams to be dropped", LIMIT, dropped).await.unwrap();
    assert_eq!(rig.run("still serving").await["status"], "completed");
    assert_eq!(text(&run, "/status"), "completed");
}

#[tokio::test]
async fn streams_are_counted_and_a_further_one_is_refused() {
    let rig = Rig::with(Options { max_streams: 2, ..Options::default() }).await;
    rig.run_on("t", "x").await;
    let path = "/api/v1/threads/t/events";
    let held = [
        rig.alice().stream(path, None).await.unwrap(),
        rig.alice().stream(path, None).await.unwrap(),
    ];
    let headers = [("accept", "text/event-stream")];
    let reply = rig.alice().send(Method::GET, path, &headers, Bytes::new()).await.unwrap();
    assert_eq!((reply.status, reply.code().as_str()), (429, "overloaded"));
    assert_eq!(reply.headers["retry-after"], "1");
    drop(held);
    let free = async || {
        let status = rig.alice().get("/api/v1/status").await.ok()?.ok().ok()?;
        (status["streams"] == 0).then_some(())
    };
    until("room for a stream", LIMIT, free).await.unwrap();
    assert!(rig.alice().stream(path, None).await.is_ok());
}

/// A connection that stays open, and returns the status of each request on it.
struct Kept(hyper::client::conn::http1::SendRequest<http_body_util::Empty<Bytes>>);

impl Kept {
    async fn open(rig: &Rig) -> Self {
        let stream = TcpStream::connect(rig.address).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn health(&mut self) -> u16 {
        let request = http::Request::get("/healthz").header("host", "localhost");
        let request = request.body(http_body_util::Empty::new()).unwrap();
        let response = self.0.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
        status
    }
}

#[tokio::test]
async fn a_connection_beyond_the_limit_waits_until_another_ends() {
    let rig = Rig::with(Options { max_connections: 2, ..Options::default() }).await;
    let (mut first, mut second) = (Kept::open(&rig).await, Kept::open(&rig).await);
    assert_eq!((first.health().await, second.health().await), (200, 200));
    let mut third = Kept::open(&rig).await;
    let answer = third.health();
    tokio::pin!(answer);
    // Other clients are served meanwhile. A server without the limit would respond at once.
    for _ in 0..50 {
        assert_eq!((first.health().await, second.health().await), (200, 200));
        let soon = timeout(Duration::from_millis(5), answer.as_mut()).await;
        assert!(soon.is_err(), "the third was answered: {soon:?}");
    }
    drop(first);
    assert_eq!(timeout(LIMIT, answer).await.unwrap(), 200);
}

#[tokio::test]
async fn idle_connections_give_way_to_a_new_one() {
    const CAP: usize = 40;
    let options =
        Options { max_connections: CAP, max_connections_per_peer: Some(CAP), ..Options::default() };
    let rig = Rig::with(options).await;
    let mut idle = Vec::new();
    for _ in 0..CAP {
        idle.push(Kept::open(&rig).await);
    }
    for connection in &mut idle {
        assert_eq!(connection.health().await, 200);
    }
    // The client's limit is shorter than the time after which an idle connection ends by itself.
    let begun = Instant::now();
    assert_eq!(rig.run("let me in").await["status"], "completed");
    assert!(begun.elapsed() < Options::default().head_timeout / 2, "{:?}", begun.elapsed());
    // A partial request counts as idle too.
    let half = b"GET /healthz HTTP/1.1\r\nhost: local";
    let mut halves = Vec::new();
    for _ in 0..CAP {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        stream.write_all(half).await.unwrap();
        halves.push(stream);
    }
    assert_eq!(rig.run("and again").await["status"], "completed");
    assert!(begun.elapsed() < Options::default().head_timeout / 2, "{:?}", begun.elapsed());
}

/// An event stream of a client on this address, so a busy connection. `None` if the server closes it.
async fn stream_from(rig: &Rig, address: [u8; 4]) -> Option<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    let mut stream = socket.connect(rig.address).await.unwrap();
    let request = "GET /api/v1/threads/t/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nauthorization: Bearer alpha-alice\r\n\r\n";
    // The server may close the connection before it reads anything.
    drop(stream.write_all(request.as_bytes()).await);
    let mut begin = [0_u8; 12];
    timeout(LIMIT, stream.read_exact(&mut begin)).await.unwrap().ok()?;
    assert_eq!(&begin, b"HTTP/1.1 200");
    Some(stream)
}

#[tokio::test]
async fn one_peer_leaves_connections_to_others() {
    // One principal has the connections of both peers.
    let options = Options {
        max_connections: 8,
        max_connections_per_principal: Some(8),
        ..Options::default()
    };
    let rig = Rig::with(options).await;
    rig.run_on("t", "x").await;
    let (greedy, other) = ([127, 0, 0, 2], [127, 0, 0, 3]);
    let mut held = Vec::new();
    for _ in 0..6 {
        held.push(stream_from(&rig, greedy).await.expect("three quarters are its share"));
    }
    assert!(stream_from(&rig, greedy).await.is_none());
    held.push(stream_from(&rig, other).await.expect("somebody else gets in"));
    let metrics = rig.metrics().await;
    assert!(metrics.contains("trilogue_http_refused_connections_total 1\n"), "{metrics}");
    for name in ["trilogue_open_descriptors ", "trilogue_max_descriptors "] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
}

#[tokio::test]
async fn request_bodies_have_a_budget_for_the_whole_server() {
    const MOST: usize = 256 * 1024;
    let options = Options { max_body_bytes: MOST, max_bodies_bytes: MOST, ..Options::default() };
    let rig = Rig::with(options).await;
    let input = "x".repeat(MOST * 3 / 4);
    let body = json!({"agent": "puppet", "input": input}).to_string();
    let head = format!(
        "POST /api/v1/runs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer alpha-alice\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let (begin, end) = body.split_at(body.len() - 1);
    let held = async || {
        let metrics = rig.metrics().await;
        let value = metrics.lines().find_map(|it| it.strip_prefix("trilogue_http_body_bytes "));
        value.unwrap().parse::<usize>().unwrap()
    };
    // An announced body that does not arrive uses none of the shared limit.
    let mut announced = TcpStream::connect(rig.address).await.unwrap();
    announced.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(rig.run(&input).await["status"], "completed");
    announced.write_all(begin.as_bytes()).await.unwrap();
    let arrived = async || (held().await == begin.len()).then_some(());
    until("the body to arrive", LIMIT, arrived).await.unwrap();
    let refused = rig
        .alice()
        .post("/api/v1/runs", &json!({"agent": "puppet", "input": input}))
        .await
        .unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (429, "overloaded"));
    assert_eq!(refused.headers["retry-after"], "1");
    let metrics = rig.metrics().await;
    assert!(metrics.contains("trilogue_http_refused_bodies_total 1\n"), "{metrics}");
    // Other requests are served, so a load balancer keeps the server.
    assert_eq!(rig.stranger().get("/readyz").await.unwrap().status, 200);
    assert!(metrics.contains("trilogue_ready 1\n"), "{metrics}");
    assert_eq!(rig.run("a small one").await["status"], "completed");
    announced.write_all(end.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(LIMIT, announced.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(held().await, 0);
    assert_eq!(rig.run(&input).await["status"], "completed");
}

#[tokio::test]
async fn json_of_many_small_values_is_refused_before_it_is_read() {
    const ROOM: usize = 64 * 1024;
    let options = Options { max_json_tree_bytes: ROOM, ..Options::default() };
    let rig = Rig::with(options).await;
    let list = |piece: Value, count: usize| Value::from(vec![piece; count]);
    for input in [list(json!({}), 10_000), list(json!({"a": 1}), 1_000), list(json!("a"), 10_000)] {
        let bodies = [
            ("/api/v1/runs", json!({"agent": "puppet", "input": input})),
            ("/communication/runs", json!({"agent_name": "puppet", "input": input})),
            ("/connect/runs", json!({"agent_id": "puppet", "input": input})),
        ];
        for (path, body) in bodies {
            let refused = rig.alice().post(path, &body).await.unwrap();
            let text = String::from_utf8_lossy(&refused.body).into_owned();
            assert!([400, 413, 422].contains(&refused.status), "{path}: {text}");
            assert!(text.contains("of memory"), "{path}: {text}");
        }
    }
    let refused = rig.alice().post("/api/v1/runs", &list(json!(0), 10_000)).await.unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (413, "json_too_complex"));
    assert!(String::from_utf8_lossy(&refused.body).contains("server.limits.max_json_tree"));
    assert_eq!(rig.run(&"x,{[\"".repeat(ROOM)).await["status"], "completed");
}

#[tokio::test]
async fn the_values_of_a_body_count_in_the_budget_of_bodies() {
    const MOST: usize = 1024 * 1024;
    let options =
        Options { max_body_bytes: MOST / 8, max_bodies_bytes: MOST, ..Options::default() };
    let rig = Rig::with(options).await;
    let values = vec![json!({"a": 1}); 900];
    let body =
        |input: &str| json!({"agent": "puppet", "input": input, "metadata": {"values": values}});
    let size = body("sleep").to_string().len();
    let alice = rig.alice();
    let held = async || {
        let metrics = rig.metrics().await;
        let value = metrics.lines().find_map(|it| it.strip_prefix("trilogue_http_body_bytes "));
        value.unwrap().parse::<usize>().unwrap()
    };
    let refused = async {
        let much = async || (held().await > 3 * size).then_some(());
        until("the values to be counted", LIMIT, much).await.unwrap();
        alice.post("/api/v1/runs", &body("hello")).await.unwrap()
    };
    let waiting = body("sleep");
    tokio::select! {
        _ = alice.post("/api/v1/runs", &waiting) => panic!("it waits for its run"),
        refused = refused => {
            // The bytes of both would have room.
            assert!(2 * size < MOST / 2);
            assert_eq!((refused.status, refused.code().as_str()), (429, "overloaded"));
        }
    }
}

#[tokio::test]
async fn one_principal_leaves_streams_requests_and_bodies_to_others() {
    const MOST: usize = 256 * 1024;
    let options = Options {
        max_streams: 4,
        max_requests_per_principal: Some(2),
        max_body_bytes: MOST / 32,
        max_bodies_bytes: MOST,
        ..Options::default()
    };
    let rig = Rig::with(options).await;
    rig.token("alpha", "bob", Rights::all(), false).await;
    let run = rig.run("hello").await;
    let thread = text(&run, "/thread_id").to_owned();
    let events = format!("/api/v1/threads/{thread}/events");
    let (alice, bob) = (rig.alice(), rig.as_("alpha", "bob"));
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(alice.stream(&events, None).await.unwrap());
    }
    let refused = alice
        .send(Method::GET, &events, &[("accept", "text/event-stream")], Bytes::new())
        .await
        .unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (429, "overloaded"));
    assert!(String::from_utf8_lossy(&refused.body).contains("max_streams_per_principal"));
    assert!(bob.stream(&events, None).await.is_ok(), "somebody else gets the last one");

    let asks = json!({"agent": "puppet", "input": "sleep", "mode": "wait"});
    let waits = [alice.post("/api/v1/runs", &asks), alice.post("/api/v1/runs", &asks)];
    let waits: Vec<_> = waits.into_iter().map(Box::pin).collect();
    let more = until("the share to be used up", LIMIT, async || {
        let reply = alice.get("/api/v1/agents").await.unwrap();
        (reply.status == 429).then_some(reply)
    });
    tokio::select! {
        _ = futures_util::future::select_all(waits) => panic!("they wait for their runs"),
        refused = more => {
            let body = refused.unwrap().body;
            assert!(String::from_utf8_lossy(&body).contains("max_requests_per_principal"));
        }
    }
    assert_eq!(bob.get("/api/v1/agents").await.unwrap().status, 200);
    bodies_of_one_principal_leave_room_for_others().await;
}

async fn bodies_of_one_principal_leave_room_for_others() {
    const MOST: usize = 256 * 1024;
    const BODY: usize = 20 * 1024;
    let options =
        Options { max_body_bytes: MOST / 8, max_bodies_bytes: MOST, ..Options::default() };
    let rig = Rig::with(options).await;
    rig.token("alpha", "bob", Rights::all(), false).await;
    // The last byte never comes. All but the last of these bodies fit the share of one principal, and all fit the budget.
    let head = format!(
        "POST /api/v1/runs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer alpha-alice\r\ncontent-length: {}\r\n\r\n",
        BODY + 1
    );
    let begin = format!("{head}{}", "x".repeat(BODY));
    let mut stalled = Vec::new();
    for count in 1..=11 {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        stream.write_all(begin.as_bytes()).await.unwrap();
        stalled.push(stream);
        let line = format!("trilogue_http_body_bytes {}\n", count * BODY);
        let arrived = async || rig.metrics().await.contains(&line).then_some(());
        until("the body to arrive", LIMIT, arrived).await.unwrap();
    }
    let refused = exchange(&rig, begin.as_bytes()).await;
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("one principal"), "{refused}");
    let body = json!({"agent": "puppet", "input": "x".repeat(BODY / 2)});
    let run = rig.as_("alpha", "bob").post("/api/v1/runs", &body).await.unwrap();
    assert_eq!(run.status, 200, "{}", run.json());
}

#[tokio::test]
async fn the_runs_of_one_principal_do_not_keep_those_of_another_from_starting() {
    let rig = Rig::of(Setup { max_running: Some(4), ..Setup::default() }).await;
    rig.token("alpha", "bob", Rights::all(), false).await;
    let (alice, bob) = (rig.alice(), rig.as_("alpha", "bob"));
    for _ in 0..6 {
        let asks = json!({"agent": "puppet", "input": "begin", "mode": "async"});
        alice.post("/api/v1/runs", &asks).await.unwrap().ok().unwrap();
    }
    // The ids of the running runs whose agents have begun.
    let at_work = async || {
        let runs = alice.get("/api/v1/runs?status=running").await.unwrap().ok().unwrap();
        let mut ids = Vec::new();
        for run in runs["items"].as_array().unwrap() {
            let id = text(run, "/id").to_owned();
            let run = alice.get(&format!("/api/v1/runs/{id}")).await.unwrap().ok().unwrap();
            if run["status"] == "running" && run["output"].to_string().contains("at work") {
                ids.push(id);
            }
        }
        ids
    };
    let three_at_work = async || Some(at_work().await).filter(|runs| runs.len() == 3);
    let first = until("alice's share to be used up", LIMIT, three_at_work).await.unwrap();
    let asks = json!({"agent": "puppet", "input": "hello", "mode": "wait"});
    let done = timeout(LIMIT, bob.post("/api/v1/runs", &asks)).await.unwrap().unwrap();
    assert_eq!(done.ok().unwrap()["status"], "completed");
    assert_eq!(at_work().await.len(), 3);
    // Her next run starts once one of her runs has ended.
    let path = format!("/api/v1/runs/{}/cancel", first[0]);
    alice.post(&path, &json!({})).await.unwrap().ok().unwrap();
    let next = until("the next run of hers", LIMIT, async || {
        three_at_work().await.filter(|runs| !runs.contains(&first[0]))
    });
    assert_eq!(next.await.unwrap().len(), 3);
}

#[tokio::test]
async fn one_principal_leaves_connections_of_its_address_to_others() {
    const MAX: usize = 16;
    let rig = Rig::with(Options { max_connections: MAX, ..Options::default() }).await;
    rig.token("alpha", "bob", Rights::all(), false).await;
    rig.run_on("t", "x").await;
    let here = [127, 0, 0, 1];
    let mut held = Vec::new();
    // Of an address: three quarters. Of a principal: three quarters of these.
    for _ in 0..9 {
        held.push(stream_from(&rig, here).await.expect("its share"));
    }
    let refused = rig.alice().get("/api/v1/agents").await.unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (429, "overloaded"));
    assert!(String::from_utf8_lossy(&refused.body).contains("max_connections_per_principal"));
    assert_eq!(rig.stranger().get("/healthz").await.unwrap().status, 200);
    assert_eq!(rig.as_("alpha", "bob").get("/api/v1/agents").await.unwrap().status, 200);
    // A connection that ends makes room, and an idle one does too.
    held.pop();
    let room = async || {
        let idle = rig.alice().get("/api/v1/agents").await.unwrap();
        (idle.status == 200).then_some(())
    };
    until("the place of the stream that ended", LIMIT, room).await.unwrap();
    held.push(stream_from(&rig, here).await.expect("idle connections do not count"));
}

/// Asks for this on a connection of its own, and reads its head at most.
async fn unread(rig: &Rig, path: &str) -> (TcpStream, String) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(rig.address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer alpha-alice\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut begin = [0_u8; 12];
    timeout(LIMIT, stream.read_exact(&mut begin)).await.unwrap().unwrap();
    (stream, String::from_utf8_lossy(&begin).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_principal_leaves_unread_has_a_budget_on_each_protocol() {
    const MIB: usize = 1024 * 1024;
    /// More than the system takes from the server for a client that does not read.
    const TEXT: usize = 5 * MIB;
    let options = Options {
        max_output_bytes: 48 * MIB,
        max_responses_bytes: 128 * MIB,
        ..Options::default()
    };
    let rig = Rig::with(options).await;
    rig.token("alpha", "bob", Rights::all(), false).await;
    let run = rig.run("stream 130").await;
    let id = text(&run, "/id");
    let held = async || {
        let metrics = rig.metrics().await;
        let value = metrics.lines().find_map(|it| it.strip_prefix("trilogue_http_response_bytes "));
        value.unwrap().parse::<usize>().unwrap()
    };
    for path in [
        format!("/api/v1/runs/{id}"),
        format!("/communication/runs/{id}"),
        format!("/connect/runs/{id}/wait"),
    ] {
        let mut kept = Vec::new();
        let refused = loop {
            let (stream, begin) = unread(&rig, &path).await;
            if begin != "HTTP/1.1 200" || kept.len() == 20 {
                break begin;
            }
            kept.push(stream);
        };
        assert_eq!(refused, "HTTP/1.1 429", "{path}: {} responses are held", kept.len());
        assert!((1..=64 * MIB).contains(&held().await), "{path}");
        // Another principal can use the other half of the budget.
        let other = rig.as_("alpha", "bob").get(&path).await.unwrap();
        assert_eq!(other.status, 200, "{path}");
        assert!(other.body.len() > TEXT, "{path}");
        drop(kept);
        let all_back = async || (held().await == 0).then_some(());
        until("the clients to be gone", LIMIT, all_back).await.unwrap();
        assert_eq!(rig.alice().get(&path).await.unwrap().status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_response_that_is_too_large_is_refused_on_each_protocol() {
    const MOST: usize = 256 * 1024;
    let rig = Rig::with(Options { max_output_bytes: MOST, ..Options::default() }).await;
    let run = rig.run("stream 2").await;
    let id = text(&run, "/id").to_owned();
    // The text fits once, and the protocol repeats it.
    let refused = rig.alice().get(&format!("/connect/runs/{id}/wait")).await.unwrap();
    assert_eq!(refused.status, 413, "{}", String::from_utf8_lossy(&refused.body));
    let escaped = "\u{1}".repeat(MOST / 5);
    let body = json!({"agent": "puppet", "input": escaped, "mode": "async"});
    let run = rig.alice().post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let id = text(&run, "/id").to_owned();
    let whole = format!("/api/v1/runs/{id}/wait");
    assert_eq!(rig.alice().get(&whole).await.unwrap().status, 413);
    let refused = rig.alice().get(&format!("/communication/runs/{id}")).await.unwrap();
    assert_eq!(refused.status, 413, "{}", String::from_utf8_lossy(&refused.body));
}
