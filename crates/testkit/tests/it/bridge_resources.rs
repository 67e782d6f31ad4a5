//! Content that the server of an agent only refers to: it is kept here, and outlives that server.

use serde_json::{Value, json};
use trilogue_testkit::{Client, Folder};

use crate::bridge_communication::{behind, start_with};
use crate::kill_rounds::stop;
use crate::run_of;

/// Longer than what a server writes into its log itself, and than what it sends inside an event.
const LENGTH: usize = 300_000;

/// Every member of this name, wherever it is.
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

/// The bytes behind the first reference to content in an answer.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_content_of_an_agent_elsewhere_outlives_its_server() {
    let (here, there) = (Folder::new().unwrap(), Folder::new().unwrap());
    let far = start_with(&there, String::new()).await;
    let token = here.path().join("token");
    std::fs::write(&token, far.token()).unwrap();
    let address = far.home().address();
    let settings = |kind: &str, name: &str, path: &str| {
        let url = format!("http://{address}/{path}");
        let behind = behind(kind, &url, &[name]).replace("agents.far_", &format!("agents.{path}_"));
        format!("{}\ntoken_file = {token:?}\n\n", behind.trim_end())
    };
    let agents = settings("agent-communication", "echo", "communication")
        + &settings("agent-connect", "echo", "connect");
    let server = start_with(&here, agents).await;
    let client = server.client();
    let text: String = "All of it. ".chars().cycle().take(LENGTH).collect();
    let parts = json!([{ "content_type": "text/plain", "name": "notes.txt", "content": text }]);
    let input = json!([{ "role": "user", "parts": parts }]);
    for agent in ["communication_echo", "connect_echo"] {
        let body = run_of(agent, agent, &input, "wait");
        let run = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
        assert_eq!(run["status"], "completed", "{agent}");
    }
    stop(far).await;
    for agent in ["communication_echo", "connect_echo"] {
        let messages = format!("/api/v1/threads/{agent}/messages");
        let messages = client.get(&messages).await.unwrap().ok().unwrap();
        let answers: Vec<_> = messages["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|it| it["role"] != "user")
            .collect();
        assert_eq!(
            answers.len(),
            1,
            "{agent}: {}",
            messages.to_string().chars().take(3_000).collect::<String>()
        );
        let kept = content(&client, answers[0]).await;
        let begin = String::from_utf8_lossy(kept.get(..200).unwrap_or(&kept)).into_owned();
        assert!(kept == text.as_bytes(), "{agent}: {} bytes, {begin}", kept.len());
    }
    stop(server).await;
}
