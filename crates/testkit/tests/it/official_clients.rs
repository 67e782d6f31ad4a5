//! The official clients of the two protocols over HTTP, unmodified and pinned, drive the real programs.

use serde_json::json;
use trilogue_testkit::foreign::{Conformance, ConformanceOptions, Foreign};
use trilogue_testkit::{Folder, Server, ServerOptions};

use crate::kill_rounds::stop;

/// Stores, and the mount prefixes of the Agent Communication Protocol.
const SETTINGS: [(&str, &str); 3] =
    [("memory:", "/"), ("sqlite:agents.db", "/communication"), ("sqlite:agents.db", "/api/v1/acp")];
const CONNECT: [&str; 6] =
    ["agents", "stateless", "threads", "thread_runs", "streams", "scenarios"];

/// Runs suites of a client against the agents that they expect; returns the client's output.
async fn drive(
    client: Foreign,
    options: ConformanceOptions,
    slash: &str,
    suites: &[&str],
) -> String {
    let dir = Folder::new().unwrap();
    let what = format!("{client:?}: {options:?}");
    let program = Conformance::start(dir.path(), options).await.unwrap();
    let url = format!("{}{slash}", program.url());
    let arguments = [&["--url", &*url], suites].concat();
    let said = client.run(&arguments).await.unwrap_or_else(|error| panic!("{what}: {error:#}"));
    assert!(said.contains(" 0 failed"), "{said}");
    let status = program.stop().await.unwrap();
    assert!(status.success(), "{what}: the stop ended with {status}");
    said
}

async fn drive_communication(client: Foreign, suites: &[&str]) {
    for (store, prefix) in SETTINGS {
        drive(client, ConformanceOptions::communication(store, prefix), "", suites).await;
    }
}

