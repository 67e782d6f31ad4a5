//! A client of the Agent Client Protocol whose next request reaches another node.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_sdk::agent_client::network::AgentUrl;
use trilogue_sdk::agent_client::{
    Client, Message, Messages, Options, RejectAll, SessionOptions, Speaker,
};
use trilogue_testkit::Reply;

use crate::cluster::Cluster;

const AGENT: &str = "/client/researcher";
const CWD: &str = "/w";
const JSON: (&str, &str) = ("content-type", "application/json");

/// Posts a message.
async fn post(
    client: &trilogue_testkit::Client,
    connection: &[(&str, &str)],
    message: &Value,
) -> Reply {
    let headers = [&[JSON], connection].concat();
    client.send(Method::POST, AGENT, &headers, Bytes::from(message.to_string())).await.unwrap()
}

/// A connection belongs to one node. Another node says so, and has the whole session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_asks_to_load_the_session() {
    let cluster = Cluster::start("").await.unwrap();
    let clients = cluster.clients();
    let (here, there) = (&clients[0], &clients[1]);
    let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let begun = post(here, &[], &initialize).await;
    assert_eq!(begun.status, 200, "{begun:?}");
    let connection = begun.headers["acp-connection-id"].to_str().unwrap().to_owned();
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "session/list", "params": {}});
    let named = [("acp-connection-id", connection.as_str())];
    assert_eq!(post(here, &named, &list).await.status, 202);
    let refused = post(there, &named, &list).await;
    assert_eq!((refused.status, &*refused.code()), (404, "not_found"));
    let hint = refused.json()["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains("initialize") && hint.contains("load"), "{hint}");

    // A turn on one node, and the session on the other.
    let open = async |node: usize| {
        let url = format!("http://{}{AGENT}", cluster.address(node));
        let url = AgentUrl::parse(&url).unwrap().token(cluster.token());
        Client::open(&url, RejectAll, Options::default()).await.unwrap()
    };
    let (first, second) = (open(0).await, open(1).await);
    let session = first.new_session(SessionOptions::new(CWD)).await.unwrap();
    let (_, messages) = session.prompt("what is a log?").await.unwrap().collect().await.unwrap();
    let mut replay = second.load_session(session.id(), SessionOptions::new(CWD)).await.unwrap();
    let mut replayed = Messages::default();
    while let Some(update) = replay.next().await.unwrap() {
        replayed.push(&update);
    }
    assert!(!agent_texts(&messages).is_empty());
    assert_eq!(agent_texts(&messages), agent_texts(&replayed));
    let session = replay.finish().await.unwrap();
    session.prompt("and now?").await.unwrap().finish().await.unwrap();
    cluster.stop().await.unwrap();
}

fn agent_texts(messages: &Messages) -> Vec<String> {
    let of_agent = messages.as_slice().iter().filter(|message| message.speaker != Speaker::User);
    of_agent.map(Message::text).collect()
}
