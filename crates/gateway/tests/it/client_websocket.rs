//! Clients of the Agent Client Protocol on WebSockets.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use trilogue_domain::Right;
use trilogue_gateway::{ClientOptions, ClientProtocol, Mount, Options};
use trilogue_testkit::until;

use crate::client_local::position;
use crate::rig::{AgentPrograms, LIMIT, Rig, Setup};
use crate::websocket::{self, PUPPET, exchange, open, open_raw, upgrade};

const MAX_LINE: usize = 64 * 1024;

fn mounts(options: ClientOptions) -> Vec<Mount> {
    vec![Mount::new(ClientProtocol::for_network(options, None), "/client").unwrap()]
}

async fn rig_with(client: ClientOptions) -> Rig {
    Rig::of(Setup { mounts: Some(mounts(client)), ..Setup::default() }).await
}

/// The code of the close frame that ends the connection.
async fn close_code(socket: &mut WebSocketStream<TcpStream>) -> u16 {
    loop {
        match timeout(LIMIT, socket.next()).await.unwrap() {
            Some(Ok(Message::Close(Some(frame)))) => return frame.code.into(),
            Some(Ok(_)) => {}
            other => panic!("no close frame: {other:?}"),
        }
    }
}

/// The next message of the server.
async fn message(socket: &mut WebSocketStream<TcpStream>) -> Value {
    loop {
        match timeout(LIMIT, socket.next()).await.unwrap() {
            Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            other => panic!("no message: {other:?}"),
        }
    }
}

fn initialize(id: u32) -> String {
    let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
    json!({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params}).to_string()
}