/// Runs every suite with the blocking client and with the asynchronous one.
async fn drive_connect(options: ConformanceOptions, slash: &str, further: &[&str]) {
    let said = drive(Foreign::Connect, options, slash, &[further, &CONNECT].concat()).await;
    for kind in ["(sync", "(async"] {
        assert!(said.contains(kind), "nothing ran with the {kind} client:\n{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_does_everything_it_can() {
    drive_communication(Foreign::Python, &["agents", "runs", "errors", "sessions"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_client_does_everything_it_can() {
    drive_communication(Foreign::TypeScript, &["agents", "runs", "sessions"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connect_client_does_everything_it_can_with_memory() {
    drive_connect(ConformanceOptions::connect("memory:", "/connect"), "", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connect_client_does_everything_it_can_with_sqlite() {
    drive_connect(ConformanceOptions::connect("sqlite:agents.db", "/connect"), "", &[]).await;
}

/// A slash after the address makes the client request `//runs`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connect_client_does_everything_it_can_at_the_root() {
    drive_connect(ConformanceOptions::connect("sqlite:agents.db", "/"), "/", &[]).await;
}

/// Skips the streams of new runs: they start with the run, which this client cannot read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connect_client_does_what_it_can_on_a_mount_as_documented() {
    let option = "--as-documented";
    let options = ConformanceOptions::connect("memory:", "/acp/connect");
    let options = ConformanceOptions { arguments: vec![option], ..options };
    let suites: Vec<&str> = CONNECT.into_iter().filter(|suite| *suite != "streams").collect();
    drive(Foreign::Connect, options, "", &[&[option][..], &suites].concat()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_use_the_built_in_agents_with_a_token() {
    let dir = Folder::new().unwrap();
    let server = Server::start(dir.path(), &ServerOptions::default()).await.unwrap();
    for (client, prefix, option) in [
        (Foreign::Python, "communication", "--token"),
        (Foreign::TypeScript, "communication", "--token"),
        (Foreign::Connect, "connect", "--key"),
    ] {
        let url = format!("http://{}/{prefix}", server.home().address());
        let said = client.run(&["--url", &url, option, server.token(), "builtin"]).await.unwrap();
        assert!(said.contains(" 0 failed"), "{said}");
    }
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_moves_between_two_servers() {
    for (one, two) in [("memory:", "sqlite:agents.db"), ("sqlite:agents.db", "memory:")] {
        let (first, second) = (Folder::new().unwrap(), Folder::new().unwrap());
        let options = |store: &str, prefix: &str| ConformanceOptions {
            allow_egress: Some("127.0.0.1/32".to_owned()),
            ..ConformanceOptions::communication(store, prefix)
        };
        let one = Conformance::start(first.path(), options(one, "/")).await.unwrap();
        let two = Conformance::start(second.path(), options(two, "/comm/v0")).await.unwrap();
        let (url, peer) = (one.url(), two.url());
        let arguments = ["--url", &url, "--peer", &peer, "distributed"];
        let said = Foreign::Python.run(&arguments).await.unwrap();
        assert!(said.contains(" 0 failed"), "{said}");
    }
}

/// Without permission, a server fetches nothing from its own machine, and gives the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_on_this_machine_is_refused_without_leave() {
    let (first, second) = (Folder::new().unwrap(), Folder::new().unwrap());
    let one = Conformance::start(
        first.path(),
        ConformanceOptions::communication("memory:", "/communication"),
    )
    .await
    .unwrap();
    let two = Conformance::start(
        second.path(),
        ConformanceOptions::communication("memory:", "/communication"),
    )
    .await
    .unwrap();
    let id = uuid_of(1);
    let body = json!({
        "agent_name": "echo", "session_id": id, "input": [{"role": "user", "parts": [{"content_type": "text/plain", "content": "a secret"}]}],
    });
    one.client().post("/communication/runs", &body).await.unwrap().ok().unwrap();
    let path = format!("/communication/sessions/{id}");
    let session = one.client().get(&path).await.unwrap().ok().unwrap();
    assert_eq!(session["history"].as_array().map(Vec::len), Some(2), "{session}");

    let body = json!({
        "agent_name": "history_echo", "session": session,
        "input": [{"role": "user", "parts": [{"content_type": "text/plain", "content": "and then?"}]}],
    });
    let run = two.client().post("/communication/runs", &body).await.unwrap().ok().unwrap();
    assert_eq!(run["status"], "failed", "{run}");
    assert_eq!(run["error"]["data"]["reason"], "egress_refused", "{run}");
    assert!(!run.to_string().contains("a secret"), "{run}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_began_is_there_after_kill_9() {
    let communication = || ConformanceOptions::communication("sqlite:agents.db", "/communication");
    for (client, options, checks) in [
        (Foreign::Python, communication(), 3),
        (Foreign::TypeScript, communication(), 3),
        (Foreign::Connect, ConformanceOptions::connect("sqlite:agents.db", "/connect"), 4),
    ] {
        let dir = Folder::new().unwrap();
        let program = Conformance::start(dir.path(), options).await.unwrap();
        let url = program.url();
        let said = client.run(&["--url", &url, "begin"]).await.unwrap();
        let left = said.lines().find_map(|line| line.strip_prefix("left ")).unwrap();
        let program = program.kill_and_start().await.unwrap();
        let said = client.run(&["--url", &url, "finish", left]).await.unwrap();
        assert_eq!(said.matches("ok restart.").count(), checks, "{said}");
        assert!(program.stop().await.unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_stops_cleanly_while_runs_wait_and_work() {
    let dir = Folder::new().unwrap();
    let options = ConformanceOptions::communication("sqlite:agents.db", "/communication");
    let program = Conformance::start(dir.path(), options).await.unwrap();
    for (agent, mode) in [("awaiter", "sync"), ("slow_echo", "async")] {
        let body = json!({
            "agent_name": agent, "mode": mode, "input": [{"role": "user", "parts": [{"content_type": "text/plain", "content": "x"}]}],
        });
        program.client().post("/communication/runs", &body).await.unwrap().ok().unwrap();
    }
    let status = program.stop().await.unwrap();
    assert!(status.success(), "the stop ended with {status}");
}

fn uuid_of(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}
