//! The servers of remote agents: started by this server, out of reach, and in reach again.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use trilogue_testkit::foreign::conformance_agents;
use trilogue_testkit::limited_server::{LimitedFeatures, LimitedServer};
use trilogue_testkit::payload_server::PayloadServer;
use trilogue_testkit::{Client, Folder, Server, ServerOptions, reserve_address, until};

use crate::bridge::{LIMIT, bridge_settings, communicate, message, start_with, status_of, texts};
use crate::kill_rounds::stop;
use crate::{echo, events, run_of};

/// The settings of agents of one server, which is started with them. It writes its process id into `server.pid`. With the sandbox that agents usually have, that is not the id on this machine.
async fn server_agent_settings(dir: &Path, sandbox: &str, agents: &[&str]) -> String {
    let program = conformance_agents().await.unwrap();
    let script = "echo $$ >> server.pid; exec \"$@\"";
    let command = json!([
        "sh",
        "-c",
        script,
        "sh",
        program,
        "--no-auth",
        "--listen",
        "127.0.0.1:{port}",
        "--mount",
        "communication=/comm",
    ]);
    let state = dir.join("far").canonicalize().unwrap();
    let agent = |name: &&str| {
        format!(
            "[agents.far_{name}]\nkind = \"agent-communication\"\nsandbox = \"{sandbox}\"\nwrite_paths = [{dir:?}]\ncommand = {command}\nurl = \"http://127.0.0.1:{{port}}/comm\"\nname = \"{name}\"\nenv = {{ XDG_STATE_HOME = {state:?} }}\n\n"
        )
    };
    agents.iter().map(agent).collect()
}

async fn server_with(dir: &Folder, agents: &[&str]) -> Server {
    server_in(dir, "off", agents).await
}

async fn server_in(dir: &Folder, sandbox: &str, agents: &[&str]) -> Server {
    fs::create_dir(dir.path().join("far")).unwrap();
    let settings = server_agent_settings(dir.path(), sandbox, agents).await;
    start_with(dir, settings).await
}

