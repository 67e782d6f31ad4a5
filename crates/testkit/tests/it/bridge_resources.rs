//! Content that an agent's server only refers to: this server stores it, and serves it after that server has ended.

use serde_json::{Value, json};
use trilogue_testkit::{Client, Folder, Server};

use crate::bridge::{bridge_settings, start_with};
use crate::kill_rounds::stop;
use crate::run_of;

/// Longer than the content that a server stores in its log, and than the content that it sends inside an event.
const LENGTH: usize = 300_000;

/// Collects every member of this name, at any depth.
fn members<'a>(node: &'a Value, name: &str, found: &mut Vec<&'a str>) {
    match node {
        Value::Object(inner) => {
            found.extend(inner.get(name).and_then(Value::as_str));
            inner.values().for_each(|it| members(it, name, found));
        }
        Value::Array(items) => items.iter().for_each(|it| members(it, name, found)),
        _ => {}
    }
}

/// The bytes of the first referenced content in a response.
async fn content(client: &Client, answer: &Value) -> Vec<u8> {
    let mut addresses = Vec::new();
    members(answer, "url", &mut addresses);
    let Some(address) = addresses.first() else { panic!("{}", &answer.to_string()[..2_000]) };
    let address: http::Uri = address.parse().unwrap();
    let path = address.path();
    let reply = client.get(path).await.unwrap();
    assert_eq!(reply.status, 200, "{address}");
    reply.body.to_vec()
}

/// A server with the agent `echo`, and one in front of it with the first one's token: `communication_echo` and `connect_echo`.
async fn start_both(here: &Folder, there: &Folder) -> (Server, Server) {
    let far = start_with(there, String::new()).await;
    let token = here.path().join("token");
    std::fs::write(&token, far.token()).unwrap();
    let address = far.home().address();
    let settings = |kind: &str, name: &str, path: &str| {
        let url = format!("http://{address}/{path}");
        let behind =
            bridge_settings(kind, &url, &[name]).replace("agents.far_", &format!("agents.{path}_"));
        format!("{}\ntoken_file = {token:?}\n\n", behind.trim_end())
    };
    let agents = settings("agent-communication", "echo", "communication")
        + &settings("agent-connect", "echo", "connect");
    let server = start_with(here, agents).await;
    (far, server)
}

/// Runs an agent on a thread of its name and gives the agent's messages.
async fn answers(client: &Client, agent: &str, parts: &Value) -> Vec<Value> {
    let input = json!([{ "role": "user", "parts": parts }]);
    let run = client.post("/api/v1/runs", &run_of(agent, agent, &input, "wait")).await;
    let run = run.unwrap().ok().unwrap();
    assert_eq!(run["status"], "completed", "{agent}: {run}");
    let messages = client.get(&format!("/api/v1/threads/{agent}/messages")).await;
    let messages = messages.unwrap().ok().unwrap();
    let items = messages["items"].as_array().unwrap().iter();
    items.filter(|it| it["role"] != "user").cloned().collect()
}

fn large_text() -> Value {
    let text: String = "All of it. ".chars().cycle().take(LENGTH).collect();
    json!([{ "content_type": "text/plain", "name": "notes.txt", "content": text }])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_refers_to_is_not_fetched_with_the_credential_for_the_agents_server() {
    let (here, there) = (Folder::new().unwrap(), Folder::new().unwrap());
    let (far, server) = start_both(&here, &there).await;
    let private = answers(&far.client(), "echo", &large_text()).await;
    let mut links = Vec::new();
    members(&private[0], "url", &mut links);
    let blob = links[0].strip_prefix("/api/v1/threads/echo").unwrap();
    let origin = format!("http://{}", far.home().address());
    let references = [
        "/api/v1/threads".to_owned(),
        "/api/v1/threads/echo/messages".to_owned(),
        format!("/api/v1/threads/echo{blob}"),
        "/communication/runs".to_owned(),
        format!("/communication/sessions/echo{blob}"),
        format!("/connect/threads/echo{blob}"),
        "/connect/threads/echo/history".to_owned(),
    ]
    .map(|path| format!("{origin}{path}"));
    let part = |url| json!({ "content_type": "application/json", "content_url": url });
    let parts: Value = references.iter().map(part).collect();
    for agent in ["communication_echo", "connect_echo"] {
        let answers = answers(&server.client(), agent, &parts).await;
        let answers = Value::from(answers);
        let mut found = Vec::new();
        members(&answers, "content_url", &mut found);
        assert_eq!(found, references, "{agent}: {:.3000}", answers.to_string());
    }
    stop(server).await;
    stop(far).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_content_of_an_agent_elsewhere_outlives_its_server() {
    let (here, there) = (Folder::new().unwrap(), Folder::new().unwrap());
    let (far, server) = start_both(&here, &there).await;
    let mut said = Vec::new();
    for agent in ["communication_echo", "connect_echo"] {
        said.push((agent, answers(&server.client(), agent, &large_text()).await));
    }
    stop(far).await;
    let text = large_text();
    let text = text[0]["content"].as_str().unwrap();
    for (agent, answers) in said {
        assert_eq!(answers.len(), 1, "{agent}: {:.3000}", Value::from(answers).to_string());
        let kept = content(&server.client(), &answers[0]).await;
        let begin = String::from_utf8_lossy(kept.get(..200).unwrap_or(&kept)).into_owned();
        assert!(kept == text.as_bytes(), "{agent}: {} bytes, {begin}", kept.len());
    }
    stop(server).await;
}
