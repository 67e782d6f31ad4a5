//! Clients and agents on the pinned official SDKs of the Agent Client Protocol. The clients launch `trilogue connect`; the agents are hosted.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;
use trilogue_testkit::official::{Official, acpx, example, run, scripted_agent};
use trilogue_testkit::{Folder, Home, Server, ServerOptions};

/// Starts a server with the built-in agents and these ones, each a name and a command line. Returns a folder to work in too.
pub(crate) async fn serve(agents: &[(&str, Vec<String>)]) -> (Folder, Server, Folder) {
    let (dir, cwd) = (Folder::new().unwrap(), Folder::new().unwrap());
    let options = ServerOptions { settings: hosted(agents), ..ServerOptions::default() };
    let server = Server::start(dir.path(), &options).await.unwrap();
    (dir, server, cwd)
}

pub(crate) fn hosted(agents: &[(&str, Vec<String>)]) -> String {
    let mut settings = String::new();
    for (name, command) in agents {
        write!(
            settings,
            "[agents.{name}]\nkind = \"agent-client\"\ncommand = {}\nclient_tools = \"forward\"\n{}\n",
            json!(command),
            paths_of_tests()
        )
        .unwrap();
    }
    settings
}

/// The settings by which an agent in a sandbox reaches the programs of this repository and the folders of tests.
pub(crate) fn paths_of_tests() -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    format!("read_paths = [{repository:?}]\nwrite_paths = [{:?}]\n", std::env::temp_dir())
}

pub(crate) async fn scripted(store: &Path, further: &[&str]) -> Vec<String> {
    let mut words = vec![scripted_agent().await.unwrap().display().to_string()];
    let store = store.display().to_string();
    words.extend(["--load", "--media", "--store", &store].map(str::to_owned));
    words.extend(further.iter().map(|&word| word.to_owned()));
    words
}

pub(crate) async fn drive(
    client: Official,
    home: &Home,
    cwd: &Path,
    agent: &str,
    options: &[&str],
) {
    let command = home.command_line(&["connect", agent]).await.unwrap();
    let options = [&["--trilogue"][..], options].concat();
    let said = client.drive(cwd, &options, &command).await;
    said.unwrap_or_else(|error| panic!("{agent}: {error:#}\n{}", home.log_end()));
}