/// The ids of the processes that were started as the agents' server, in order.
fn pids(dir: &Folder) -> Vec<u32> {
    let text = fs::read_to_string(dir.path().join("server.pid")).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

fn is_running(pid: u32) -> bool {
    // A zombie has no command line.
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn kill(pid: u32) {
    use rustix::process::{Pid, Signal, kill_process};
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

async fn agent(client: &Client, name: &str) -> Value {
    client.get(&format!("/api/v1/agents/{name}")).await.unwrap().ok().unwrap()
}

async fn says(client: &Client, agent: &str, text: &str) -> Vec<String> {
    let run = communicate(client, agent, json!([message(text)])).await;
    assert_eq!(run["status"], "completed", "{run}");
    texts(&run)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_one_command_share_a_server_that_stops_with_this_one() {
    let dir = Folder::new().unwrap();
    let server = server_with(&dir, &["echo", "mime_types"]).await;
    let client = server.client();
    assert_eq!(says(&client, "far_echo", "Howdy!").await, ["Howdy!"]);
    assert!(!says(&client, "far_mime_types", "x").await.is_empty());
    assert_eq!(agent(&client, "far_echo").await["unavailable"], Value::Null);
    let status = client.get("/api/v1/status").await.unwrap().ok().unwrap();
    assert_eq!(status["agents"]["processes"], 1, "{status}");

    // The next server stops the processes that a killed one left.
    let server = server.kill().await.unwrap().start().await.unwrap();
    let [left, next] = pids(&dir)[..] else { panic!("{:?}", pids(&dir)) };
    assert!(!is_running(left) && is_running(next));
    assert_eq!(says(&server.client(), "far_echo", "Again").await, ["Again"]);
    stop(server).await;
    assert!(!is_running(next));
}

/// An agent in a sandbox has caches under its name, but the server of several is still one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_one_command_share_a_server_in_a_sandbox() {
    let dir = Folder::new().unwrap();
    let server = server_in(&dir, "auto", &["echo", "mime_types"]).await;
    let client = server.client();
    assert_eq!(says(&client, "far_echo", "Howdy!").await, ["Howdy!"]);
    assert!(!says(&client, "far_mime_types", "x").await.is_empty());
    let status = client.get("/api/v1/status").await.unwrap().ok().unwrap();
    assert_eq!(status["agents"]["processes"], 1, "{status}");
    assert_eq!(pids(&dir).len(), 1);
    stop(server).await;
}

/// The agents' server is killed while an agent works in it: the run is lost, the server restarts, and the thread continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_loses_its_runs_and_is_started_again() {
    let dir = Folder::new().unwrap();
    let server = server_with(&dir, &["slow_echo"]).await;
    let client = server.client();
    let many: Vec<Value> = (0..200).map(|number| message(&format!("{number}"))).collect();
    let body = json!({ "agent_name": "far_slow_echo", "input": many, "mode": "async" });
    let run = client.post("/communication/runs", &body).await.unwrap().ok().unwrap();
    let id = run["run_id"].as_str().unwrap().to_owned();
    until("the agent to answer", LIMIT, || async {
        (!texts(&status_of(&client, &id).await).is_empty()).then_some(())
    })
    .await
    .unwrap();
    kill(pids(&dir)[0]);
    let lost = until("the run to end", LIMIT, || async {
        let run = status_of(&client, &id).await;
        (run["finished_at"] != Value::Null).then_some(run)
    })
    .await
    .unwrap();
    let error = &lost["error"]["data"];
    assert_eq!(
        (lost["status"].as_str(), error["reason"].as_str()),
        (Some("failed"), Some("agent_lost")),
        "{lost}"
    );
    assert!(error["details"]["run_id"].is_string(), "{lost}");

    let body = json!({
        "agent_name": "far_slow_echo", "input": [message("still here")], "mode": "sync",
        "session_id": lost["session_id"],
    });
    let run = client.post("/communication/runs", &body).await.unwrap().ok().unwrap();
    assert_eq!(run["status"], "completed", "{run}");
    assert!(texts(&run).contains(&"still here".to_owned()), "{run}");
    assert_eq!(pids(&dir).len(), 2);
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_start_makes_its_agents_unavailable_and_no_others() {
    let dir = Folder::new().unwrap();
    let settings = "[agents.far]\nkind = \"agent-communication\"\ncommand = [\"sh\", \"-c\", \"echo no module >&2; exit 3\"]\n";
    let server = start_with(&dir, settings.to_owned()).await;
    let client = server.client();
    let reason = agent(&client, "far").await["unavailable"].as_str().unwrap().to_owned();
    assert!(reason.contains("exited with status 3") && reason.contains("no module"), "{reason}");
    let run = communicate(&client, "far", json!([message("x")])).await;
    assert_eq!(run["error"]["data"]["reason"], "peer_unavailable", "{run}");
    assert_eq!(says(&client, "echo", "x").await, ["x"]);
    let metrics = client.get("/metrics").await.unwrap();
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(metrics.contains("trilogue_agent_available{agent=\"far\"} 0"), "{metrics}");
    stop(server).await;
}

/// The settings that serve all agents of a server.
fn all_of(entry: &str, url: &str, more: &str) -> String {
    format!(
        "[agents.{entry}]\nkind = \"agent-communication\"\nurl = \"{url}\"\nagents = \"*\"\nrefresh = \"200ms\"\n{more}\n"
    )
}

async fn names(client: &Client) -> Vec<String> {
    let list = client.get("/api/v1/agents").await.unwrap().ok().unwrap();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items.iter().filter_map(|agent| agent["name"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_agents_of_a_server_come_and_go_with_it() {
    let dir = Folder::new().unwrap();
    let far = LimitedServer::start(LimitedFeatures::of(&["one", "dotted.name"], &["sync"]))
        .await
        .unwrap();
    let named = format!(
        "[agents.first]\nkind = \"agent-communication\"\nurl = \"{}/\"\nname = \"one\"\n\n",
        far.url()
    );
    let settings = named + &all_of("far", &far.url(), "prefix = \"far-\"");
    let server = start_with(&dir, settings).await;
    let client = server.client();
    assert_eq!(
        names(&client).await,
        ["echo", "far-dotted-name", "first", "mailcomposer", "researcher"]
    );
    let dotted = agent(&client, "far-dotted-name").await;
    assert_eq!(dotted["title"], "far-dotted.name");
    assert_eq!(says(&client, "far-dotted-name", "Hi").await, ["Hi"]);

    far.set_agents(&["one", "two"]);
    until("the new agent", LIMIT, || async {
        names(&client).await.contains(&"far-two".to_owned()).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(says(&client, "far-two", "Hello").await, ["Hello"]);
    let gone = agent(&client, "far-dotted-name").await;
    assert_eq!(gone["unavailable"], "agent not found on its server", "{gone}");
    far.set_agents(&["dotted.name"]);
    until("the agent to be back", LIMIT, || async {
        (agent(&client, "far-dotted-name").await["unavailable"] == Value::Null).then_some(())
    })
    .await
    .unwrap();
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_with_one_name_keep_the_server_from_starting() {
    let dir = Folder::new().unwrap();
    let far = LimitedServer::start(LimitedFeatures::of(&["echo"], &["sync"])).await.unwrap();
    let settings = all_of("far", &far.url(), "");
    let options = ServerOptions { settings, ..ServerOptions::default() };
    let error = Server::start(dir.path(), &options).await.unwrap_err().to_string();
    assert!(error.contains("two agents are called 'echo': `agents.echo`"), "{error}");
    assert!(error.contains("`agents.far`"), "{error}");
}

/// A server that starts later, and a server that returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_out_of_reach_is_left_alone_until_it_answers() {
    let dir = Folder::new().unwrap();
    let address = reserve_address().unwrap();
    let settings = format!(
        "[agents.far]\nkind = \"agent-communication\"\nurl = \"http://{address}\"\nname = \"one\"\nrefresh = \"1h\"\n"
    );
    let server = start_with(&dir, settings).await;
    let client = server.client();
    let failed = until("the server to be left alone", LIMIT, || async {
        let run = communicate(&client, "far", json!([message("x")])).await;
        assert_eq!(run["error"]["data"]["reason"], "peer_unavailable", "{run}");
        let is_open = agent(&client, "far").await["unavailable"].is_string();
        is_open.then_some(())
    });
    failed.await.unwrap();
    let run = communicate(&client, "far", json!([message("x")])).await;
    let error = &run["error"];
    assert!(error["message"].as_str().unwrap().contains("out of reach for"), "{run}");
    assert!(error["data"]["details"]["hint"].is_string(), "{run}");

    let far =
        LimitedServer::start_at(address, LimitedFeatures::of(&["one"], &["sync"])).await.unwrap();
    until("the server to be used again", LIMIT, || async {
        (agent(&client, "far").await["unavailable"] == Value::Null).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(says(&client, "far", "back").await, ["back"]);
    let before = far.connections();
    for _ in 0..5 {
        says(&client, "far", "again").await;
    }
    assert!(far.connections() <= before + 1, "{} and then {}", before, far.connections());
    stop(server).await;
}

/// Each server has fewer features than the one before. This server works around a missing feature, and tries it only once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_used_by_what_it_has() {
    let polled = LimitedFeatures::of(&["one"], &["sync", "async"]);
    let listed = LimitedFeatures { lists_events: true, ..polled.clone() };
    let answering = LimitedFeatures { answers_streams: true, ..listed.clone() };
    let sync = LimitedFeatures::of(&["one"], &["sync"]);
    for (features, first, then) in [
        (answering, &["stream"][..], "stream"),
        (listed, &["stream", "async"], "async"),
        (polled, &["stream", "async"], "async"),
        (sync, &["stream", "async", "sync"], "sync"),
    ] {
        let dir = Folder::new().unwrap();
        let far = LimitedServer::start(features.clone()).await.unwrap();
        let settings = all_of("far", &far.url(), "");
        let server = start_with(&dir, settings).await;
        let client = server.client();
        let modes = |far: &LimitedServer| -> Vec<String> {
            far.requests().into_iter().map(|(mode, _)| mode).collect()
        };
        assert_eq!(says(&client, "one", "Howdy!").await, ["Howdy!"], "{features:?}");
        assert_eq!(modes(&far), first, "{features:?}");
        assert_eq!(says(&client, "one", "Again!").await, ["Again!"], "{features:?}");
        assert_eq!(modes(&far).last().unwrap(), then, "{features:?}");

        let waiting = communicate(&client, "one", json!([message("ask")])).await;
        assert_eq!(waiting["status"], "awaiting", "{features:?}: {waiting}");
        assert!(waiting["await_request"].to_string().contains("Which one?"), "{waiting}");
        let run = waiting["run_id"].as_str().unwrap();
        let answer = json!({
            "await_resume": { "type": "message", "message": message("this one") },
            "mode": "sync",
        });
        let path = format!("/communication/runs/{run}");
        let done = client.post(&path, &answer).await.unwrap().ok().unwrap();
        assert_eq!(texts(&done), ["this one"], "{features:?}: {done}");
        stop(server).await;
    }
}

/// A token is sent to the agent's server in a separate field, and nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_sent_in_the_field_that_the_server_wants() {
    let dir = Folder::new().unwrap();
    let far = LimitedServer::start(LimitedFeatures::of(&["one"], &["sync"])).await.unwrap();
    fs::write(dir.path().join("token"), "hunter2hunter2\n").unwrap();
    let credential = "token_file = \"token\"\ntoken_as = \"header:X-Agent-Key\"";
    let settings = all_of("far", &far.url(), credential);
    let server = start_with(&dir, settings).await;
    assert_eq!(says(&server.client(), "one", "Hi").await, ["Hi"]);
    let (_, headers) = far.requests().pop().unwrap();
    assert_eq!(headers["x-agent-key"], "hunter2hunter2");
    assert!(!headers.contains_key("authorization"), "{headers:?}");
    stop(server).await;
}

/// A server of the other protocol is also started with its agents, and all of them are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_agents_of_a_started_server_of_the_connect_protocol_are_served() {
    let dir = Folder::new().unwrap();
    let program = conformance_agents().await.unwrap();
    let command =
        json!([program, "--no-auth", "--listen", "127.0.0.1:{port}", "--mount", "connect=/"]);
    let state = dir.path().canonicalize().unwrap().join("far");
    let settings = format!(
        "[agents.far]\nkind = \"agent-connect\"\ncommand = {command}\nagents = \"*\"\nprefix = \"far-\"\nenv = {{ XDG_STATE_HOME = {state:?} }}\nwrite_paths = [{:?}]\n",
        dir.path()
    );
    let server = start_with(&dir, settings).await;
    let client = server.client();
    let names = names(&client).await;
    assert!(names.contains(&"far-slow_echo".to_owned()), "{names:?}");
    assert_eq!(says(&client, "far-echo", "Howdy!").await, ["Howdy!"]);
    stop(server).await;
}

/// A remote server does not decide how much this one stores.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_another_server_makes_too_long_fails_for_good() {
    for (limit, text) in [("max_remote_events = 2", "a"), ("max_remote_output = \"16KiB\"", "a")] {
        let dir = Folder::new().unwrap();
        fs::create_dir(dir.path().join("far")).unwrap();
        let settings = server_agent_settings(dir.path(), "off", &["echo"]).await;
        let server = start_with(&dir, format!("{settings}\n[runtime]\n{limit}\n")).await;
        let client = server.client();
        let input = text.repeat(32 * 1024);
        let body = json!({ "agent": "far_echo", "input": input, "mode": "wait" });
        let run = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
        assert_eq!(run["status"], "failed", "{limit}");
        let text = run.to_string();
        assert!(text.contains("\"remote_output_too_large\""), "{limit}: {text:.2000}");
        assert!(text.contains("runtime.max_remote_"), "the setting is named: {text:.2000}");
    }
}

/// A remote server does not keep a run alive with comments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_server_sends_only_comments_fails() {
    let (dir, far) = (Folder::new().unwrap(), PayloadServer::start().await.unwrap());
    let settings = bridge_settings("agent-communication", &far.url(), &["any"]);
    let server = start_with(&dir, settings).await;
    let client = server.client();
    let line = "x".repeat(32 * 1024);
    for text in [format!(": {line}\n"), format!("unknown: {line}\n")] {
        far.answer_without_end(&text);
        let body = json!({ "agent": "far_any", "input": "x", "mode": "wait" });
        let run = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
        assert_eq!(run["status"], "failed", "{run}");
        assert!(run.to_string().contains("bytes of comments"), "{run}");
    }
    stop(server).await;
}

/// Nor with events that repeat a state and log nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_server_repeats_a_state_fails() {
    let (dir, far) = (Folder::new().unwrap(), PayloadServer::start().await.unwrap());
    let settings = bridge_settings("agent-communication", &far.url(), &["any"]);
    let server =
        start_with(&dir, format!("{settings}\n[runtime]\nmax_remote_events = 100\n")).await;
    let client = server.client();
    let state = json!({ "type": "run.in-progress", "run": { "run_id": "01890a5d-ac96-774b-bcce-b302099a8057",
        "agent_name": "any", "status": "in-progress", "output": [], "created_at": "2026-01-01T00:00:00Z" } });
    far.answer_without_end(&format!("data: {state}\n\n"));
    let body = json!({ "agent": "far_any", "input": "x", "mode": "wait" });
    let run = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    assert_eq!(run["status"], "failed", "{run}");
    assert!(run.to_string().contains("runtime.max_remote_events"), "{run}");
    stop(server).await;
}

/// The log entries of a run about earlier messages that were left out.
pub(crate) async fn lost_concepts(client: &Client, thread: &str) -> Vec<Value> {
    let all = events(client, thread).await.unwrap();
    let lost = all.into_iter().filter(|event| event["kind"] == "fidelity.lost");
    lost.map(|event| event["data"]["concept"].clone()).collect()
}

/// A local agent writes a lot on a thread before a remote agent joins it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_elsewhere_gets_the_newest_messages_of_a_big_thread() {
    let dir = Folder::new().unwrap();
    let far = LimitedServer::start(LimitedFeatures::of(&["one"], &["sync"])).await.unwrap();
    let server = start_with(&dir, all_of("far", &far.url(), "")).await;
    let client = server.client();
    // The inputs and answers together have 18 MB.
    for number in 0..10 {
        echo(&client, "big", &format!("{number}{}", "x".repeat(900_000))).await.ok().unwrap();
    }
    let run = run_of("one", "big", &json!("now"), "wait");
    let run = client.post("/api/v1/runs", &run).await.unwrap().ok().unwrap();
    assert_eq!(run["status"], "completed", "{run}");
    let (_, headers) = far.requests().pop().unwrap();
    let bytes: usize = headers["content-length"].to_str().unwrap().parse().unwrap();
    // Nine messages fit below 8 MiB.
    assert!((8_100_000..8_500_000).contains(&bytes), "{bytes}");
    assert_eq!(lost_concepts(&client, "big").await, ["conversation"]);

    // A thread that fits is sent whole, without a log entry.
    echo(&client, "small", "hello").await.ok().unwrap();
    let run = run_of("one", "small", &json!("now"), "wait");
    client.post("/api/v1/runs", &run).await.unwrap().ok().unwrap();
    assert_eq!(lost_concepts(&client, "small").await, [Value::Null; 0]);
    stop(server).await;
}
