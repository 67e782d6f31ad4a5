//! Agents behind another server of the Agent Communication Protocol, used through this server's interfaces.

use std::time::Duration;

use serde_json::{Value, json};
use trilogue_testkit::foreign::{Conformance, ConformanceOptions};
use trilogue_testkit::scripted_server::ScriptedServer;
use trilogue_testkit::{Client, Folder, Home, Server, ServerOptions, until};

use crate::kill_rounds::stop;
use crate::{events, run_of};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

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

/// Starts a server in front of the agents that the official suites expect.
async fn start_bridge(dir: &Folder, far: &Conformance) -> Server {
    let agents = ["echo", "slow_echo", "awaiter", "mime_types", "failer", "history_echo"];
    start_with(dir, bridge_settings("agent-communication", &far.url(), &agents)).await
}

async fn start_remote(dir: &Folder) -> Conformance {
    let options = ConformanceOptions::communication("memory:", "/comm/v0");
    Conformance::start(dir.path(), options).await.unwrap()
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_elsewhere_answers_as_if_it_were_here() {
    let (here, there) = (Folder::new().unwrap(), Folder::new().unwrap());
    let far = start_remote(&there).await;
    let server = start_bridge(&here, &far).await;
    let client = server.client();

    let run = communicate(&client, "far_echo", json!([message("Howdy!")])).await;
    assert_eq!(
        (run["status"].as_str(), texts(&run)),
        (Some("completed"), vec!["Howdy!".to_owned()])
    );
    assert_eq!(run["output"][0]["role"], "agent/far_echo");

    let direct = json!({ "agent_name": "mime_types", "input": [message("x")], "mode": "sync" });
    let direct = far.client().post("/comm/v0/runs", &direct).await.unwrap().ok().unwrap();
    let run = communicate(&client, "far_mime_types", json!([message("x")])).await;
    let parts = |run: &Value| run["output"][0]["parts"].clone();
    assert!(parts(&direct).as_array().is_some_and(|parts| !parts.is_empty()));
    assert_eq!(parts(&run), parts(&direct));

    let run = communicate(&client, "far_failer", json!([message("x")])).await;
    assert_eq!(run["status"], "failed");

    let manifest = client.get("/communication/agents/far_echo").await.unwrap().ok().unwrap();
    let theirs = far.client().get("/comm/v0/agents/echo").await.unwrap().ok().unwrap();
    assert_eq!(manifest["description"], theirs["description"]);

    // The other protocol reaches the same agent.
    let body = json!({ "agent_id": "far_echo", "input": { "message": "Hello" } });
    let waited = client.post("/connect/runs/wait", &body).await.unwrap().ok().unwrap();
    assert_eq!(waited["output"]["values"]["message"], "Hello", "{waited}");
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_elsewhere_goes_on_with_its_thread() {
    let (here, there) = (Folder::new().unwrap(), Folder::new().unwrap());
    let far = start_remote(&there).await;
    let server = start_bridge(&here, &far).await;
    let client = server.client();
    let run = |agent: &'static str, text: &'static str| {
        let (client, body) = (client.clone(), run_of(agent, "talk", &json!(text), "wait"));
        async move { client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap() }
    };
    // A local agent began the session: its messages are passed to the other one.
    run("echo", "one").await;
    run("far_history_echo", "two").await;
    let third = run("far_history_echo", "three").await;
    let said = third.to_string();
    for text in ["one", "two", "three"] {
        assert!(said.contains(text), "{text}: {said}");
    }
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_asked_elsewhere_is_answered_from_another_protocol_after_a_restart() {
    let (here, there) = (Folder::new().unwrap(), Folder::new().unwrap());
    let far = start_remote(&there).await;
    let server = start_bridge(&here, &far).await;
    let waiting = communicate(&server.client(), "far_awaiter", json!([message("x")])).await;
    assert_eq!(waiting["status"], "awaiting", "{waiting}");
    let run = waiting["run_id"].as_str().unwrap().to_owned();

    let server = server.kill().await.unwrap().start().await.unwrap();
    let client = server.client();
    let pending = client.get("/api/v1/interrupts?pending=true").await.unwrap().ok().unwrap();
    let question = pending["items"][0]["id"].as_str().unwrap().to_owned();
    let answer = json!({ "message": [{ "content_type": "text/plain", "content": "go on" }] });
    let path = format!("/api/v1/interrupts/{question}/answer");
    client.post(&path, &answer).await.unwrap().ok().unwrap();
    let ended = until("the run to end", LIMIT, || async {
        let run = status_of(&client, &run).await;
        (run["status"] == "completed").then_some(run)
    });
    assert!(!texts(&ended.await.unwrap()).is_empty());
    stop(server).await;
}

/// The server is killed right after it has accepted an answer, before the other server has confirmed it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accepted_answer_outlives_the_server_that_passes_it_on() {
    let (here, there) = (Folder::new().unwrap(), Folder::new().unwrap());
    let far = start_remote(&there).await;
    let server = start_bridge(&here, &far).await;
    let client = server.client();
    let waiting = communicate(&client, "far_awaiter", json!([message("x")])).await;
    let run = waiting["run_id"].as_str().unwrap().to_owned();
    let pending = client.get("/api/v1/interrupts?pending=true").await.unwrap().ok().unwrap();
    let question = pending["items"][0]["id"].as_str().unwrap().to_owned();
    far.pause().unwrap();
    let answer = json!({ "message": [{ "content_type": "text/plain", "content": "go on" }] });
    let path = format!("/api/v1/interrupts/{question}/answer");
    client.post(&path, &answer).await.unwrap().ok().unwrap();
    let home = server.kill().await.unwrap();
    far.resume().unwrap();

    let server = home.start().await.unwrap();
    let client = server.client();
    let ended = until("the run to end", LIMIT, || async {
        // The question is open again if the answer did not reach the other server.
        let pending = client.get("/api/v1/interrupts?pending=true").await.ok()?.json();
        if let Some(question) = pending["items"][0]["id"].as_str() {
            let path = format!("/api/v1/interrupts/{question}/answer");
            client.post(&path, &answer).await.ok()?;
        }
        let run = status_of(&client, &run).await;
        (run["finished_at"] != Value::Null).then_some(run)
    })
    .await
    .unwrap();
    assert_eq!(ended["status"], "completed", "{ended}");
    stop(server).await;
}

/// The other server is down when its question is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_cannot_be_passed_on_is_asked_for_again() {
    let (here, there) = (Folder::new().unwrap(), Folder::new().unwrap());
    let options = ConformanceOptions::communication("sqlite:far.db", "/comm/v0");
    let mut far = Conformance::start(there.path(), options).await.unwrap();
    let server = start_bridge(&here, &far).await;
    let client = server.client();
    let waiting = communicate(&client, "far_awaiter", json!([message("x")])).await;
    let run = waiting["run_id"].as_str().unwrap().to_owned();
    let question = async |not: &str| {
        let page = client.get("/api/v1/interrupts?pending=true").await.ok()?.json();
        let id = page["items"][0]["id"].as_str().filter(|id| *id != not)?.to_owned();
        Some(id)
    };
    let answer = json!({ "message": [{ "content_type": "text/plain", "content": "go on" }] });
    let path = |question: &str| format!("/api/v1/interrupts/{question}/answer");
    let first = question("").await.unwrap();
    far.kill().await.unwrap();
    client.post(&path(&first), &answer).await.unwrap().ok().unwrap();
    let second = until("the question to be asked again", LIMIT, || question(&first)).await.unwrap();
    assert_eq!(status_of(&client, &run).await["status"], "awaiting");
    let _far = far.start_again().await.unwrap();
    client.post(&path(&second), &answer).await.unwrap().ok().unwrap();
    let ended = until("the run to end", LIMIT, || async {
        let run = status_of(&client, &run).await;
        (run["finished_at"] != Value::Null).then_some(run)
    })
    .await
    .unwrap();
    assert_eq!(ended["status"], "completed", "{ended}");
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cancels_here_cancels_there() {
    let (here, there) = (Folder::new().unwrap(), Folder::new().unwrap());
    let far = start_remote(&there).await;
    let server = start_bridge(&here, &far).await;
    let client = server.client();
    cancel_both(&client, async |is_at_work| {
        let far = far.client();
        let count = async |status: &str| {
            let path = format!("/comm/v0/runs?status={status}");
            let list = far.get(&path).await.unwrap().ok().unwrap();
            list["runs"].as_array().map_or(0, Vec::len)
        };
        match is_at_work {
            true => (count("awaiting").await, count("in-progress").await) == (1, 1),
            false => count("cancelled").await == 2,
        }
    })
    .await;
    stop(server).await;
}

/// Cancels a waiting run and a running one. `are_there(true)` checks that the other server has them in these states, `are_there(false)` that it has cancelled both.
pub(crate) async fn cancel_both(client: &Client, are_there: impl AsyncFn(bool) -> bool) {
    let waiting = communicate(client, "far_awaiter", json!([message("x")])).await;
    let many: Vec<Value> = (0..60).map(|number| message(&format!("{number}"))).collect();
    let body = json!({ "agent_name": "far_slow_echo", "input": many, "mode": "async" });
    let busy = client.post("/communication/runs", &body).await.unwrap().ok().unwrap();
    until("both runs to be there", LIMIT, || async { are_there(true).await.then_some(()) })
        .await
        .unwrap();
    for run in [&waiting, &busy] {
        let path = format!("/communication/runs/{}/cancel", run["run_id"].as_str().unwrap());
        client.post(&path, &json!({})).await.unwrap().ok().unwrap();
    }
    until("both runs to be cancelled", LIMIT, || async { are_there(false).await.then_some(()) })
        .await
        .unwrap();
}

/// The server is killed while the agent works elsewhere: it finds the run again, and no event is lost, doubled or reordered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_elsewhere_outlives_the_server_here() {
    let (here, there) = (Folder::new().unwrap(), Folder::new().unwrap());
    let far = start_remote(&there).await;
    let server = start_bridge(&here, &far).await;
    let said: Vec<String> = (0..6).map(|number| format!("word {number}")).collect();
    let input: Vec<Value> = said.iter().map(|text| message(text)).collect();
    let body = json!({ "agent_name": "far_slow_echo", "input": input, "mode": "async" });
    let run = server.client().post("/communication/runs", &body).await.unwrap().ok().unwrap();
    let run = run["run_id"].as_str().unwrap().to_owned();
    let client = server.client();
    until("words to come", LIMIT, || async {
        (texts(&status_of(&client, &run).await).len() >= 2).then_some(())
    })
    .await
    .unwrap();
    let server = server.kill().await.unwrap().start().await.unwrap();
    let client = server.client();
    let ended = until("the run to end", LIMIT, || async {
        let run = status_of(&client, &run).await;
        (run["finished_at"] != Value::Null).then_some(run)
    })
    .await
    .unwrap();
    assert_eq!((ended["status"].as_str(), texts(&ended)), (Some("completed"), said), "{ended}");
    let session = ended["session_id"].as_str().unwrap();
    let numbers: Vec<u64> = events(&client, session)
        .await
        .unwrap()
        .iter()
        .filter_map(|event| event["number"].as_u64())
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    let list = far.client().get("/comm/v0/runs").await.unwrap().ok().unwrap();
    assert_eq!(list["runs"].as_array().map(Vec::len), Some(1), "the run was begun twice: {list}");
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_out_of_reach_fails_its_runs_and_no_others() {
    let dir = Folder::new().unwrap();
    let settings = bridge_settings("agent-communication", "http://127.0.0.1:9", &["echo"]);
    let options = ServerOptions { settings, ..ServerOptions::default() };
    let home = Home::new(dir.path(), &options).unwrap();
    let server = home.start().await.unwrap();
    let client = server.client();
    let run = communicate(&client, "far_echo", json!([message("x")])).await;
    assert_eq!(
        (run["status"].as_str(), run["error"]["data"]["reason"].as_str()),
        (Some("failed"), Some("peer_unavailable")),
        "{run}"
    );
    let run = communicate(&client, "echo", json!([message("x")])).await;
    assert_eq!(run["status"], "completed");
    stop(server).await;
}

/// A server in front of an agent that follows a script, with a mount that enforces the rules at `/strict`.
async fn in_front_of_script(dir: &Folder, far: &ScriptedServer) -> Server {
    let mount = |prefix: &str, is_strict: bool| {
        format!(
            "[[mounts]]\nprotocol = \"communication\"\nprefix = \"{prefix}\"\nstrict = {is_strict}\n\n"
        )
    };
    let mounts = [mount("/communication", false), mount("/strict", true)].concat();
    let agent = bridge_settings("agent-communication", &far.url(), &["script"]);
    start_with(dir, format!("{mounts}{agent}")).await
}

/// A run at a mount, whose agent streams these events.
async fn follow_script(client: &Client, mount: &str, events: &Value) -> Value {
    let input = json!([message(&events.to_string())]);
    let body = json!({ "agent_name": "far_script", "input": input, "mode": "sync" });
    client.post(&format!("{mount}/runs"), &body).await.unwrap().ok().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_elsewhere_leaves_out_is_filled_in_and_breaks_the_strict_rules() {
    let (dir, far) = (Folder::new().unwrap(), ScriptedServer::start().await.unwrap());
    let server = in_front_of_script(&dir, &far).await;
    let client = server.client();
    let typed = json!({ "content_type": "text/plain", "content": "bare" });
    let created = |message: Value| json!([{ "type": "message.created", "message": message }]);
    for (script, why) in [
        (json!([{ "type": "message.part", "part": { "content": "bare" } }]), "content_type"),
        (
            json!([{ "type": "message.part", "part": { "content": "bare", "content_type": null } }]),
            "content_type",
        ),
        (created(json!({ "role": "agent", "parts": [{ "content": "bare" }] })), "content_type"),
        (created(json!({ "parts": [typed] })), "role"),
        (created(json!({ "role": "agent", "parts": [typed], "x_extra": 1 })), "x_extra"),
    ] {
        let run = follow_script(&client, "/communication", &script).await;
        assert_eq!(run["status"], "completed", "{script}: {run}");
        let part = &run["output"][0]["parts"][0];
        assert_eq!(
            (&part["content_type"], &part["content"]),
            (&json!("text/plain"), &json!("bare"))
        );
        let run = follow_script(&client, "/strict", &script).await;
        assert_eq!(
            (&run["status"], &run["error"]["data"]["reason"]),
            (&json!("failed"), &json!("output_invalid")),
            "{script}: {run}"
        );
        assert!(run["error"]["message"].as_str().unwrap().contains(why), "{script}: {run}");
    }
    let run =
        follow_script(&client, "/strict", &created(json!({ "role": "agent", "parts": [typed] })))
            .await;
    assert_eq!(run["status"], "completed", "{run}");
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_elsewhere_that_contradicts_itself_is_shown_with_a_note_and_fails_on_a_strict_mount()
 {
    let (dir, far) = (Folder::new().unwrap(), ScriptedServer::start().await.unwrap());
    let server = in_front_of_script(&dir, &far).await;
    let client = server.client();
    let part = |text: &str| json!({ "content_type": "text/plain", "content": text });
    let message = |kind: &str, text: &str| json!({ "type": kind, "message": { "role": "agent", "parts": [part(text)] } });
    let script = json!([message("message.created", "AAA"), message("message.completed", "BBB")]);

    let run = follow_script(&client, "/communication", &script).await;
    assert_eq!(
        (&run["status"], texts(&run)),
        (&json!("completed"), vec!["AAABBB".to_owned()]),
        "{run}"
    );
    let log = events(&client, run["session_id"].as_str().unwrap()).await.unwrap();
    let notes = log.iter().filter(|event| event["kind"] == "message.contradiction");
    assert_eq!(notes.count(), 1, "{log:?}");
    let log = server.home().log_end();
    assert_eq!(log.matches("with other content than it had streamed").count(), 1, "{log}");

    let run = follow_script(&client, "/strict", &script).await;
    assert_eq!(
        (&run["status"], &run["error"]["data"]["reason"]),
        (&json!("failed"), &json!("protocol_violation")),
        "{run}"
    );

    // A repetition in another order contradicts nothing.
    let image =
        json!({ "content_type": "image/png", "content": "aGk=", "content_encoding": "base64" });
    let file = json!({ "content_type": "text/csv", "content": "1,2", "name": "a.csv" });
    let whole = [part("one "), part("two"), file.clone(), image.clone()];
    let message = |kind: &str, parts: &[Value]| json!({ "type": kind, "message": { "role": "agent", "parts": parts } });
    let each = |part: &Value| json!({ "type": "message.part", "part": part });
    let script = json!([
        message("message.created", &whole[..2]),
        each(&whole[1]),
        each(&file),
        each(&image),
        message("message.completed", &whole),
    ]);
    let run = follow_script(&client, "/strict", &script).await;
    assert_eq!(
        (&run["status"], texts(&run)),
        (&json!("completed"), vec!["one two1,2aGk=".to_owned()]),
        "{run}"
    );
    stop(server).await;
}
