//! A server in front of agents behind another server, and the tests that hold for every protocol of that server.

use std::time::Duration;

use serde_json::{Value, json};
use trilogue_testkit::foreign::{Conformance, ConformanceOptions};
use trilogue_testkit::{Client, Folder, Server, ServerOptions, until};

use crate::kill_rounds::stop;
use crate::{events, run_of};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);
const KINDS: [&str; 2] = ["agent-communication", "agent-connect"];

/// The agents that the official suites expect, behind a server that speaks the protocol of this kind of agents.
pub(crate) struct Bridge {
    pub(crate) server: Server,
    pub(crate) far: Conformance,
    folders: [Folder; 2],
}

// === impl Bridge ===

impl Bridge {
    pub(crate) async fn start(kind: &str) -> Self {
        Self::with_store(kind, "memory:").await
    }

    /// The other server keeps its runs in this store.
    pub(crate) async fn with_store(kind: &str, store: &str) -> Self {
        let folders = [Folder::new().unwrap(), Folder::new().unwrap()];
        let mut agents =
            vec!["echo", "slow_echo", "awaiter", "mime_types", "failer", "history_echo"];
        let options = match kind {
            "agent-connect" => {
                agents.extend(["counter", "org.agntcy.echo"]);
                ConformanceOptions::connect(store, "/connect")
            }
            _ => ConformanceOptions::communication(store, "/comm/v0"),
        };
        let far = Conformance::start(folders[1].path(), options).await.unwrap();
        let server = start_with(&folders[0], bridge_settings(kind, &far.url(), &agents)).await;
        Self { server, far, folders }
    }

    pub(crate) fn client(&self) -> Client {
        self.server.client()
    }

    /// Kills the server in front and starts it again.
    pub(crate) async fn restart(self) -> Self {
        self.restart_with(|_| {}).await
    }

    /// The same, and does something with the other server in between.
    pub(crate) async fn restart_with(self, change: impl FnOnce(&Conformance)) -> Self {
        let home = self.server.kill().await.unwrap();
        change(&self.far);
        Self { server: home.start().await.unwrap(), ..self }
    }

    /// Starts the other server again after it was killed.
    pub(crate) async fn start_far_again(self) -> Self {
        Self { far: self.far.start_again().await.unwrap(), ..self }
    }

    /// The runs at the other server, narrowed by a query.
    pub(crate) async fn far_runs(&self, query: &str) -> Vec<Value> {
        let path = format!("/api/v1/runs{query}");
        let list = self.far.client().get(&path).await.unwrap().ok().unwrap();
        list["items"].as_array().unwrap().clone()
    }

    pub(crate) async fn stop(self) {
        stop(self.server).await;
        drop((self.far, self.folders));
    }
}

/// The settings of agents of this kind, which another server has under these names.
pub(crate) fn bridge_settings(kind: &str, url: &str, agents: &[&str]) -> String {
    let key = if kind == "agent-connect" { "agent" } else { "name" };
    let agent = |name: &&str| {
        let here = name.replace('.', "_");
        format!("[agents.far_{here}]\nkind = \"{kind}\"\nurl = \"{url}\"\n{key} = \"{name}\"\n\n")
    };
    agents.iter().map(agent).collect()
}

pub(crate) async fn start_with(dir: &Folder, settings: String) -> Server {
    let options = ServerOptions { settings, ..ServerOptions::default() };
    Server::start(dir.path(), &options).await.unwrap()
}

pub(crate) fn message(text: &str) -> Value {
    json!({ "role": "user", "parts": [{ "content_type": "text/plain", "content": text }] })
}

pub(crate) fn texts(run: &Value) -> Vec<String> {
    let output = run["output"].as_array().cloned().unwrap_or_default();
    let text = |message: &Value| {
        let parts = message["parts"].as_array().cloned().unwrap_or_default();
        parts.iter().filter_map(|part| part["content"].as_str().map(str::to_owned)).collect()
    };
    output.iter().map(text).collect()
}

pub(crate) async fn communicate(client: &Client, agent: &str, input: Value) -> Value {
    let body = json!({ "agent_name": agent, "input": input, "mode": "sync" });
    client.post("/communication/runs", &body).await.unwrap().ok().unwrap()
}

