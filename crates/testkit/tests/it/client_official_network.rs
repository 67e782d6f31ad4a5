//! Clients on the pinned official SDKs of the Agent Client Protocol that reach the server over WebSocket and over HTTP, without a program of ours between.

use trilogue_testkit::official::Official;
use trilogue_testkit::{Folder, Server, ServerOptions};

use crate::client_official::{hosted, scripted};

/// Runs every suite that needs no process of the agent: new, prompt, permission, form, files, cancel, load, resume, a second turn, two sessions.
async fn drive_all(client: Official, scheme: &str) {
    let (dir, cwd, store) =
        (Folder::new().unwrap(), Folder::new().unwrap(), Folder::new().unwrap());
    let settings = hosted(&[("scripted", scripted(store.path(), &[]).await)]);
    // A client over the network works in a folder that the settings name.
    let roots = format!("client_tools = \"forward\"\nroots = [{:?}]", cwd.path());
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
