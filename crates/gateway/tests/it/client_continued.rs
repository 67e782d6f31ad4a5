//! Clients that lose their WebSocket, and continue on another one.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use trilogue_domain::Right;
use trilogue_gateway::{ClientOptions, ClientProtocol, Mount};
use trilogue_testkit::until;

use crate::client_websocket::open_narrow;
use crate::rig::{LIMIT, Rig, Setup};
use crate::websocket::open;

type Socket = WebSocketStream<TcpStream>;

/// A client that counts the messages of its connection.
struct Client {
    socket: Socket,
    connection: String,
    received: Vec<Value>,
    /// How many messages it has sent.
    sent: u64,
}

async fn rig_with(options: ClientOptions) -> Rig {
    let mounts = vec![Mount::new(ClientProtocol::for_network(options, None), "/client").unwrap()];
    Rig::of(Setup { mounts: Some(mounts), ..Setup::default() }).await
}

/// The next message of the server; `None` at the end of the WebSocket.
async fn next(socket: &mut Socket) -> Option<Value> {
    loop {
        match timeout(LIMIT, socket.next()).await.unwrap() {
            Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            _ => return None,
        }
    }
}

fn attach(connection: &str, received: usize) -> Value {
    let params = json!({"connectionId": connection, "received": received});
    json!({"jsonrpc": "2.0", "id": "again", "method": "_trilogue/attach", "params": params})
}

/// Asks to continue on a new WebSocket. Returns it, and the answer.
async fn ask(rig: &Rig, token: &str, connection: &str, received: usize) -> (Socket, Value) {
    let (_, mut socket) = open(rig, &[("authorization", &format!("Bearer {token}"))]).await;
    socket.send(Message::text(attach(connection, received).to_string())).await.unwrap();
    let answer = next(&mut socket).await.unwrap();
    assert_eq!(answer["id"], "again", "{answer}");
    (socket, answer)
}

/// Waits until no client is connected.
async fn until_gone(rig: &Rig) {
    until("the client to be gone", LIMIT, || async {
        let status = rig.alice().get("/api/v1/status").await.unwrap().ok().unwrap();
        status["clients"].as_array().unwrap().is_empty().then_some(())
    })
    .await
    .unwrap();
}

impl Client {
    /// Begins a connection that another WebSocket may continue.
    async fn begin(rig: &Rig) -> Self {
        let (head, socket) = open(rig, &[]).await;
        let client = Self::begin_on(socket).await;
        assert_eq!(client.connection, head.headers["acp-connection-id"]);
        client
    }

    async fn begin_on(socket: Socket) -> Self {
        let mut client = Self { socket, connection: String::new(), received: Vec::new(), sent: 0 };
        let meta = json!({"trilogue": {"attach": true}});
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}, "_meta": meta});
        let answer = client.call("initialize", params).await;
        let announced = &answer["agentCapabilities"]["_meta"]["trilogue"]["attach"];
        client.connection = announced["connectionId"].as_str().unwrap().to_owned();
        assert!(announced["graceMs"].as_u64().unwrap() > 0, "{answer}");
        client
    }

    async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.sent += 1;
        let id = self.sent;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.socket.send(Message::text(message.to_string())).await.unwrap();
        id
    }

    async fn message(&mut self) -> Value {
        let message = next(&mut self.socket).await.unwrap();
        self.received.push(message.clone());
        message
    }

    async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.message().await;
            if message["id"] == id && message.get("method").is_none() {
                return message["result"].clone();
            }
        }
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    async fn session(&mut self) -> String {
        let opened = self.call("session/new", json!({"cwd": "/w", "mcpServers": []})).await;
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.send("session/prompt", json!({"sessionId": session, "prompt": prompt})).await
    }

    /// Continues on another WebSocket, without the end of the last one.
    async fn continue_after(&mut self, rig: &Rig, received: usize) -> u64 {
        let (socket, answer) = ask(rig, "alpha-alice", &self.connection, received).await;
        self.socket = socket;
        self.received.truncate(received);
        answer["result"]["received"].as_u64().unwrap()
    }

    fn updates(&self, session: &str) -> Vec<Value> {
        let updates = self.received.iter().filter(|it| it["method"] == "session/update");
        let ours = updates.filter(|it| it["params"]["sessionId"] == session);
        ours.map(|it| it["params"]["update"].clone()).collect()
    }
}

