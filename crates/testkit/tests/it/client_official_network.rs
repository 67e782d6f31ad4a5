//! The Agent Client Protocol over WebSocket and over HTTP, between this server and the pinned official SDKs, without a program of ours between.

use std::fmt::Write as _;

use trilogue_testkit::official::{Official, OfficialServer};
use trilogue_testkit::{Folder, Server, ServerOptions};

use crate::client_official::{drive, hosted, scripted};

/// The transports, by the schemes of their addresses.
const SCHEMES: [&str; 2] = ["ws", "http"];

/// Runs every suite that needs no process of the agent: new, prompt, permission, form, files, cancel, load, resume, a second turn, two sessions.
async fn drive_all(client: Official, scheme: &str) {
    let (dir, cwd, store) =
        (Folder::new().unwrap(), Folder::new().unwrap(), Folder::new().unwrap());
    let settings = hosted(&[("scripted", scripted(store.path(), &[]).await)]);
    // A client over the network works in a folder that the settings name, and its files are forwarded without a setting.
    let roots = format!("roots = [{:?}]", cwd.path());
    let settings = settings.replace("client_tools = \"forward\"", &roots);
    let options = ServerOptions { settings, ..ServerOptions::default() };
    let server = Server::start(dir.path(), &options).await.unwrap();
    let native: &[&str] =
        if client == Official::TypeScript { &["--native", "session"] } else { &["session"] };
    let question = ["--name", "researcher", "--prompt", "what is a log?"];
    for (agent, options) in [
        ("echo", [&["--name", "echo"], native].concat()),
        ("researcher", [&question, native].concat()),
        ("mailcomposer", vec!["asking"]),
        ("scripted", vec!["--plain", "session", "script"]),
    ] {
        let url = format!("{scheme}://{}/client/{agent}", server.home().address());
        let options = [&["--trilogue"][..], &options].concat();
        let said = client.drive_address(cwd.path(), &options, &url, server.token()).await;
        said.unwrap_or_else(|error| panic!("{agent}: {error:#}\n{}", server.home().log_end()));
    }
    let (_, status) = server.stop().await.unwrap();
    assert!(status.success(), "the stop ended with {status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rust_client_uses_every_agent_over_websocket() {
    drive_all(Official::Rust, "ws").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rust_client_uses_every_agent_over_http() {
    drive_all(Official::Rust, "http").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_client_uses_every_agent_over_websocket() {
    drive_all(Official::TypeScript, "ws").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_client_uses_every_agent_over_http() {
    drive_all(Official::TypeScript, "http").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_uses_every_agent_over_websocket() {
    drive_all(Official::Python, "ws").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_uses_every_agent_over_http() {
    drive_all(Official::Python, "http").await;
}

/// Puts this server in front of an agent behind the server of its SDK. An editor sees no difference from a program here.
async fn stand_before(agent: Official) {
    let far = OfficialServer::start(agent).await.unwrap();
    let (dir, cwd) = (Folder::new().unwrap(), Folder::new().unwrap());
    let mut settings = String::new();
    for scheme in SCHEMES {
        let url = far.url(scheme);
        let roots = cwd.path().display().to_string();
        write!(
            settings,
            "[agents.{scheme}]\nkind = \"agent-client\"\nurl = {url:?}\nroots = {roots:?}\n\n"
        )
        .unwrap();
    }
    let options = ServerOptions { settings, ..ServerOptions::default() };
    let server = Server::start(dir.path(), &options).await.unwrap();
    for scheme in SCHEMES {
        let options = ["--name", agent.name(), "session", "script"];
        drive(Official::Rust, server.home(), cwd.path(), scheme, &options).await;
    }
    let (_, status) = server.stop().await.unwrap();
    assert!(status.success(), "the stop ended with {status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_behind_the_rust_server_passes_every_suite() {
    stand_before(Official::Rust).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_behind_the_typescript_server_passes_every_suite() {
    stand_before(Official::TypeScript).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_behind_the_python_server_passes_every_suite() {
    stand_before(Official::Python).await;
}
