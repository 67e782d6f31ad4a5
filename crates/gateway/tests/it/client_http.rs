//! Clients of the Agent Client Protocol over HTTP, with server-sent events.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use trilogue_domain::{Right, Rights};
use trilogue_gateway::{ClientOptions, ClientProtocol, Mount, Options};
use trilogue_testkit::client::{Reply, ServerSent, Stream};
use trilogue_testkit::{Client, until};

use crate::rig::{LIMIT, Rig, Setup};
use crate::websocket::PUPPET;

/// A client with one connection.
struct HttpClient {
    client: Client,
    connection: String,
    next: u64,
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn initialize() -> Value {
    request(0, "initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}))
}

async fn rig_with(client: ClientOptions) -> Rig {
    let mount = Mount::new(ClientProtocol::for_network(client, None), "/client").unwrap();
    Rig::of(Setup { mounts: Some(vec![mount]), ..Setup::default() }).await
}

/// The next message of a stream, with its number.
async fn event(stream: &mut Stream) -> (u64, Value) {
    let event = timeout(LIMIT, stream.next()).await.unwrap().unwrap().unwrap();
    let ServerSent { id, event: None, data } = event else { panic!("{event:?}") };
    (id.unwrap().parse().unwrap(), serde_json::from_str(&data).unwrap())
}

/// Reads until the response to this request. Returns the numbers of the events, and the messages.
async fn until_response(stream: &mut Stream, id: u64) -> (Vec<u64>, Vec<Value>) {
    let (mut numbers, mut messages) = (Vec::new(), Vec::new());
    loop {
        let (number, message) = event(stream).await;
        numbers.push(number);
        messages.push(message);
        let last = &messages[messages.len() - 1];
        if last["id"] == id && last.get("method").is_none() {
            return (numbers, messages);
        }
    }
}

/// Waits for the end of a stream.
async fn end(stream: &mut Stream) {
    while timeout(LIMIT, stream.next()).await.unwrap().unwrap().is_some() {}
}

impl HttpClient {
    async fn open(client: Client) -> Self {
        let reply = client.post(PUPPET, &initialize()).await.unwrap();
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.json()["result"]["protocolVersion"], 1, "{reply:?}");
        let connection = reply.headers["acp-connection-id"].to_str().unwrap().to_owned();
        Self { client, connection, next: 1 }
    }

    async fn send(&self, method: Method, headers: &[(&str, &str)], body: &Value) -> Reply {
        let mut all = vec![("acp-connection-id", self.connection.as_str())];
        all.extend(headers);
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        self.client.send(method, PUPPET, &all, body).await.unwrap()
    }

    async fn post(&self, message: &Value) {
        let reply = self.send(Method::POST, &[], message).await;
        assert_eq!((reply.status, reply.body.len()), (202, 0), "{reply:?}");
    }

    /// Sends a request and returns its id.
    async fn ask(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.post(&request(id, method, &params)).await;
        id
    }

    async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.ask("session/prompt", json!({"sessionId": session, "prompt": prompt})).await
    }

    async fn try_stream(
        &self,
        session: Option<&str>,
        after: Option<u64>,
    ) -> Result<Stream, String> {
        let after = after.map(|number| number.to_string());
        let mut headers =
            vec![("accept", "text/event-stream"), ("acp-connection-id", self.connection.as_str())];
        headers.extend(session.map(|session| ("acp-session-id", session)));
        headers.extend(after.as_deref().map(|after| ("last-event-id", after)));
        let opened = self.client.stream_of(Method::GET, PUPPET, &headers, Bytes::new()).await;
        opened.map_err(|error| error.to_string())
    }

    async fn stream(&self, session: Option<&str>, after: Option<u64>) -> Stream {
        self.try_stream(session, after).await.unwrap()
    }

    /// The status of a stream that is refused.
    async fn refusal(&self, session: Option<&str>, after: Option<u64>) -> String {
        self.try_stream(session, after).await.unwrap_err()
    }