#[tokio::test]
async fn a_connection_continues_at_every_message() {
    let rig = Rig::start().await;
    let mut client = Client::begin(&rig).await;
    let session = client.session().await;
    let turn = client.prompt(&session, "stream").await;
    // After each message the WebSocket is lost.
    let mut responses = 0;
    while responses == 0 {
        let message = client.message().await;
        responses += usize::from(message["id"] == turn);
        let received = client.received.len();
        assert_eq!(client.continue_after(&rig, received).await, client.sent);
    }
    let seen = client.updates(&session);
    assert!(seen.len() > 2, "{seen:?}");
    // What arrived and is not counted comes again.
    let all = client.received.clone();
    client.continue_after(&rig, 2).await;
    while client.received.len() < all.len() {
        client.message().await;
    }
    assert_eq!(client.received, all);
    let mut other = Client::begin(&rig).await;
    let load = json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
    other.call("session/load", load).await;
    let is_agents = |update: &Value| update["sessionUpdate"] != "user_message_chunk";
    let mut replayed = other.updates(&session);
    replayed.retain(is_agents);
    assert_eq!(seen.into_iter().filter(is_agents).collect::<Vec<_>>(), replayed);
    let status = rig.alice().get("/api/v1/status").await.unwrap().ok().unwrap();
    assert_eq!(status["clients"].as_array().map(Vec::len), Some(2), "{status}");
}

#[tokio::test]
async fn messages_wait_for_their_client_and_arrive_once() {
    let rig = Rig::start().await;
    let mut client = Client::begin(&rig).await;
    let session = client.session().await;
    let turn = client.prompt(&session, "ask").await;
    let question = loop {
        let message = client.message().await;
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    // The question stays open, and is not asked again.
    let received = client.received.len();
    let (_, lost) = open(&rig, &[]).await;
    drop(std::mem::replace(&mut client.socket, lost));
    assert_eq!(client.continue_after(&rig, received).await, client.sent);
    let outcome =
        json!({"outcome": "selected", "optionId": question["params"]["options"][0]["optionId"]});
    let reply = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": outcome}});
    client.socket.send(Message::text(reply.to_string())).await.unwrap();
    client.sent += 1;
    // The turn ends between two WebSockets.
    drop(std::mem::replace(&mut client.socket, open(&rig, &[]).await.1));
    until("the run to end", LIMIT, || async {
        let runs = rig.alice().get("/api/v1/runs").await.unwrap().ok().unwrap();
        (runs["items"][0]["status"] == "completed").then_some(())
    })
    .await
    .unwrap();
    let received = client.received.len();
    assert_eq!(client.continue_after(&rig, received).await, client.sent);
    client.answer(turn).await;
    let count =
        |method: &str| client.received.iter().filter(|message| message["method"] == method).count();
    assert_eq!(count("session/request_permission"), 1);
    client.prompt(&session, "hello").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_read_nothing_continues_or_is_gone_after_its_grace() {
    const PIECES: usize = 150;
    for (is_back, idle_timeout) in [(true, LIMIT), (false, Duration::from_millis(200))] {
        let options =
            ClientOptions { max_outbox_messages: 4, idle_timeout, ..ClientOptions::default() };
        let rig = rig_with(options).await;
        let mut client = Client::begin_on(open_narrow(&rig).await).await;
        let session = client.session().await;
        let received = client.received.len();
        let turn = client.prompt(&session, &format!("stream {PIECES}")).await;
        // Their errors wait for room among the messages.
        for _ in 0..16 {
            client.send("session/list", json!([1])).await;
        }
        until("messages to wait", LIMIT, async || {
            let metrics = rig.metrics().await;
            let unread = metrics
                .lines()
                .find_map(|line| line.strip_prefix("trilogue_http_response_bytes "))?;
            (unread.parse::<usize>().ok()? > 100 * 1024).then_some(())
        })
        .await
        .unwrap();
        if !is_back {
            drop(client);
            until_gone(&rig).await;
            continue;
        }
        let taken = client.continue_after(&rig, received).await;
        let sent = client.sent;
        for id in taken + 1..=sent {
            let again =
                json!({"jsonrpc": "2.0", "id": id, "method": "session/list", "params": [1]});
            client.socket.send(Message::text(again.to_string())).await.unwrap();
        }
        let ids = |messages: &[Value]| -> Vec<u64> {
            let answers = messages.iter().filter(|message| message.get("method").is_none());
            answers.map(|message| message["id"].as_u64().unwrap()).collect()
        };
        while ids(&client.received[received..]).len() < 17 {
            client.message().await;
        }
        let mut answered = ids(&client.received[received..]);
        answered.sort_unstable();
        assert_eq!(answered, Vec::from_iter(turn..=sent));
        let texts = client.updates(&session);
        let texts = texts.iter().filter_map(|update| update["content"]["text"].as_str());
        assert_eq!(
            texts.filter(|text| text.starts_with("xx")).map(str::len).sum::<usize>(),
            PIECES * 40 * 1024
        );
    }
}

#[tokio::test]
async fn only_its_principal_continues_a_connection() {
    let rig = Rig::start().await;
    rig.token("alpha", "bob", [Right::Read, Right::Run].into_iter().collect(), false).await;
    let mut client = Client::begin(&rig).await;
    let session = client.session().await;
    for (token, connection) in
        [("alpha-bob", client.connection.as_str()), ("alpha-alice", "unknown")]
    {
        let (mut socket, answer) = ask(&rig, token, connection, 1).await;
        assert_eq!(answer["error"]["data"]["code"], "not_found", "{answer}");
        assert!(answer["error"]["data"]["hint"].is_string(), "{answer}");
        assert!(next(&mut socket).await.is_none());
    }
    // Nothing has happened to it.
    client.prompt(&session, "hello").await;
    // A number that is not its own ends it.
    let (_, answer) = ask(&rig, "alpha-alice", &client.connection, 99).await;
    assert_eq!(answer["error"]["data"]["code"], "invalid_cursor", "{answer}");
    until_gone(&rig).await;
    let (_, answer) = ask(&rig, "alpha-alice", &client.connection, 1).await;
    assert_eq!(answer["error"]["data"]["code"], "not_found", "{answer}");
}

#[tokio::test]
async fn an_attach_without_its_parameters_or_in_a_connection_is_refused() {
    let rig = Rig::start().await;
    let attach = json!({"jsonrpc": "2.0", "id": "again", "method": "_trilogue/attach", "params": {"received": 1}});
    let (_, mut socket) = open(&rig, &[]).await;
    socket.send(Message::text(attach.to_string())).await.unwrap();
    let answer = next(&mut socket).await.unwrap();
    assert_eq!(answer["error"]["data"]["code"], "invalid_request", "{answer}");
    assert!(next(&mut socket).await.is_none());
    let mut client = Client::begin(&rig).await;
    client.socket.send(Message::text(attach.to_string())).await.unwrap();
    let answer = client.message().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("again"), &json!(-32600)));
}