/// A masked frame with this first byte.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    assert!(length < 126);
    let mut frame = vec![first, 0x80 | length, 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

#[tokio::test]
async fn a_client_has_two_sessions_on_one_websocket() {
    let rig = Rig::start().await;
    let (head, socket) = open(&rig, &[]).await;
    assert_eq!(head.headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(head.headers["acp-connection-id"].len(), 36);
    assert!(!head.headers.contains_key("sec-websocket-protocol"));
    let mut editor = websocket::bridge(socket);
    editor.initialize(json!({})).await;
    let (one, two) = (editor.session().await, editor.session().await);
    let (first, second) =
        (editor.start_prompt(&one, "stream").await, editor.start_prompt(&two, "hello").await);
    editor.end_turn(&second).await;
    editor.end_turn(&first).await;
    assert!(!editor.updates_of(&one).is_empty() && !editor.updates_of(&two).is_empty());
    editor.prompt(&one, "again").await;
    // Another client gets the whole history.
    let mut other = websocket::editor(&rig).await;
    other.initialize(json!({})).await;
    other.load(&one).await;
    assert_eq!(other.words("agent_message_chunk"), editor_words(&editor, &one));
    let status = rig.alice().get("/api/v1/status").await.unwrap().ok().unwrap();
    assert_eq!(status["clients"].as_array().map(Vec::len), Some(2), "{status}");
}

fn editor_words(editor: &trilogue_testkit::Editor, session: &str) -> Vec<String> {
    let mut words: Vec<(Value, String)> = Vec::new();
    for update in editor.updates_of(session) {
        if update["sessionUpdate"] != "agent_message_chunk" {
            continue;
        }
        let text = update["content"]["text"].as_str().unwrap();
        match words.last_mut() {
            Some((id, whole)) if *id == update["messageId"] => whole.push_str(text),
            _ => words.push((update["messageId"].clone(), text.to_owned())),
        }
    }
    words.into_iter().map(|(_, text)| text).collect()
}

#[tokio::test]
async fn a_client_answers_the_questions_of_an_agent() {
    let rig = Rig::start().await;
    let mut editor = websocket::editor(&rig).await;
    editor.initialize(json!({})).await;
    let session = editor.session().await;
    let turn = editor.start_prompt(&session, "ask").await;
    let question = editor.request("session/request_permission").await;
    let option = question["params"]["options"][0]["optionId"].as_str().unwrap().to_owned();
    editor.choose(&question, &option).await;
    editor.end_turn(&turn).await;
    let turn = editor.start_prompt(&session, "sleep").await;
    editor.notify("session/cancel", json!({"sessionId": session})).await;
    let ended = editor.answer(&turn).await;
    assert_eq!(ended["result"]["stopReason"], "cancelled", "{ended}");
}

#[tokio::test]
async fn a_numbered_client_continues_after_its_websocket_broke() {
    let rig = Rig::start().await;
    let mut first = websocket::numbered(&rig, "me").await;
    let session = first.session().await;
    first.prompt(&session, "hello").await;
    // The control line follows the response.
    first.ok("session/list", json!({})).await;
    let reached = position(&first, &session);
    drop(first);
    let mut second = websocket::numbered(&rig, "me").await;
    let attach = json!({"sessionId": session, "after": reached, "cwd": "/w", "mcpServers": []});
    assert_eq!(second.ok("_trilogue/attach", attach).await, json!({}));
    assert!(second.updates.is_empty(), "{:?}", second.updates);
    second.prompt(&session, "more").await;
    assert!(position(&second, &session) > reached);
}

#[tokio::test]
async fn a_first_frame_that_does_not_fit_is_refused_with_a_reason() {
    let rig = Rig::start().await;
    let local = [("sec-websocket-protocol", "trilogue.local")];
    let wrap = json!({"command": ["x"], "cwd": "/w", "env": {}});
    for (hello, code) in [
        (json!({"trilogue": 1, "attach": {"agent": "nobody"}}), "agent_not_found"),
        (json!({"trilogue": 2, "attach": {"agent": "puppet"}}), "invalid_request"),
        (json!({"trilogue": 1, "wrap": wrap}), "invalid_request"),
        (json!([1]), "invalid_request"),
        (json!({}), "invalid_request"),
    ] {
        let (_, mut socket) = open(&rig, &local).await;
        socket.send(Message::text(hello.to_string())).await.unwrap();
        let refused = message(&mut socket).await;
        assert_eq!(refused["error"]["code"], code, "{hello} {refused}");
        assert_eq!(close_code(&mut socket).await, 1008, "{hello}");
    }
    let client =
        ClientOptions { hello_timeout: Duration::from_millis(50), ..ClientOptions::default() };
    let (_, mut socket) = open(&rig_with(client).await, &local).await;
    assert_eq!(message(&mut socket).await["error"]["code"], "invalid_request");
    assert_eq!(close_code(&mut socket).await, 1008);
}

#[tokio::test]
async fn a_request_that_cannot_become_a_websocket_gets_its_status() {
    let rig = Rig::start().await;
    rig.token("alpha", "runner", [Right::Run].into_iter().collect(), false).await;
    let status = async |request: String| {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        exchange(&mut stream, &request).await.status
    };
    for (path, changes, expected) in [
        (PUPPET, vec![("upgrade", ""), ("sec-websocket-key", "")], 400),
        (PUPPET, vec![("upgrade", "")], 501),
        (PUPPET, vec![("upgrade", ""), ("connection", "close")], 501),
        (PUPPET, vec![("upgrade", "h2c"), ("accept", "text/html"), ("sec-websocket-key", "")], 406),
        (PUPPET, vec![("sec-websocket-version", "8")], 426),
        (PUPPET, vec![("sec-websocket-version", "")], 426),
        (PUPPET, vec![("connection", "keep-alive")], 501),
        (PUPPET, vec![("sec-websocket-key", "")], 400),
        (PUPPET, vec![("sec-websocket-key", "short")], 400),
        (PUPPET, vec![("authorization", "")], 401),
        (PUPPET, vec![("authorization", "Bearer nobody")], 401),
        (PUPPET, vec![("authorization", "Bearer alpha-runner")], 403),
        (PUPPET, vec![("origin", "http://evil.example")], 403),
        (PUPPET, vec![("host", "evil.example")], 403),
        ("/client/nobody", vec![], 404),
        ("/client/%00", vec![], 404),
        ("/client", vec![], 404),
        ("/client/puppet/more", vec![], 404),
        ("/client/puppet?token=x", vec![], 400),
    ] {
        assert_eq!(status(upgrade(path, &changes)).await, expected, "{path} {changes:?}");
    }
    let old = upgrade(PUPPET, &[]).replace("HTTP/1.1", "HTTP/1.0");
    assert_eq!(status(old).await, 501);
    assert_eq!(status(upgrade(PUPPET, &[])).await, 101);
    let agent_processes = Some(Arc::new(AgentPrograms::every()) as _);
    let of_agent = Rig::of(Setup { agent_processes, ..Setup::default() }).await;
    assert_eq!(open_raw(&of_agent, &[]).await.0.status, 403);
}

#[tokio::test]
async fn an_agent_can_have_a_path_of_its_own() {
    let agent = Some(trilogue_domain::AgentName::parse("puppet").unwrap());
    let protocol = ClientProtocol::for_network(ClientOptions::default(), agent);
    let rig = Rig::with(vec![Mount::new(protocol, "/acp").unwrap()]).await;
    for path in ["/acp", "/acp/", "/acp/puppet"] {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        assert_eq!(exchange(&mut stream, &upgrade(path, &[])).await.status, 101, "{path}");
    }
}

#[tokio::test]
async fn a_frame_that_breaks_a_rule_ends_only_its_connection() {
    let options = ClientOptions { max_line_bytes: MAX_LINE, ..ClientOptions::default() };
    let rig = rig_with(options).await;
    let mut other = websocket::editor(&rig).await;
    other.initialize(json!({})).await;
    let session = other.session().await;
    let unmasked = [0x81, 0x02, b'{', b'}'];
    let mut pings = Vec::new();
    for _ in 0..1_000 {
        pings.extend(masked(0x89, b""));
    }
    // A frame of 1 MiB, of which the head is enough.
    let mut large = vec![0x81, 0xff];
    large.extend(1_048_576_u64.to_be_bytes());
    large.extend([0; 4]);
    let mut fragments = Vec::new();
    for first in std::iter::once(0x01).chain(std::iter::repeat_n(0x00, 1_000)) {
        fragments.extend(masked(first, &[b' '; 120]));
    }
    for (name, bytes, code) in [
        ("binary", masked(0x82, b"{}"), 1003),
        ("unmasked", unmasked.to_vec(), 1002),
        ("compressed", masked(0xc1, b"{}"), 1002),
        ("reserved", masked(0x83, b"{}"), 1002),
        ("a continuation of nothing", masked(0x80, b"{}"), 1002),
        ("a fragmented ping", masked(0x09, b""), 1002),
        ("not UTF-8", masked(0x81, b"\xff"), 1007),
        ("too long", large, 1009),
        ("too long in fragments", fragments, 1009),
        ("pings", pings, 1008),
    ] {
        let (head, mut stream) = open_raw(&rig, &[]).await;
        assert_eq!(head.status, 101);
        // The server may close the connection before it has read everything.
        drop(stream.write_all(&bytes).await);
        let mut socket =
            WebSocketStream::from_partially_read(stream, head.rest, Role::Client, None).await;
        assert_eq!(close_code(&mut socket).await, code, "{name}");
        assert!(!matches!(timeout(LIMIT, socket.next()).await.unwrap(), Some(Ok(_))), "{name}");
    }
    other.prompt(&session, "hello").await;
}

#[tokio::test]
async fn a_message_can_come_in_fragments_and_on_several_lines() {
    let rig = Rig::start().await;
    let (_, mut socket) = open(&rig, &[]).await;
    let text = initialize(1);
    let (begin, end) = text.split_at(20);
    let part = |text: &str, code, is_last| {
        Message::Frame(Frame::message(text.to_owned(), OpCode::Data(code), is_last))
    };
    socket.send(part(begin, Data::Text, false)).await.unwrap();
    socket.send(Message::Ping(Bytes::from_static(b"between"))).await.unwrap();
    socket.send(part(end, Data::Continue, true)).await.unwrap();
    assert_eq!(message(&mut socket).await["id"], 1);
    let pretty: Value = serde_json::from_str(&initialize(2)).unwrap();
    let pretty = format!("\n{}\r\n", serde_json::to_string_pretty(&pretty).unwrap());
    socket.send(Message::text(pretty)).await.unwrap();
    assert_eq!(message(&mut socket).await["id"], 2);
    socket.send(Message::text("")).await.unwrap();
    for (text, code) in [
        (format!("[{}]", initialize(3)), -32600),
        ("nonsense".to_owned(), -32700),
        (json!({"jsonrpc": "2.0", "id": 4, "method": "nothing"}).to_string(), -32601),
    ] {
        socket.send(Message::text(text.clone())).await.unwrap();
        assert_eq!(message(&mut socket).await["error"]["code"], code, "{text}");
    }
    socket.close(None).await.unwrap();
    assert!(matches!(timeout(LIMIT, socket.next()).await.unwrap(), Some(Ok(Message::Close(_)))));
    assert!(timeout(LIMIT, socket.next()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_client_that_answers_no_ping_is_disconnected() {
    let client = ClientOptions {
        ping_interval: Duration::from_millis(30),
        pong_timeout: Duration::from_millis(300),
        ..ClientOptions::default()
    };
    let rig = rig_with(client).await;
    let (_, mut there) = open(&rig, &[]).await;
    let (_, mut gone) = open_raw(&rig, &[]).await;
    let mut pings = 0;
    let answering = async {
        // Reading answers pings.
        while let Some(Ok(frame)) = there.next().await {
            pings += usize::from(frame.is_ping());
        }
    };
    let mut frames = Vec::new();
    tokio::select! {
        () = answering => panic!("the client that answers was disconnected"),
        read = timeout(LIMIT, gone.read_to_end(&mut frames)) => drop(read.unwrap().unwrap()),
    }
    assert!(frames.starts_with(&[0x89, 0]), "{frames:?}");
    // 1008 in a close frame.
    assert!(frames.windows(4).any(|it| it[0] == 0x88 && it[2..] == [0x03, 0xf0]), "{frames:?}");
    assert!(pings > 3, "{pings}");
    there.send(Message::text(initialize(1))).await.unwrap();
    assert_eq!(message(&mut there).await["id"], 1);
}

#[tokio::test]
async fn a_client_that_sends_no_initialize_in_time_is_disconnected() {
    let client =
        ClientOptions { hello_timeout: Duration::from_secs(2), ..ClientOptions::default() };
    let rig = rig_with(client).await;
    let (_, mut there) = open(&rig, &[]).await;
    there.send(Message::text(initialize(1))).await.unwrap();
    assert_eq!(message(&mut there).await["id"], 1);
    let (_, mut silent) = open(&rig, &[]).await;
    assert_eq!(close_code(&mut silent).await, 1008);
    there.send(Message::text(initialize(2))).await.unwrap();
    assert_eq!(message(&mut there).await["id"], 2);
}

/// A connection on which the system keeps few bytes that the test has not read.
pub(crate) async fn open_narrow(rig: &Rig) -> WebSocketStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 * 1024).unwrap();
    let mut stream = socket.connect(rig.address).await.unwrap();
    assert_eq!(exchange(&mut stream, &upgrade(PUPPET, &[])).await.status, 101);
    WebSocketStream::from_raw_socket(stream, Role::Client, None).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_too_much_unread_is_told_to_try_again_later() {
    const MIB: usize = 1024 * 1024;
    // The system keeps less of each one than the history has.
    const CLIENTS: usize = 3;
    let options =
        Options { max_output_bytes: 2 * MIB, max_responses_bytes: 8 * MIB, ..Options::default() };
    let rig = Rig::with(options).await;
    for _ in 0..4 {
        rig.run_on("kept", "stream 30").await;
    }
    let run = rig.run_on("kept", "stream 30").await;
    let params = json!({"sessionId": run["thread_id"], "cwd": "/w", "mcpServers": []});
    let load = json!({"jsonrpc": "2.0", "id": 1, "method": "session/load", "params": params});
    let mut sockets = Vec::new();
    for _ in 0..CLIENTS {
        let mut socket = open_narrow(&rig).await;
        socket.send(Message::text(initialize(0))).await.unwrap();
        message(&mut socket).await;
        socket.send(Message::text(load.to_string())).await.unwrap();
        sockets.push(socket);
    }
    until("the budget to be spent", LIMIT, async || {
        let metrics = rig.metrics().await;
        let refused = "trilogue_http_refused_responses_total ";
        let refused = metrics.lines().find_map(|line| line.strip_prefix(refused));
        refused.is_some_and(|count| count != "0").then_some(())
    })
    .await
    .unwrap();
    // The others stay open.
    let mut closing: FuturesUnordered<_> = sockets.iter_mut().map(close_code).collect();
    assert_eq!(closing.next().await, Some(1013));
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected_and_slows_nobody() {
    let client = ClientOptions {
        max_outbox_messages: 4,
        max_outbox_bytes: 16 * 1024,
        ping_interval: LIMIT,
        ..ClientOptions::default()
    };
    let options = Options { write_timeout: Duration::from_millis(300), ..Options::default() };
    let setup = Setup { options, mounts: Some(mounts(client)), ..Setup::default() };
    let rig = Rig::of(setup).await;
    let mut slow = open_narrow(&rig).await;
    slow.send(Message::text(initialize(0))).await.unwrap();
    message(&mut slow).await;
    let new = json!({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": "/w", "mcpServers": []}});
    slow.send(Message::text(new.to_string())).await.unwrap();
    let session = message(&mut slow).await["result"]["sessionId"].clone();
    let prompt = json!([{"type": "text", "text": "large"}]);
    for id in 2..120 {
        let params = json!({"sessionId": session, "prompt": prompt});
        let ask = json!({"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params});
        if slow.send(Message::text(ask.to_string())).await.is_err() {
            break;
        }
    }
    let mut other = websocket::editor(&rig).await;
    other.initialize(json!({})).await;
    let session = other.session().await;
    other.prompt(&session, "hello").await;
    until("the slow client to be disconnected", LIMIT, async || {
        let status = rig.alice().get("/api/v1/status").await.unwrap().ok().unwrap();
        (status["clients"].as_array().map_or(0, Vec::len) == 1).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_revoked_token_and_a_shutdown_close_the_connection() {
    // Longer than this test: a connection ends without being looked at.
    let options = Options { token_recheck: Duration::from_secs(3_600), ..Options::default() };
    let rig = Rig::with(options).await;
    let made = json!({"label": "short", "principal": "alice", "rights": ["read", "run"]});
    let made = rig.alice().post("/api/v1/tokens", &made).await.unwrap().ok().unwrap();
    let token = format!("Bearer {}", made["secret"].as_str().unwrap());
    let (_, mut revoked) = open(&rig, &[("authorization", &token)]).await;
    let (_, mut silent) = open(&rig, &[("authorization", &token)]).await;
    let (_, mut lasting) = open(&rig, &[]).await;
    for socket in [&mut revoked, &mut lasting] {
        socket.send(Message::text(initialize(1))).await.unwrap();
        assert_eq!(message(socket).await["id"], 1);
    }
    rig.revoke(&format!("/api/v1/tokens/{}", made["token"]["id"].as_str().unwrap())).await;
    assert_eq!(close_code(&mut revoked).await, 1008);
    assert_eq!(close_code(&mut silent).await, 1008);
    let stopping = tokio::spawn(rig.server.shutdown(LIMIT));
    assert_eq!(close_code(&mut lasting).await, 1001);
    drop(lasting);
    let report = timeout(LIMIT, stopping).await.unwrap().unwrap();
    assert_eq!(report.dropped_connections, 0);
}

#[tokio::test]
async fn the_connections_of_a_face_and_of_a_principal_are_limited() {
    let client = ClientOptions { max_network_connections: 3, ..ClientOptions::default() };
    let options = Options { max_connections_per_principal: Some(2), ..Options::default() };
    let setup = Setup { options, mounts: Some(mounts(client)), ..Setup::default() };
    let rig = Rig::of(setup).await;
    rig.token("alpha", "bob", trilogue_domain::Rights::all(), false).await;
    let bob = [("authorization", "Bearer alpha-bob")];
    let (first, second) = (open(&rig, &[]).await, open(&rig, &[]).await);
    assert_eq!(open_raw(&rig, &[]).await.0.status, 429);
    let third = open(&rig, &bob).await;
    assert_eq!(open_raw(&rig, &bob).await.0.status, 429);
    drop(first);
    let free = async || (open_raw(&rig, &bob).await.0.status == 101).then_some(());
    until("the place to be free", LIMIT, free).await.unwrap();
    drop((second, third));
}

#[tokio::test]
async fn parts_of_messages_count_among_the_bodies_of_requests() {
    let options =
        Options { max_body_bytes: 32 * 1024, max_bodies_bytes: 128 * 1024, ..Options::default() };
    let rig = Rig::with(options).await;
    let (head, mut stream) = open_raw(&rig, &[]).await;
    let mut part = vec![0x81, 0xff];
    part.extend(1_048_576_u64.to_be_bytes());
    part.extend(vec![0; 4 + 256 * 1024]);
    // The server may close the connection before it has read everything.
    drop(stream.write_all(&part).await);
    let mut socket =
        WebSocketStream::from_partially_read(stream, head.rest, Role::Client, None).await;
    assert_eq!(close_code(&mut socket).await, 1013);
    // Whole messages count no more.
    let (_, mut socket) = open(&rig, &[]).await;
    for id in 1..=10 {
        let text = initialize(id) + &" ".repeat(40 * 1024);
        socket.send(Message::text(text)).await.unwrap();
        assert_eq!(message(&mut socket).await["id"], id);
    }
}

#[tokio::test]
async fn requests_that_wait_for_a_response_have_a_budget() {
    let options =
        Options { max_body_bytes: 32 * 1024, max_bodies_bytes: 128 * 1024, ..Options::default() };
    let rig = Rig::with(options).await;
    let mut editor = websocket::editor(&rig).await;
    editor.initialize(json!({})).await;
    let session = editor.session().await;
    let running = editor.start_prompt(&session, "sleep").await;
    let text = "x".repeat(28 * 1024);
    let first = editor.start_prompt(&session, &text).await;
    let second = editor.start_prompt(&session, &text).await;
    let third = editor.start_prompt(&session, &text).await;
    // One principal may hold half of the budget.
    let refused = editor.answer(&third).await;
    assert_eq!(refused["error"]["data"]["code"], "overloaded", "{refused}");
    editor.notify("session/cancel", json!({"sessionId": session})).await;
    for prompt in [&running, &first, &second] {
        assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "cancelled");
    }
    // Answered requests count no more.
    editor.prompt(&session, &text).await;
}