/// Runs every suite that fits with one client: the built-in agents, and a hosted one.
async fn drive_all(client: Official) {
    let store = Folder::new().unwrap();
    let (_dir, server, cwd) = serve(&[("scripted", scripted(store.path(), &[]).await)]).await;
    let (home, cwd) = (server.home(), cwd.path());
    let native: &[&str] =
        if client == Official::TypeScript { &["--native", "session"] } else { &["session"] };
    drive(client, home, cwd, "echo", &[&["--name", "echo"], native].concat()).await;
    let question = ["--name", "researcher", "--prompt", "what is a log?"];
    drive(client, home, cwd, "researcher", &[&question, native].concat()).await;
    drive(client, home, cwd, "mailcomposer", &["asking"]).await;
    drive(client, home, cwd, "scripted", &["--plain", "session", "script"]).await;
    let (_, status) = server.stop().await.unwrap();
    assert!(status.success(), "the stop ended with {status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rust_client_uses_every_agent() {
    drive_all(Official::Rust).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_client_uses_every_agent() {
    drive_all(Official::TypeScript).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_client_that_had_ids_uses_every_agent() {
    drive_all(Official::Seed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_uses_every_agent() {
    drive_all(Official::Python).await;
}

/// Hosts an agent on an official SDK. Its own client and another one must see no difference.
async fn host(agent: Official) {
    let state = Folder::new().unwrap();
    let state = state.path().display().to_string();
    let keeps = agent.agent(&["--state", &state]).await.unwrap();
    let asks = agent.agent(&["--auth"]).await.unwrap();
    let (_dir, server, cwd) = serve(&[("kept", keeps), ("locked", asks)]).await;
    let (home, cwd) = (server.home(), cwd.path());
    let other = if agent == Official::TypeScript { Official::Rust } else { Official::TypeScript };
    for client in [agent, other] {
        drive(client, home, cwd, "kept", &["--name", agent.name(), "session", "script"]).await;
    }
    // After one sign-in, the agent serves its other clients too, which belong to the same user.
    drive(agent, home, cwd, "locked", &["auth"]).await;
    drive(Official::Rust, home, cwd, "locked", &["--only", "session.prompt", "session"]).await;
    drive(Official::TypeScript, home, cwd, "kept", &["attach"]).await;
    let (_, status) = server.stop().await.unwrap();
    assert!(status.success(), "the stop ended with {status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rust_agent_is_hosted() {
    host(Official::Rust).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_agent_is_hosted() {
    host(Official::TypeScript).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_agent_that_had_ids_is_hosted() {
    host(Official::Seed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_agent_is_hosted() {
    host(Official::Python).await;
}

/// The programs also work without Trilogue between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_uses_another_sdks_agent_directly() {
    let (state, cwd) = (Folder::new().unwrap(), Folder::new().unwrap());
    let folder = state.path().display().to_string();
    for (number, agent) in Official::ALL.into_iter().enumerate() {
        let keeps = agent.agent(&["--state", &folder]).await.unwrap();
        let asks = agent.agent(&["--auth"]).await.unwrap();
        let client = Official::ALL[(number + 1) % Official::ALL.len()];
        let options = ["--name", agent.name(), "session", "script"];
        client.drive(cwd.path(), &options, &keeps).await.unwrap();
        client.drive(cwd.path(), &["auth"], &asks).await.unwrap();
    }
}

/// An editor can use an agent directly that `stdio::serve` puts on standard streams.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_uses_an_agent_on_standard_streams() {
    let cwd = Folder::new().unwrap();
    let agent = [example("stdio_echo").await.unwrap().display().to_string()];
    for client in Official::ALL {
        for check in ["prompt", "cancel_when_idle"] {
            client.drive(cwd.path(), &["--only", check, "session"], &agent).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_editors_share_a_session() {
    let store = Folder::new().unwrap();
    let (_dir, server, cwd) = serve(&[("scripted", scripted(store.path(), &[]).await)]).await;
    drive(Official::TypeScript, server.home(), cwd.path(), "scripted", &["--plain", "attach"])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_official_agent_is_wrapped() {
    let state = Folder::new().unwrap();
    let (_dir, server, cwd) = serve(&[]).await;
    let keeps = ["--state", &*state.path().display().to_string()];
    for agent in Official::ALL {
        let words = agent.agent(&keeps).await.unwrap();
        let words: Vec<&str> =
            ["wrap", "--"].into_iter().chain(words.iter().map(|word| &**word)).collect();
        let command = server.home().command_line(&words).await.unwrap();
        let options = ["--trilogue", "session", "script"];
        let said = Official::TypeScript.drive(cwd.path(), &options, &command).await;
        said.unwrap_or_else(|error| panic!("{agent:?}: {error:#}\n{}", server.home().log_end()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acpx_drives_our_agents() {
    let store = Folder::new().unwrap();
    let (_dir, server, cwd) = serve(&[("scripted", scripted(store.path(), &[]).await)]).await;
    // It writes notes below the user's folder.
    let own = Folder::new().unwrap();
    let mut said = Vec::new();
    for (agent, prompt) in
        [("echo", "one and two"), ("scripted", "say:one and two"), ("scripted", "permission")]
    {
        let agent = server.home().command_line(&["connect", agent]).await.unwrap().join(" ");
        let mut words = vec!["env".to_owned(), format!("HOME={}", own.path().display())];
        words.extend(acpx().unwrap());
        words.extend(["--cwd".to_owned(), cwd.path().display().to_string()]);
        words.extend(
            ["--approve-all", "--format", "json", "--agent", &agent, "exec", prompt]
                .map(str::to_owned),
        );
        said.push(run(&words, cwd.path()).await.unwrap());
    }
    for each in &said {
        assert!(each.contains("\"stopReason\":\"end_turn\""), "{each}");
        assert!(each.contains("\"messageId\""), "{each}");
    }
    assert!(said[2].contains("session/request_permission"), "it was not asked: {}", said[2]);
}
