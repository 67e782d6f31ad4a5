//! HTTP/2 clients that open no window for their responses.

use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http::{Method, Request, Response};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use trilogue_gateway::Options;
use trilogue_testkit::until;

use crate::rig::{LIMIT, Rig, text};

/// The limit of concurrent responses to callers without a token on one connection.
const ANONYMOUS: usize = 16;

/// Sends requests on a connection whose client reads only heads.
#[derive(Clone)]
struct Requests(SendRequest<Bytes>);

/// A connection that answers pings, until the server ends it.
struct Connection(JoinHandle<Result<(), h2::Error>>);

impl Connection {
    async fn wait_for_end(self) {
        drop(timeout(LIMIT, self.0).await.unwrap());
    }
}

impl Requests {
    async fn open(rig: &Rig) -> (Self, Connection) {
        let stream = TcpStream::connect(rig.address).await.unwrap();
        let handshake = h2::client::Builder::new().initial_window_size(0).handshake(stream);
        let (sender, connection) = handshake.await.unwrap();
        (Self(sender), Connection(tokio::spawn(connection)))
    }

    async fn send(
        &self,
        request: http::request::Builder,
        body: Option<&Value>,
    ) -> Result<Response<RecvStream>, h2::Error> {
        let request = request.body(()).unwrap();
        let mut sender = self.0.clone().ready().await?;
        let (response, mut stream) = sender.send_request(request, body.is_none())?;
        if let Some(body) = body {
            stream.send_data(body.to_string().into(), true)?;
        }
        timeout(LIMIT, response).await.unwrap()
    }

    async fn get(&self, path: &str) -> Result<Response<RecvStream>, h2::Error> {
        self.send(Request::get(format!("http://localhost{path}")), None).await
    }

    async fn as_alice(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Response<RecvStream> {
        let request = Request::builder().method(method).uri(format!("http://localhost{path}"));
        let request = request
            .header("authorization", "Bearer alpha-alice")
            .header("accept", "text/event-stream, application/json");
        self.send(request, body).await.unwrap()
    }
}

fn hasty() -> Options {
    Options {
        head_timeout: Duration::from_secs(2),
        write_timeout: Duration::from_secs(2),
        connection_grace: Duration::from_millis(500),
        ..Options::default()
    }
}

async fn status(rig: &Rig, member: &str) -> u64 {
    let status = rig.alice().get("/api/v1/status").await.unwrap().ok().unwrap();
    status[member].as_u64().unwrap()
}

#[tokio::test]
async fn responses_without_a_token_that_are_not_taken_are_few_and_end_with_their_connection() {
    let rig = Rig::with(hasty()).await;
    let (closed, connection) = Requests::open(&rig).await;
    let mut held = Vec::new();
    for _ in 0..ANONYMOUS {
        let response = closed.get("/connect/openapi.json").await.unwrap();
        assert_eq!(response.status(), 200);
        held.push(response);
    }
    let refused = closed.get("/connect/openapi.json").await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert!(refused.body().is_end_stream(), "what is refused waits for no window");
    // Requests with a token are served on the same connection.
    assert_eq!(closed.as_alice(Method::GET, "/api/v1/status", None).await.status(), 200);
    connection.wait_for_end().await;

    // Without such a request too, and even if the client keeps sending requests.
    let (closed, connection) = Requests::open(&rig).await;
    let mut asked = 0;
    let asking = async {
        while let Ok(response) = closed.get("/connect/openapi.json").await {
            held.push(response);
            asked += 1;
        }
    };
    timeout(LIMIT, asking).await.expect("the server takes no more requests there");
    assert!(asked >= ANONYMOUS, "{asked}");
    connection.wait_for_end().await;
    // The last connection is the one that requests the status.
    let alone = async || (status(&rig, "connections").await == 1).then_some(());
    until("the connections to be gone", LIMIT, alone).await.unwrap();
    let metrics = rig.alice().get("/metrics").await.unwrap();
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    let stalled = |line: &str| {
        line.strip_prefix("trilogue_http_stalled_responses_total ")?.parse::<usize>().ok()
    };
    assert!(metrics.lines().find_map(stalled).unwrap() >= ANONYMOUS, "{metrics}");
}

#[tokio::test]
async fn event_streams_that_take_nothing_are_let_go_and_disturb_no_other_request() {
    let rig = Rig::with(hasty()).await;
    rig.run_on("t", "count 200").await;
    let (closed, connection) = Requests::open(&rig).await;
    // A slow request, on the same connection.
    let body =
        json!({"agent": "puppet", "input": "sleep", "thread_id": "s", "create_thread": true});
    let slow = closed.clone();
    let waiting =
        tokio::spawn(async move { slow.as_alice(Method::POST, "/api/v1/runs", Some(&body)).await });
    let mut held = Vec::new();
    for _ in 0..3 {
        let response = closed.as_alice(Method::GET, "/api/v1/threads/t/events", None).await;
        assert_eq!(response.status(), 200);
        held.push(response);
    }
    assert_eq!(status(&rig, "streams").await, 3);
    let let_go = async || (status(&rig, "streams").await == 0).then_some(());
    until("the streams to be let go", LIMIT, let_go).await.unwrap();
    // A connection that only carries such a stream ends, so its grace period is over. The first connection stays open.
    let (other, ends) = Requests::open(&rig).await;
    let response = other.as_alice(Method::GET, "/api/v1/threads/t/events", None).await;
    ends.wait_for_end().await;
    drop(response);
    let runs = rig.alice().get("/api/v1/runs?thread_id=s").await.unwrap().ok().unwrap();
    let path = format!("/api/v1/runs/{}/cancel", text(&runs, "/items/0/id"));
    rig.alice().post(&path, &json!({})).await.unwrap().ok().unwrap();
    assert_eq!(waiting.await.unwrap().status(), 200);
    drop(held);
    connection.wait_for_end().await;
}

#[tokio::test]
async fn a_connection_gets_goaway_when_the_server_begins_to_stop() {
    let rig = Rig::start().await;
    let body = json!({"agent": "puppet", "input": "sleep", "mode": "async"});
    let run = rig.alice().post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let stream = TcpStream::connect(rig.address).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = Connection(tokio::spawn(connection));
    let request = Request::get("http://localhost/healthz").body(()).unwrap();
    let (response, _) = sender.send_request(request, true).unwrap();
    assert_eq!(timeout(LIMIT, response).await.unwrap().unwrap().status(), 200);

    let client = rig.alice();
    let stopping = tokio::spawn(rig.server.shutdown(LIMIT));
    // The run is still running, so only GOAWAY can end the connection.
    connection.wait_for_end().await;
    assert!(sender.ready().await.is_err(), "it takes further requests");
    assert!(!stopping.is_finished());
    let cancel = format!("/api/v1/runs/{}/cancel", text(&run, "/id"));
    assert_eq!(client.post(&cancel, &json!({})).await.unwrap().status, 200);
    timeout(LIMIT, stopping).await.unwrap().unwrap();
}
