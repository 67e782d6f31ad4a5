//! Faults between this server and another one: the run ends in the state that this server can know, the log has each message once, and the thread stays usable.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use trilogue_testkit::faulty_server::{FaultyServer, ServerFault};
use trilogue_testkit::foreign::ForeignServer;
use trilogue_testkit::{Client, Folder, Server, until};

use crate::bridge::{bridge_settings, start_with};
use crate::kill_rounds::stop;
use crate::{events, run_of};

/// The time limit for a run whose server does not come back.
const LIMIT: Duration = Duration::from_secs(90);
const ANSWER: &str = "Howdy, partner!";

/// Starts a server in front of one agent, which it serves as `far_NAME`.
async fn start_bridge(dir: &Folder, url: &str, name: &str) -> Server {
    start_with(dir, bridge_settings("agent-communication", url, &[name])).await
}

async fn begin(client: &Client, agent: &str, thread: &str, prompt: &str) -> String {
    let body = run_of(agent, thread, &json!(prompt), "async");
    client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

async fn status_of(client: &Client, run: &str) -> Value {
    client.get(&format!("/api/v1/runs/{run}")).await.unwrap().ok().unwrap()
}

/// Waits until the run has this status or has ended, and returns it.
async fn wait_for_status(client: &Client, run: &str, status: &str) -> Value {
    let ended = ["completed", "failed", "cancelled", "timed_out"];
    until(&format!("the run to be {status}"), LIMIT, || async {
        let run = status_of(client, run).await;
        let now = run["status"].as_str().unwrap_or_default();
        (now == status || ended.contains(&now)).then_some(run)
    })
    .await
    .unwrap()
}

/// The agent's text in a run, from its log.
async fn agent_text(client: &Client, thread: &str, run: &str) -> String {
    let mut text = String::new();
    for event in events(client, thread).await.unwrap() {
        let is_of_agent = event["run_id"] == run && event["type"] == "message.delta";
        if let Some(piece) = event["text"].as_str().filter(|_| is_of_agent) {
            text.push_str(piece);
        }
    }
    text
}

/// Plays a fault on a separate thread, then a run without a fault.
async fn play(
    client: Client,
    far: Arc<FaultyServer>,
    fault: ServerFault,
) -> (ServerFault, Value, String) {
    let thread = format!("thread-{fault:?}");
    let run = begin(&client, "far_faulty", &thread, &fault.prompt()).await;
    match fault {
        ServerFault::Stall | ServerFault::Break | ServerFault::Amnesia => {
            until("its first words", LIMIT, || async {
                (!agent_text(&client, &thread, &run).await.is_empty()).then_some(())
            })
            .await
            .unwrap();
            if fault == ServerFault::Stall {
                client.post(&format!("/api/v1/runs/{run}/cancel"), &json!({})).await.unwrap();
            } else {
                far.break_connections();
            }
        }
        ServerFault::ResumeFails => {
            wait_for_status(&client, &run, "interrupted").await;
            let answer = json!({ "message": [{ "content_type": "text/plain", "content": "go" }] });
            let path = format!("/api/v1/runs/{run}/answer");
            client.post(&path, &answer).await.unwrap().ok().unwrap();
        }
        _ => {}
    }
    let ended = wait_for_status(&client, &run, "completed").await;
    let words = agent_text(&client, &thread, &run).await;
    let next = begin(&client, "far_faulty", &thread, &ServerFault::None.prompt()).await;
    let after = wait_for_status(&client, &next, "completed").await;
    assert_eq!(after["status"], "completed", "after {fault:?}: {after}");
    assert_eq!(agent_text(&client, &thread, &next).await, ANSWER, "after {fault:?}");
    let all = events(&client, &thread).await.unwrap();
    let numbers: Vec<u64> = all.iter().filter_map(|event| event["number"].as_u64()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{fault:?}: {numbers:?}");
    (fault, ended, words)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_ends_one_run_and_harms_nothing_else() {
    let dir = Folder::new().unwrap();
    let far = Arc::new(FaultyServer::start().await.unwrap());
    let server = start_bridge(&dir, &far.url(), "faulty").await;
    let mut players = JoinSet::new();
    for fault in ServerFault::ALL {
        players.spawn(play(server.client(), Arc::clone(&far), fault));
    }
    while let Some(player) = players.join_next().await {
        let (fault, run, words) = player.unwrap();
        let code = run["outcome"]["error"]["code"].as_str();
        let ended = (run["status"].as_str().unwrap(), code, &*words);
        let (begun, cancelled) = far.count(fault);
        // A run that cannot be followed to its end is cancelled on the other server, if its id is known.
        let (expected, is_cancelled) = match fault {
            ServerFault::None
            | ServerFault::Break
            | ServerFault::Duplicates
            | ServerFault::Disorder
            | ServerFault::UnknownEvent
            | ServerFault::SameId => (("completed", None, ANSWER), false),
            ServerFault::Stall => (("cancelled", None, "Howdy, "), true),
            ServerFault::Amnesia => (("failed", Some("agent_lost"), "Howdy, "), true),
            ServerFault::Garbage => (("failed", Some("protocol_violation"), ""), true),
            ServerFault::ResumeFails => (("failed", Some("agent_lost"), ""), true),
            ServerFault::Oversize => (("failed", Some("agent_failed"), ""), true),
            ServerFault::ErrorEvent => (("failed", Some("invalid_input"), ""), true),
            ServerFault::BeginFails => (("failed", Some("agent_lost"), ""), false),
            ServerFault::Page | ServerFault::Empty => {
                (("failed", Some("protocol_violation"), ""), false)
            }
        };
        assert_eq!(ended, expected, "{fault:?}: {run}");
        // Only a failure that a retry can mend is transient.
        let is_transient = run["outcome"]["error"]["transient"].as_bool().unwrap_or_default();
        assert_eq!(is_transient, code == Some("agent_lost"), "{fault:?}: {run}");
        assert_eq!(cancelled > 0, is_cancelled, "{fault:?}");
        // The request was sent exactly once, since the other server may have accepted it.
        assert!(begun == 1 || fault == ServerFault::None, "{fault:?}: {begun}");
    }
    stop(server).await;
}

/// The other server is killed while its agent works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_loses_its_run_and_no_word() {
    let dir = Folder::new().unwrap();
    let far = ForeignServer::communication().await.unwrap();
    let server = start_bridge(&dir, &far.url(), "words").await;
    let client = server.client();
    let run = begin(&client, "far_words", "t", "slow").await;
    until("some words", LIMIT, || async {
        (agent_text(&client, "t", &run).await.len() > 20).then_some(())
    })
    .await
    .unwrap();
    let far = far.kill().await.unwrap();
    let ended = wait_for_status(&client, &run, "failed").await;
    assert_eq!(ended["outcome"]["error"]["code"], "agent_lost", "{ended}");
    assert!(ended["outcome"]["error"]["data"]["run_id"].is_string(), "{ended}");
    let words = agent_text(&client, "t", &run).await;
    assert!(words.split_whitespace().all(|word| word == "tick"), "{words}");
    // It starts again with an empty memory, at the same address. Runs are refused until this server notices.
    let _far = far.start_again().await.unwrap();
    let next = until("the agent to be back", LIMIT, || async {
        let run = begin(&client, "far_words", "t", "say:back").await;
        let ended = wait_for_status(&client, &run, "completed").await;
        if ended["status"] == "completed" {
            return Some(run);
        }
        assert_eq!(ended["outcome"]["error"]["code"], "peer_unavailable", "{ended}");
        None
    });
    assert_eq!(agent_text(&client, "t", &next.await.unwrap()).await, "back");
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_s_id_that_is_taken_is_replaced_and_every_message_is_found() {
    let dir = Folder::new().unwrap();
    let far = FaultyServer::start().await.unwrap();
    let server = start_bridge(&dir, &far.url(), "faulty").await;
    let client = server.client();
    let thread = "00000000-0000-4000-8000-00000000000a";
    for _ in 0..2 {
        let run = begin(&client, "far_faulty", thread, &ServerFault::SameId.prompt()).await;
        wait_for_status(&client, &run, "completed").await;
    }
    let session = client.get(&format!("/communication/sessions/{thread}")).await.unwrap();
    let session = session.ok().unwrap();
    let mut said = Vec::new();
    for address in session["history"].as_array().unwrap() {
        let (_, path) = address.as_str().unwrap().split_once("/communication").unwrap();
        let message = client.get(&format!("/communication{path}")).await.unwrap().ok().unwrap();
        said.push(message["parts"][0]["content"].as_str().unwrap().to_owned());
    }
    let turn = ["SameId", "Howdy, ", "partner!"];
    assert_eq!(said, [turn, turn].concat(), "{session}");
    // The agent's own id finds the first message with it.
    let path = format!("/api/v1/threads/{thread}/events?from_message=m-1&limit=2");
    let found = client.get(&path).await.unwrap().ok().unwrap();
    assert_eq!(found["items"][1]["text"], "Howdy, ", "{found}");
    stop(server).await;
}
