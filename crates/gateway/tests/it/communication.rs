//! The rig of the Agent Communication Protocol: a server with its agents, and requests like those of the protocol's clients.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;
use trilogue_egress::Policy;
use trilogue_gateway::{CommunicationOptions, Mount};
use trilogue_testkit::{Client, Reply, until};

use crate::communication_agents;
pub(crate) use crate::rig::kinds;
use crate::rig::{LIMIT, Rig, Setup, text};

pub(crate) const BASE: &str = "/communication";

pub(crate) fn mount(prefix: &str, strict: bool, require_interrupt_id: bool) -> Mount {
    Mount::new(CommunicationOptions { strict, require_interrupt_id }, prefix).unwrap()
}

pub(crate) async fn start() -> Rig {
    with(Setup::default()).await
}

/// A rig and its usual client.
pub(crate) async fn served() -> (Rig, Client) {
    let rig = start().await;
    let client = rig.alice();
    (rig, client)
}

pub(crate) async fn with(setup: impl Into<Setup>) -> Rig {
    Rig::of(Setup { agents: communication_agents::all(), ..setup.into() }).await
}

pub(crate) async fn on_disk() -> Rig {
    let agents = communication_agents::all();
    Rig::of(Setup { on_disk: true, agents, ..Setup::default() }).await
}

pub(crate) async fn both() -> Rig {
    let mounts = vec![mount(BASE, false, false), mount("/strict", true, false)];
    with(mounts).await
}

pub(crate) async fn outgoing() -> Rig {
    let agents = communication_agents::all();
    Rig::of(Setup { egress: Policy::local(), agents, ..Setup::default() }).await
}

pub(crate) fn user_input(content: &str) -> Value {
    json!([{"role": "user", "parts": [{"content": content, "content_type": "text/plain"}]}])
}

pub(crate) fn run_of(agent: &str, content: &str, mode: &str) -> Value {
    json!({"agent_name": agent, "input": user_input(content), "mode": mode})
}

pub(crate) fn answer(content: &str, mode: &str) -> Value {
    let message =
        json!({"role": "user", "parts": [{"content_type": "text/plain", "content": content}]});
    json!({"await_resume": {"type": "message", "message": message}, "mode": mode})
}

/// A message with these parts; a part without a type is text.
pub(crate) fn answer_of(mut parts: Value) -> Value {
    for part in parts.as_array_mut().unwrap() {
        part.as_object_mut().unwrap().entry("content_type").or_insert_with(|| "text/plain".into());
    }
    json!({"await_resume": {"message": {"role": "user", "parts": parts}}})
}

pub(crate) async fn get(client: &Client, path: &str) -> Reply {
    client.get(&format!("{BASE}{path}")).await.unwrap()
}

pub(crate) async fn post(client: &Client, path: &str, body: &Value) -> Reply {
    client.post(&format!("{BASE}{path}"), body).await.unwrap()
}

pub(crate) async fn run(client: &Client, agent: &str, content: &str) -> Value {
    post(client, "/runs", &run_of(agent, content, "sync")).await.ok().unwrap()
}

pub(crate) async fn run_in(client: &Client, session: &str, agent: &str, content: &str) -> Value {
    let mut body = run_of(agent, content, "sync");
    body["session_id"] = json!(session);
    post(client, "/runs", &body).await.ok().unwrap()
}

pub(crate) async fn begin(client: &Client, agent: &str) -> String {
    let reply = post(client, "/runs", &run_of(agent, "x", "async")).await;
    assert_eq!(reply.status, 202, "{}", reply.json());
    text(&reply.json(), "/run_id").to_owned()
}

pub(crate) async fn reach(client: &Client, run: &str, status: &str) -> Value {
    let look = async || {
        let run = get(client, &format!("/runs/{run}")).await.json();
        (run["status"] == status).then_some(run)
    };
    until(&format!("the run to be {status}"), LIMIT, look).await.unwrap()
}

pub(crate) async fn streamed(
    client: &Client,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Reply {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let sending = client.send(method, path, headers, body);
    let reply = timeout(LIMIT, sending).await.unwrap().unwrap();
    assert_eq!(reply.status, 200, "{}", reply.json());
    assert_eq!(reply.headers["content-type"], "text/event-stream; charset=utf-8");
    reply
}

/// The ids and data of a stream that has ended. Each of its events must have exactly one id line and one data line.
pub(crate) fn events(reply: &Reply) -> Vec<(String, Value)> {
    let text = std::str::from_utf8(&reply.body).unwrap();
    let blocks = text.split_terminator("\n\n");
    blocks
        .map(|block| {
            let (id, data) = block.split_once('\n').unwrap();
            let data = data.strip_prefix("data: ").unwrap();
            assert!(!data.contains('\n'), "{block}");
            let id = id.strip_prefix("id: ").unwrap();
            (id.to_owned(), serde_json::from_str(data).unwrap())
        })
        .collect()
}

pub(crate) async fn stream_of(client: &Client, run: &str) -> Vec<(String, Value)> {
    let path = format!("{BASE}/runs/{run}/events");
    let headers = [("accept", "text/event-stream")];
    events(&streamed(client, Method::GET, &path, &headers, &Value::Null).await)
}

pub(crate) fn last_text(run: &Value) -> &str {
    let output = run["output"].as_array().unwrap();
    text(output.last().unwrap(), "/parts/0/content")
}