pub(crate) async fn status_of(client: &Client, run: &str) -> Value {
    client.get(&format!("/communication/runs/{run}")).await.unwrap().ok().unwrap()
}

pub(crate) async fn run(client: &Client, agent: &str, thread: &str, input: Value) -> Value {
    let body = run_of(agent, thread, &input, "wait");
    client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap()
}

pub(crate) async fn wait_for_end(client: &Client, run: &str) -> Value {
    until("the run to end", LIMIT, || async {
        let run = client.get(&format!("/api/v1/runs/{run}")).await.unwrap().ok().unwrap();
        (run["ended_at"] != Value::Null).then_some(run)
    })
    .await
    .unwrap()
}

/// The id of the pending question, if there is one.
pub(crate) async fn pending_question(client: &Client) -> Option<String> {
    let pending = client.get("/api/v1/interrupts?pending=true").await.ok()?.json();
    pending["items"][0]["id"].as_str().map(str::to_owned)
}

/// Answers the pending question.
pub(crate) async fn answer(client: &Client, answer: &Value) {
    let question = pending_question(client).await.unwrap();
    let path = format!("/api/v1/interrupts/{question}/answer");
    client.post(&path, answer).await.unwrap().ok().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_elsewhere_answers_as_if_it_were_here() {
    for kind in KINDS {
        let bridge = Bridge::start(kind).await;
        let client = bridge.client();
        let run = communicate(&client, "far_echo", json!([message("Howdy!")])).await;
        assert_eq!(
            (run["status"].as_str(), texts(&run)),
            (Some("completed"), vec!["Howdy!".to_owned()])
        );
        assert_eq!(run["output"][0]["role"], "agent/far_echo");
        let body = json!({ "agent_id": "far_echo", "input": { "message": "Hello" } });
        let waited = client.post("/connect/runs/wait", &body).await.unwrap().ok().unwrap();
        assert_eq!(waited["output"]["values"]["message"], "Hello", "{waited}");
        let run = communicate(&client, "far_failer", json!([message("x")])).await;
        assert_eq!(run["status"], "failed");
        bridge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_elsewhere_goes_on_with_its_thread() {
    for kind in KINDS {
        let bridge = Bridge::start(kind).await;
        let client = bridge.client();
        // A local agent began the thread: its messages are passed to the other one.
        run(&client, "echo", "talk", json!("one")).await;
        run(&client, "far_history_echo", "talk", json!("two")).await;
        let third = run(&client, "far_history_echo", "talk", json!("three")).await;
        let said = third.to_string();
        for text in ["one", "two", "three"] {
            assert!(said.contains(text), "{kind}: {text}: {said}");
        }
        let runs = bridge.far_runs("").await;
        assert_eq!(runs.len(), 2, "{kind}: {runs:?}");
        assert_eq!(runs[0]["thread_id"], runs[1]["thread_id"], "{kind}: {runs:?}");
        bridge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_asked_for_and_given_after_a_restart_and_the_conversation_goes_on() {
    let parts = json!([{ "content_type": "text/plain", "content": "go on" }]);
    for (kind, given) in
        KINDS.into_iter().zip([json!({ "message": parts }), json!({ "text": "go on" })])
    {
        let bridge = Bridge::start(kind).await;
        let waiting = communicate(&bridge.client(), "far_awaiter", json!([message("x")])).await;
        assert_eq!(waiting["status"], "awaiting", "{waiting}");
        let bridge = bridge.restart().await;
        let client = bridge.client();
        answer(&client, &given).await;
        let run = waiting["run_id"].as_str().unwrap();
        wait_for_end(&client, run).await;
        let ended = status_of(&client, run).await;
        assert_eq!(ended["status"], "completed", "{ended}");
        assert!(!texts(&ended).is_empty());
        // The agent has seen that run, which continued after the restart, so it does not get it again.
        let body = json!({
            "agent_name": "far_awaiter", "session_id": waiting["session_id"], "input": [message("y")],
            "mode": "sync",
        });
        client.post("/communication/runs", &body).await.unwrap().ok().unwrap();
        let runs = bridge.far_runs("").await;
        assert_eq!(runs.len(), 2, "{kind}: {runs:?}");
        assert_eq!(runs[0]["thread_id"], runs[1]["thread_id"], "{kind}: {runs:?}");
        let thread = runs[0]["thread_id"].as_str().unwrap();
        let heard = events(&bridge.far.client(), thread).await.unwrap();
        let heard = heard.iter().filter(|event| event["part"]["content"] == "x").count();
        assert_eq!(heard, 1, "{kind}: the agent was told again what it knows");
        bridge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cancels_here_cancels_there() {
    for kind in KINDS {
        let bridge = Bridge::start(kind).await;
        let client = bridge.client();
        let waiting = communicate(&client, "far_awaiter", json!([message("x")])).await;
        let many: Vec<Value> = (0..60).map(|number| message(&format!("{number}"))).collect();
        let body = json!({ "agent_name": "far_slow_echo", "input": many, "mode": "async" });
        let busy = client.post("/communication/runs", &body).await.unwrap().ok().unwrap();
        let count = async |status: &str| bridge.far_runs(&format!("?status={status}")).await.len();
        until("both runs to be there", LIMIT, || async {
            ((count("interrupted").await, count("running").await) == (1, 1)).then_some(())
        })
        .await
        .unwrap();
        for run in [&waiting, &busy] {
            let path = format!("/communication/runs/{}/cancel", run["run_id"].as_str().unwrap());
            client.post(&path, &json!({})).await.unwrap().ok().unwrap();
        }
        until("both runs to be cancelled", LIMIT, || async {
            (count("cancelled").await == 2).then_some(())
        })
        .await
        .unwrap();
        bridge.stop().await;
    }
}

/// The server is killed while the agent works elsewhere: it finds the run again, and no event is lost, doubled or reordered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_elsewhere_outlives_the_server_here() {
    for kind in KINDS {
        let bridge = Bridge::start(kind).await;
        let client = bridge.client();
        let said: Vec<String> = (0..6).map(|number| format!("word {number}")).collect();
        let input: Vec<Value> = said.iter().map(|text| message(text)).collect();
        let body = json!({ "agent_name": "far_slow_echo", "input": input, "mode": "async" });
        let run = client.post("/communication/runs", &body).await.unwrap().ok().unwrap();
        let run = run["run_id"].as_str().unwrap().to_owned();
        until("words to come", LIMIT, || async {
            (texts(&status_of(&client, &run).await).len() >= 2).then_some(())
        })
        .await
        .unwrap();
        let bridge = bridge.restart().await;
        let client = bridge.client();
        wait_for_end(&client, &run).await;
        let ended = status_of(&client, &run).await;
        assert_eq!((ended["status"].as_str(), texts(&ended)), (Some("completed"), said), "{ended}");
        let log = events(&client, ended["session_id"].as_str().unwrap()).await.unwrap();
        let numbers: Vec<u64> = log.iter().filter_map(|event| event["number"].as_u64()).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{kind}: {numbers:?}");
        let runs = bridge.far_runs("").await;
        assert_eq!(runs.len(), 1, "{kind}: the run was begun twice: {runs:?}");
        bridge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_out_of_reach_or_unknown_fails_its_runs_and_no_others() {
    for kind in KINDS {
        let (bridge, dir) = (Bridge::start(kind).await, Folder::new().unwrap());
        let settings = bridge_settings(kind, "http://127.0.0.1:9", &["echo"])
            + &bridge_settings(kind, &bridge.far.url(), &["nobody"]);
        let server = start_with(&dir, settings).await;
        let client = server.client();
        for (agent, code) in [("far_echo", "peer_unavailable"), ("far_nobody", "agent_not_found")] {
            let failed = run(&client, agent, agent, json!("x")).await;
            assert_eq!(failed["outcome"]["error"]["code"], code, "{kind}: {failed}");
            let failed = communicate(&client, agent, json!([message("x")])).await;
            assert_eq!(
                (failed["status"].as_str(), failed["error"]["data"]["reason"].as_str()),
                (Some("failed"), Some(code)),
                "{kind}: {failed}"
            );
        }
        assert_eq!(run(&client, "echo", "near", json!("x")).await["status"], "completed");
        stop(server).await;
        bridge.stop().await;
    }
}
