//! The official client of the Agent Connect Protocol, unmodified and pinned, drives the real programs.

use trilogue_testkit::foreign::{Conformance, ConformanceOptions, Foreign};
use trilogue_testkit::{Folder, Server, ServerOptions};

/// Everything the client can do.
const SUITES: [&str; 6] = ["agents", "stateless", "threads", "thread_runs", "streams", "scenarios"];

/// Runs every suite with the blocking and with the asynchronous client.
async fn drive(options: ConformanceOptions, slash: &str, further: &[&str]) {
    let dir = Folder::new().unwrap();
    let program = Conformance::start(dir.path(), options).await.unwrap();
    let url = format!("{}{slash}", program.url());
    let arguments = [&["--url", &*url][..], further, &SUITES].concat();
    let said = Foreign::Connect.run(&arguments).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(said.contains(" 0 failed"), "{said}");
    for kind in ["(sync", "(async"] {
        assert!(said.contains(kind), "nothing ran with the {kind} client:\n{said}");
    }
    let status = program.stop().await.unwrap();
    assert!(status.success(), "the stop ended with {status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_does_everything_it_can_with_memory() {
    drive(ConformanceOptions::connect("memory:", "/connect"), "", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_does_everything_it_can_with_sqlite() {
    drive(ConformanceOptions::connect("sqlite:agents.db", "/connect"), "", &[]).await;
}

/// With a slash behind the address, which makes the client ask for `//runs`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_does_everything_it_can_at_the_root() {
    drive(ConformanceOptions::connect("sqlite:agents.db", "/"), "/", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_does_everything_it_can_on_a_literal_mount() {
    let options = ConformanceOptions::connect("memory:", "/acp/connect");
    drive(ConformanceOptions { arguments: vec!["--literal"], ..options }, "", &["--literal"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_uses_the_built_in_agents_with_a_key() {
    let dir = Folder::new().unwrap();
    let server = Server::start(dir.path(), &ServerOptions::default()).await.unwrap();
    let url = format!("http://{}/connect", server.home().address());
    let arguments = ["--url", &url, "--key", server.token(), "builtin"];
    let said = Foreign::Connect.run(&arguments).await.unwrap();
    assert!(said.contains(" 0 failed"), "{said}");
    let (_, status) = server.stop().await.unwrap();
    assert!(status.success(), "the stop ended with {status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_client_began_is_there_after_kill_9() {
    let dir = Folder::new().unwrap();
    let options = ConformanceOptions::connect("sqlite:agents.db", "/connect");
    let program = Conformance::start(dir.path(), options).await.unwrap();
    let url = program.url();
    let said = Foreign::Connect.run(&["--url", &url, "begin"]).await.unwrap();
    let left = said.lines().find_map(|line| line.strip_prefix("left ")).unwrap();
    let program = program.kill_and_start().await.unwrap();
    let said = Foreign::Connect.run(&["--url", &url, "finish", left]).await.unwrap();
    assert_eq!(said.matches("ok restart.").count(), 4, "{said}");
    assert!(program.stop().await.unwrap().success());
}