    /// Opens a session. `stream` is the connection's.
    async fn session(&mut self, stream: &mut Stream) -> String {
        let id = self.ask("session/new", json!({"cwd": "/w", "mcpServers": []})).await;
        let (_, messages) = until_response(stream, id).await;
        messages[messages.len() - 1]["result"]["sessionId"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_client_has_two_sessions_with_streams_of_their_own() {
    let rig = Rig::start().await;
    let mut client = HttpClient::open(rig.alice()).await;
    // The response waits for the stream.
    let new = client.ask("session/new", json!({"cwd": "/w", "mcpServers": []})).await;
    let mut whole = client.stream(None, None).await;
    let (numbers, messages) = until_response(&mut whole, new).await;
    assert_eq!(numbers[0], 1);
    let one = messages[messages.len() - 1]["result"]["sessionId"].as_str().unwrap().to_owned();
    let two = client.session(&mut whole).await;
    let mut first = client.stream(Some(&one), None).await;
    let mut second = client.stream(Some(&two), None).await;
    let (a, b) = (client.prompt(&one, "count 3").await, client.prompt(&two, "hello").await);
    for (stream, session, id, least) in [(&mut second, &two, b, 2), (&mut first, &one, a, 4)] {
        let (numbers, messages) = until_response(stream, id).await;
        assert_eq!(numbers, (1..=messages.len() as u64).collect::<Vec<_>>());
        assert!(messages.len() >= least, "{messages:?}");
        let (response, updates) = messages.split_last().unwrap();
        assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
        assert!(updates.iter().all(|it| it["params"]["sessionId"] == **session), "{updates:?}");
    }
    let status = rig.alice().get("/api/v1/status").await.unwrap().ok().unwrap();
    assert_eq!(status["clients"].as_array().map(Vec::len), Some(1), "{status}");
    let listed = &status["clients"][0];
    assert_eq!((&listed["transport"], &listed["principal"]), (&json!("http"), &json!("alice")));
    assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(2), "{status}");
    assert_eq!(client.send(Method::DELETE, &[], &Value::Null).await.status, 202);
    for stream in [&mut whole, &mut first, &mut second] {
        end(stream).await;
    }
    let gone = client.send(Method::POST, &[], &request(9, "session/list", &json!({}))).await;
    assert_eq!((gone.status, gone.code().as_str()), (404, "not_found"));
}

#[tokio::test]
async fn a_session_without_a_stream_of_its_own_uses_that_of_the_connection() {
    let rig = Rig::start().await;
    let mut client = HttpClient::open(rig.alice()).await;
    let mut whole = client.stream(None, None).await;
    let session = client.session(&mut whole).await;
    let prompt = client.prompt(&session, "count 20").await;
    let (_, told) = until_response(&mut whole, prompt).await;
    // A second client loads the session in the same way, and opens its stream then.
    let mut other = HttpClient::open(rig.alice()).await;
    let mut stream = other.stream(None, None).await;
    let load = json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
    let load = other.ask("session/load", load).await;
    let (_, history) = until_response(&mut stream, load).await;
    assert!(history.len() > told.len(), "{history:?}");
    let mut own = other.stream(Some(&session), None).await;
    let prompt = other.prompt(&session, "more").await;
    let (_, updates) = until_response(&mut own, prompt).await;
    assert!(updates.len() > 1, "{updates:?}");
}

#[tokio::test]
async fn a_stream_continues_without_a_gap_or_a_duplicate() {
    let rig = Rig::start().await;
    let mut client = HttpClient::open(rig.alice()).await;
    let mut whole = client.stream(None, None).await;
    let session = client.session(&mut whole).await;
    let mut stream = client.stream(Some(&session), None).await;
    let prompt = client.prompt(&session, "count 200").await;
    let (mut numbers, mut texts) = (Vec::new(), Vec::new());
    // The connection breaks again and again, once before anything has arrived.
    let mut after = Some(0);
    let response = loop {
        drop(stream);
        stream = client.stream(Some(&session), after).await;
        let mut response = None;
        for _ in 0..17 {
            let (number, message) = event(&mut stream).await;
            numbers.push(number);
            if message["id"] == prompt {
                response = Some(message);
                break;
            }
            let text = &message["params"]["update"]["content"]["text"];
            texts.extend(text.as_str().map(ToOwned::to_owned));
        }
        if let Some(response) = response {
            break response;
        }
        after = numbers.last().copied();
    };
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let parts: Vec<_> = texts.iter().filter(|text| text.starts_with("part ")).collect();
    let expected: Vec<_> = (0..200).map(|number| format!("part {number}")).collect();
    assert_eq!(parts, expected.iter().collect::<Vec<_>>());
    // A turn that ends while no stream is open: its response waits, and comes once.
    drop(stream);
    let prompt = client.prompt(&session, "hello").await;
    until("the turn to end", LIMIT, async || {
        let listed = rig.alice().get("/api/v1/runs").await.unwrap().ok().unwrap();
        let runs = listed["items"].as_array().unwrap();
        (runs.len() == 2 && runs.iter().all(|run| run["status"] == "completed")).then_some(())
    })
    .await
    .unwrap();
    let mut stream = client.stream(Some(&session), numbers.last().copied()).await;
    let (more, _) = until_response(&mut stream, prompt).await;
    assert_eq!(more[0], numbers[numbers.len() - 1] + 1);
    let refused = client.refusal(Some(&session), Some(9_999)).await;
    assert!(refused.contains("400") && refused.contains("invalid_cursor"), "{refused}");
}

#[tokio::test]
async fn a_second_stream_is_refused_unless_it_continues() {
    let rig = Rig::start().await;
    let client = HttpClient::open(rig.alice()).await;
    let mut first = client.stream(None, None).await;
    assert!(client.refusal(None, None).await.contains("409"));
    let _second = client.stream(None, Some(0)).await;
    end(&mut first).await;
    assert!(client.refusal(None, None).await.contains("409"));
    // Streams of sessions without a request.
    let mut streams = Vec::new();
    for session in 0..16 {
        streams.push(client.stream(Some(&format!("s{session}")), None).await);
    }
    assert!(client.refusal(Some("s16"), None).await.contains("429"));
    drop(streams.pop());
    until("a place", LIMIT, async || client.try_stream(Some("s16"), None).await.ok())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_client_answers_the_questions_of_an_agent() {
    let rig = Rig::start().await;
    let mut client = HttpClient::open(rig.alice()).await;
    let mut whole = client.stream(None, None).await;
    let session = client.session(&mut whole).await;
    let mut stream = client.stream(Some(&session), None).await;
    // Some clients send the session's id with the answer, and some do not.
    for headers in [vec![], vec![("acp-session-id", session.as_str())]] {
        let prompt = client.prompt(&session, "ask").await;
        let question = loop {
            let (_, message) = event(&mut stream).await;
            if message["method"] == "session/request_permission" {
                break message;
            }
        };
        let option = &question["params"]["options"][0]["optionId"];
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome});
        assert_eq!(client.send(Method::POST, &headers, &answer).await.status, 202);
        let (_, messages) = until_response(&mut stream, prompt).await;
        assert_eq!(messages[messages.len() - 1]["result"]["stopReason"], "end_turn");
    }
}

#[tokio::test]
async fn a_request_that_breaks_a_rule_gets_its_status() {
    let options = ClientOptions { max_line_bytes: 64 * 1024, ..ClientOptions::default() };
    let rig = rig_with(options).await;
    rig.token("alpha", "bob", Rights::all(), false).await;
    rig.token("alpha", "runner", [Right::Run].into_iter().collect(), false).await;
    let client = HttpClient::open(rig.alice()).await;
    let id = client.connection.as_str();
    let (post, get, delete) = (Method::POST, Method::GET, Method::DELETE);
    let list = request(5, "session/list", &json!({})).to_string();
    let load = request(6, "session/load", &json!({"sessionId": "a"})).to_string();
    let hello = initialize().to_string();
    let large = request(7, "session/list", &json!({"x": "y".repeat(64 * 1024)})).to_string();
    let known = ("acp-connection-id", id);
    let unknown = ("acp-connection-id", "35f4a3a0-0000-4000-8000-000000000000");
    let (json_body, sse) = ("application/json", "text/event-stream");
    for (method, headers, body, status) in [
        (&post, vec![], list.as_str(), 400),
        (&post, vec![unknown], &list, 404),
        (&post, vec![("acp-connection-id", "")], &list, 404),
        (&post, vec![known], &hello, 400),
        (&post, vec![known], "nonsense", 400),
        (&post, vec![known], "{}", 400),
        (&post, vec![known], "", 415),
        (&post, vec![known, ("content-type", json_body)], "", 400),
        (&post, vec![known, ("content-type", "text/plain")], &list, 415),
        (&post, vec![known, ("content-type", "application/json; charset=utf-8")], &list, 202),
        (&post, vec![known], &format!("[{list}]"), 501),
        (&post, vec![], &format!("[{hello}]"), 501),
        (&post, vec![known], &large, 413),
        (&post, vec![known, ("acp-session-id", "b")], &load, 400),
        (&post, vec![known, ("acp-session-id", "a")], &load, 202),
        (&post, vec![("accept", "text/html")], &hello, 406),
        (&get, vec![known, ("accept", json_body)], "", 406),
        (&get, vec![("accept", sse)], "", 400),
        (&get, vec![unknown, ("accept", sse)], "", 404),
        (&get, vec![known, ("accept", sse), ("acp-session-id", "")], "", 404),
        (&get, vec![known, ("accept", sse), ("last-event-id", "x")], "", 400),
        (&get, vec![known, ("accept", sse), ("last-event-id", "7")], "", 400),
        (&delete, vec![], "", 400),
        (&delete, vec![unknown], "", 404),
        (&Method::PUT, vec![known], &list, 405),
        (&post, vec![known, ("authorization", "Bearer nobody")], &list, 401),
        (&post, vec![known, ("authorization", "Bearer alpha-runner")], &list, 403),
        (&post, vec![known, ("origin", "http://evil.example")], &list, 403),
        // The connections of others are not there.
        (&post, vec![known, ("authorization", "Bearer alpha-bob")], &list, 404),
        (&get, vec![known, ("authorization", "Bearer alpha-bob"), ("accept", sse)], "", 404),
        (&delete, vec![known, ("authorization", "Bearer alpha-bob")], "", 404),
    ] {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let reply = rig.alice().send(method.clone(), PUPPET, &headers, body).await.unwrap();
        assert_eq!(reply.status, status, "{method} {headers:?} {reply:?}");
    }
    // An `initialize` that fails begins no connection.
    let invalid = request(1, "initialize", &json!({"protocolVersion": []}));
    let refused = rig.alice().post(PUPPET, &invalid).await.unwrap();
    assert_eq!((refused.status, refused.json()["id"].as_u64()), (200, Some(1)), "{refused:?}");
    assert!(
        refused.json()["error"]["code"].is_i64()
            && !refused.headers.contains_key("acp-connection-id")
    );
    // The connection has had no harm.
    let mut stream = client.stream(None, None).await;
    until_response(&mut stream, 5).await;
}

#[tokio::test]
async fn a_connection_without_requests_and_streams_ends() {
    let options =
        ClientOptions { idle_timeout: Duration::from_millis(300), ..ClientOptions::default() };
    let rig = rig_with(options).await;
    let used = HttpClient::open(rig.alice()).await;
    let unused = HttpClient::open(rig.alice()).await;
    let mut stream = used.stream(None, None).await;
    until("the connection to end", LIMIT, async || {
        let status = rig.alice().get("/api/v1/status").await.unwrap().ok().unwrap();
        (status["clients"].as_array()?.len() == 1).then_some(())
    })
    .await
    .unwrap();
    let list = request(5, "session/list", &json!({}));
    assert_eq!(unused.send(Method::POST, &[], &list).await.status, 404);
    used.post(&list).await;
    until_response(&mut stream, 5).await;
}

#[tokio::test]
async fn a_connection_whose_messages_wait_ends_although_another_stream_is_open() {
    let options = ClientOptions {
        idle_timeout: Duration::from_millis(300),
        max_outbox_messages: 2,
        ..ClientOptions::default()
    };
    let rig = rig_with(options).await;
    let client = HttpClient::open(rig.alice()).await;
    let mut other = client.stream(Some("other"), None).await;
    for id in 1..=12 {
        // The connection may have ended already.
        client.send(Method::POST, &[], &request(id, "session/list", &json!({}))).await;
    }
    end(&mut other).await;
    let list = request(20, "session/list", &json!({}));
    assert_eq!(client.send(Method::POST, &[], &list).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_leave_unread_has_a_budget_for_their_principal() {
    const MIB: usize = 1024 * 1024;
    const CLIENTS: usize = 12;
    let options =
        Options { max_output_bytes: 2 * MIB, max_responses_bytes: 8 * MIB, ..Options::default() };
    let rig = Rig::with(options).await;
    rig.token("alpha", "bob", Rights::all(), false).await;
    // A run without a thread gets one that no client can load.
    let run = rig.run_on("kept", "stream 30").await;
    let session = run["thread_id"].as_str().unwrap();
    let metric = async |name: &str| {
        let metrics = rig.metrics().await;
        let value = metrics.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0, |it| it.parse::<usize>().unwrap())
    };
    let load = json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = HttpClient::open(rig.alice()).await;
        client.ask("session/load", load.clone()).await;
        clients.push(client);
        assert!(metric("trilogue_http_response_bytes").await <= 5 * MIB);
    }
    until("a connection to end", LIMIT, async || {
        let refused = metric("trilogue_http_refused_responses_total").await > 0;
        let status = rig.alice().get("/api/v1/status").await.unwrap().ok().unwrap();
        (refused && status["clients"].as_array()?.len() < CLIENTS).then_some(())
    })
    .await
    .unwrap();
    // Another principal can use the other half of the budget.
    let bob = HttpClient::open(rig.as_("alpha", "bob")).await;
    bob.post(&request(1, "session/list", &json!({}))).await;
    let mut stream = bob.stream(None, None).await;
    until_response(&mut stream, 1).await;
    for client in &clients {
        client.send(Method::DELETE, &[], &Value::Null).await;
    }
    bob.send(Method::DELETE, &[], &Value::Null).await;
    end(&mut stream).await;
    let all_back = async || (metric("trilogue_http_response_bytes").await == 0).then_some(());
    until("the messages to be dropped", LIMIT, all_back).await.unwrap();
}

#[tokio::test]
async fn a_repeated_message_is_taken_once_and_another_one_with_its_key_is_refused() {
    let rig = Rig::start().await;
    let client = HttpClient::open(rig.alice()).await;
    let mut stream = client.stream(None, None).await;
    let key = [("idempotency-key", "k")];
    let list = |id| request(id, "session/list", &json!({}));
    for _ in 0..2 {
        assert_eq!(client.send(Method::POST, &key, &list(1)).await.status, 202);
    }
    let other = client.send(Method::POST, &key, &list(2)).await;
    assert_eq!((other.status, other.code().as_str()), (422, "idempotency_mismatch"));
    client.post(&list(3)).await;
    let (_, messages) = until_response(&mut stream, 3).await;
    assert_eq!(messages.len(), 2, "{messages:?}");
}

/// Reads the text of a response until it has these words. Returns the text.
async fn read_until(body: &mut Incoming, words: &str) -> String {
    let mut text = String::new();
    while !text.contains(words) {
        let frame = timeout(LIMIT, body.frame()).await.unwrap().unwrap().unwrap();
        text += std::str::from_utf8(&frame.into_data().unwrap()).unwrap();
    }
    text
}

#[tokio::test]
async fn one_http2_connection_carries_the_requests_and_streams_of_a_client() {
    let rig = Rig::start().await;
    let stream = TokioIo::new(TcpStream::connect(rig.address).await.unwrap());
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
    let (sender, serving) = handshake.await.unwrap();
    tokio::spawn(serving);
    let send = async |method: Method, connection: Option<&str>, body: &Value| {
        let accept = if method == Method::GET { "text/event-stream" } else { "application/json" };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{PUPPET}", rig.address))
            .header("authorization", "Bearer alpha-alice")
            .header("content-type", "application/json")
            .header("accept", accept);
        if let Some(connection) = connection {
            request = request.header("acp-connection-id", connection);
        }
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        sender.clone().send_request(request.body(Full::new(body)).unwrap()).await.unwrap()
    };
    let opened = send(Method::POST, None, &initialize()).await;
    assert_eq!(opened.status(), 200);
    let id = opened.headers()["acp-connection-id"].to_str().unwrap().to_owned();
    let opened = send(Method::GET, Some(&id), &Value::Null).await;
    assert_eq!((opened.status().as_u16(), opened.version()), (200, http::Version::HTTP_2));
    let mut events = opened.into_body();
    let new = request(1, "session/new", &json!({"cwd": "/w", "mcpServers": []}));
    assert_eq!(send(Method::POST, Some(&id), &new).await.status(), 202);
    let text = read_until(&mut events, "\"id\":1").await;
    let session = text.split("\"sessionId\":\"").nth(1).unwrap().split('"').next().unwrap();
    let words = json!([{"type": "text", "text": "hello"}]);
    let prompt = request(2, "session/prompt", &json!({"sessionId": session, "prompt": words}));
    assert_eq!(send(Method::POST, Some(&id), &prompt).await.status(), 202);
    let text = read_until(&mut events, "\"id\":2").await;
    assert!(text.contains("agent_message_chunk") && text.contains("end_turn"), "{text}");
    assert_eq!(send(Method::DELETE, Some(&id), &Value::Null).await.status(), 202);
    while timeout(LIMIT, events.frame()).await.unwrap().is_some() {}
}

#[tokio::test]
async fn deleting_a_connection_in_a_turn_leaves_the_session() {
    let rig = Rig::start().await;
    let mut client = HttpClient::open(rig.alice()).await;
    let mut whole = client.stream(None, None).await;
    let session = client.session(&mut whole).await;
    client.prompt(&session, "sleep").await;
    until("the turn to begin", LIMIT, async || {
        let listed = rig.alice().get("/api/v1/runs").await.unwrap().ok().unwrap();
        listed["items"].as_array()?.iter().any(|run| run["status"] == "running").then_some(())
    })
    .await
    .unwrap();
    assert_eq!(client.send(Method::DELETE, &[], &Value::Null).await.status, 202);
    end(&mut whole).await;
    let mut other = HttpClient::open(rig.alice()).await;
    let mut stream = other.stream(None, None).await;
    let load = json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
    let load = other.ask("session/load", load).await;
    let (_, history) = until_response(&mut stream, load).await;
    assert!(history[history.len() - 1].get("result").is_some(), "{history:?}");
    other.post(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})).await;
    until("the turn to end", LIMIT, async || {
        let listed = rig.alice().get("/api/v1/runs").await.unwrap().ok().unwrap();
        listed["items"].as_array()?.iter().any(|run| run["status"] == "cancelled").then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_revoked_token_and_a_shutdown_end_the_streams() {
    let options = Options { token_recheck: Duration::from_millis(20), ..Options::default() };
    let rig = Rig::with(options).await;
    let (short, path) = rig.short_lived().await;
    let revoked = HttpClient::open(short).await;
    let lasting = HttpClient::open(rig.alice()).await;
    let (mut ended, mut stream) =
        (revoked.stream(None, None).await, lasting.stream(None, None).await);
    rig.revoke(&path).await;
    end(&mut ended).await;
    let stopping = tokio::spawn(rig.server.shutdown(LIMIT));
    end(&mut stream).await;
    let report = timeout(LIMIT, stopping).await.unwrap().unwrap();
    assert_eq!(report.dropped_connections, 0);
}