#[tokio::test]
async fn a_client_that_does_not_ask_or_does_not_come_back_is_gone() {
    let rig = rig_with(ClientOptions {
        idle_timeout: Duration::from_millis(200),
        ..ClientOptions::default()
    })
    .await;
    let mut client = Client::begin(&rig).await;
    client.session().await;
    let connection = client.connection.clone();
    drop(client);
    until_gone(&rig).await;
    let (_, answer) = ask(&rig, "alpha-alice", &connection, 1).await;
    assert_eq!(answer["error"]["data"]["code"], "not_found", "{answer}");
    let rig = Rig::start().await;
    let (head, mut socket) = open(&rig, &[]).await;
    let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    socket.send(Message::text(request.to_string())).await.unwrap();
    let answer = next(&mut socket).await.unwrap();
    let announced = &answer["result"]["agentCapabilities"]["_meta"]["trilogue"]["attach"];
    assert_eq!(announced, &json!({"graceMs": 300_000}), "{answer}");
    drop(socket);
    until_gone(&rig).await;
    let (_, answer) = ask(&rig, "alpha-alice", &head.headers["acp-connection-id"], 1).await;
    assert_eq!(answer["error"]["data"]["code"], "not_found", "{answer}");
}

/// A client that closes its WebSocket is not waited for.
#[tokio::test]
async fn a_closed_websocket_ends_its_connection() {
    let rig = Rig::start().await;
    let mut client = Client::begin(&rig).await;
    client.socket.close(None).await.unwrap();
    until_gone(&rig).await;
}
