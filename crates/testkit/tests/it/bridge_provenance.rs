//! The provenance of a run that a server sends to the server behind it, and loops of servers.

use std::fs;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::json;
use trilogue_testkit::limited_server::{LimitedFeatures, LimitedServer};
use trilogue_testkit::{Client, Folder, Home, Server, ServerOptions};

use crate::bridge::{bridge_settings, communicate, message, start_with};
use crate::kill_rounds::stop;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The header fields of the last request that created a run on the other server.
fn last(far: &LimitedServer) -> HeaderMap {
    far.requests().pop().unwrap().1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trace_of_a_request_goes_on_to_the_agents_server() {
    let dir = Folder::new().unwrap();
    let far = LimitedServer::start(LimitedFeatures::of(&["one"], &["sync"])).await.unwrap();
    let server =
        start_with(&dir, bridge_settings("agent-communication", &far.url(), &["one"])).await;
    let client = server.client();

    let parts = [
        ("/communication/runs", json!({ "agent_name": "far_one", "input": [message("x")] })),
        (
            "/connect/runs/wait",
            json!({ "agent_id": "far_one", "input": { "messages": [{ "role": "human", "content": "x" }] } }),
        ),
        ("/api/v1/runs", json!({ "agent": "far_one", "input": "x", "mode": "wait" })),
    ];
    for (path, body) in parts {
        let body = Bytes::from(body.to_string());
        let headers = [("traceparent", TRACE)];
        let reply = client.send(Method::POST, path, &headers, body).await.unwrap();
        assert_eq!(reply.status, 200, "{path}: {:?}", reply.body);
        let headers = last(&far);
        assert_eq!(headers["traceparent"], TRACE, "{path}");
        // Only the server's name, not the agent's.
        let via = headers["trilogue-via"].to_str().unwrap();
        assert!(uuid::Uuid::parse_str(via).is_ok(), "{via}");
    }
    communicate(&client, "far_one", json!([message("x")])).await;
    assert!(!last(&far).contains_key("traceparent"));
    stop(server).await;
}

fn add(home: &Home, settings: &str) {
    let path = home.dir().join("trilogue.toml");
    let known = fs::read_to_string(&path).unwrap();
    fs::write(&path, known + settings).unwrap();
}

/// The settings of an agent `looped`, which is the agent `looped` of the other server.
fn looped(kind: &str, key: &str, dir: &Folder, to: &Server) -> String {
    let token = dir.path().join("token");
    fs::write(&token, to.token()).unwrap();
    let address = to.home().address();
    let path = kind.trim_start_matches("agent-");
    format!(
        "[agents.looped]\nkind = \"{kind}\"\nurl = \"http://{address}/{path}\"\n{key} = \"looped\"\ntoken_file = {token:?}\n"
    )
}

async fn count(client: &Client) -> usize {
    let runs = client.get("/api/v1/runs").await.unwrap().ok().unwrap();
    runs["items"].as_array().unwrap().len()
}

/// Two servers each have an agent of the other one as their own. The server that gets the run back refuses it, and the run fails everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_of_servers_is_refused() {
    let (here, there) = (Folder::new().unwrap(), Folder::new().unwrap());
    let first = Server::start(here.path(), &ServerOptions::default()).await.unwrap();
    let second = start_with(&there, looped("agent-connect", "agent", &there, &first)).await;
    let settings = looped("agent-communication", "name", &here, &second);
    let (home, _) = first.stop().await.unwrap();
    add(&home, &settings);
    let first = home.start().await.unwrap();

    let run = communicate(&first.client(), "looped", json!([message("x")])).await;
    assert_eq!(run["status"], "failed", "{run}");
    let why = run["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("leads back to itself"), "{run}");
    assert_eq!((count(&first.client()).await, count(&second.client()).await), (1, 1));
    // The same path once is not a loop.
    let run = communicate(&second.client(), "echo", json!([message("x")])).await;
    assert_eq!(run["status"], "completed", "{run}");
    stop(first).await;
    stop(second).await;
}
