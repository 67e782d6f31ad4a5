//! The official clients of the Agent Communication Protocol, unmodified and pinned, drive the real programs.

use serde_json::json;
use trilogue_testkit::foreign::{Conformance, ConformanceOptions, Foreign};
use trilogue_testkit::{Folder, Server, ServerOptions};

/// Stores, and places where the protocol is served.
const SETTINGS: [(&str, &str); 3] =
    [("memory:", "/"), ("sqlite:agents.db", "/communication"), ("sqlite:agents.db", "/api/v1/acp")];

async fn drive(foreign: Foreign, suites: &[&str]) {
    for (store, prefix) in SETTINGS {
        let dir = Folder::new().unwrap();
        let options = ConformanceOptions {
            store: store.to_owned(),
            prefix: prefix.to_owned(),
            ..ConformanceOptions::default()
        };
        let program = Conformance::start(dir.path(), options).await.unwrap();
        let url = program.url();
        let arguments = [&["--url", &*url], suites].concat();
        let said = foreign.run(&arguments).await.unwrap_or_else(|error| {
            panic!("{store} at {prefix}: {error:#}");
        });
        assert!(said.contains(" 0 failed"), "{said}");
        let status = program.stop().await.unwrap();
        assert!(status.success(), "{store} at {prefix}: the stop ended with {status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_does_everything_it_can() {
    drive(Foreign::Python, &["agents", "runs", "errors", "sessions"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_client_does_everything_it_can() {
    drive(Foreign::TypeScript, &["agents", "runs", "sessions"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_clients_use_the_built_in_agents_with_a_token() {
    let dir = Folder::new().unwrap();
    let server = Server::start(dir.path(), &ServerOptions::default()).await.unwrap();
    let url = format!("http://{}/communication", server.home().address());
    for foreign in Foreign::COMMUNICATION {
        let arguments = ["--url", &url, "--token", server.token(), "builtin"];
        let said = foreign.run(&arguments).await.unwrap();
        assert!(said.contains(" 0 failed"), "{said}");
    }
    let (_, status) = server.stop().await.unwrap();
    assert!(status.success(), "the stop ended with {status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_moves_between_two_servers() {
    for (one, two) in [("memory:", "sqlite:agents.db"), ("sqlite:agents.db", "memory:")] {
        let (first, second) = (Folder::new().unwrap(), Folder::new().unwrap());
        let options = |store: &str, prefix: &str| ConformanceOptions {
            store: store.to_owned(),
            prefix: prefix.to_owned(),
            allow_egress: Some("127.0.0.1/32".to_owned()),
            ..ConformanceOptions::default()
        };
        let one = Conformance::start(first.path(), options(one, "/")).await.unwrap();
        let two = Conformance::start(second.path(), options(two, "/comm/v0")).await.unwrap();
        let (url, peer) = (one.url(), two.url());
        let arguments = ["--url", &url, "--peer", &peer, "distributed"];
        let said = Foreign::Python.run(&arguments).await.unwrap();
        assert!(said.contains(" 0 failed"), "{said}");
    }
}

/// Without leave, a server fetches nothing from its own machine, and says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_on_this_machine_is_refused_without_leave() {
    let (first, second) = (Folder::new().unwrap(), Folder::new().unwrap());
    let one = Conformance::start(first.path(), ConformanceOptions::default()).await.unwrap();
    let two = Conformance::start(second.path(), ConformanceOptions::default()).await.unwrap();
    let id = uuid_of(1);
    let body = json!({
        "agent_name": "echo", "session_id": id, "input": [{"parts": [{"content": "a secret"}]}],
    });
    one.client().post("/communication/runs", &body).await.unwrap().ok().unwrap();
    let path = format!("/communication/sessions/{id}");
    let session = one.client().get(&path).await.unwrap().ok().unwrap();
    assert_eq!(session["history"].as_array().map(Vec::len), Some(2), "{session}");

    let body = json!({
        "agent_name": "history_echo", "session": session,
        "input": [{"parts": [{"content": "and then?"}]}],
    });
    let run = two.client().post("/communication/runs", &body).await.unwrap().ok().unwrap();
    assert_eq!(run["status"], "failed", "{run}");
    assert_eq!(run["error"]["data"]["reason"], "egress_refused", "{run}");
    assert!(!run.to_string().contains("a secret"), "{run}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_began_is_there_after_kill_9() {
    for foreign in Foreign::COMMUNICATION {
        let dir = Folder::new().unwrap();
        let options =
            ConformanceOptions { store: "sqlite:agents.db".to_owned(), ..Default::default() };
        let program = Conformance::start(dir.path(), options).await.unwrap();
        let url = program.url();
        let said = foreign.run(&["--url", &url, "begin"]).await.unwrap();
        let left = said.lines().find_map(|line| line.strip_prefix("left ")).unwrap();
        let program = program.kill_and_start().await.unwrap();
        let said = foreign.run(&["--url", &url, "finish", left]).await.unwrap();
        assert_eq!(said.matches("ok restart.").count(), 3, "{said}");
        assert!(program.stop().await.unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_stops_cleanly_while_runs_wait_and_work() {
    let dir = Folder::new().unwrap();
    let options = ConformanceOptions { store: "sqlite:agents.db".to_owned(), ..Default::default() };
    let program = Conformance::start(dir.path(), options).await.unwrap();
    for (agent, mode) in [("awaiter", "sync"), ("slow_echo", "async")] {
        let body = json!({
            "agent_name": agent, "mode": mode, "input": [{"parts": [{"content": "x"}]}],
        });
        program.client().post("/communication/runs", &body).await.unwrap().ok().unwrap();
    }
    let status = program.stop().await.unwrap();
    assert!(status.success(), "the stop ended with {status}");
}

/// A session id of a client's own choosing.
fn uuid_of(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}
