//! Official clients of three protocols use agents of four kinds, each on an official library. One protocol begins a conversation, and another one answers, cancels or continues it.

use std::fmt::Write as _;

use serde_json::json;
use trilogue_testkit::foreign::{Conformance, ConformanceOptions, Foreign, ForeignServer};
use trilogue_testkit::official::Official;
use trilogue_testkit::{Folder, Home};

use crate::client_official::paths_of_tests;

/// The names under which the agents are served: one in the server, one that it starts, and two behind third-party servers.
const AGENTS: [&str; 4] = ["words", "hosted", "far_communication", "far_connect"];

/// A server of all agents, and the two third-party servers.
struct Bridges {
    dir: Folder,
    server: Conformance,
    _far: [ForeignServer; 2],
}

// === impl Bridges ===

impl Bridges {
    async fn start() -> Self {
        let dir = Folder::new().unwrap();
        let (communication, connect) =
            tokio::try_join!(ForeignServer::communication(), ForeignServer::connect()).unwrap();
        let hosted = Official::Python.agent(&[]).await.unwrap();
        let mut agents = String::new();
        write!(
            agents,
            r#"
[agents.hosted]
kind = "agent-client"
command = {}
{}

[agents.far_communication]
kind = "agent-communication"
url = "{}"
name = "words"

[agents.far_connect]
kind = "agent-connect"
url = "{}"
agent = "org.example.words"
"#,
            json!(hosted),
            paths_of_tests(),
            communication.url(),
            connect.url(),
        )
        .unwrap();
        let options = ConformanceOptions {
            agents,
            ..ConformanceOptions::communication("sqlite:agents.db", "/communication")
        };
        let server = Conformance::start(dir.path(), options).await.unwrap();
        Self { dir, server, _far: [communication, connect] }
    }

    /// The server's address, without a mount prefix.
    fn base(&self) -> String {
        self.server.url().trim_end_matches("/communication").to_owned()
    }

    async fn drive(&self, client: Foreign, place: &str, agent: &str) {
        let (base, url) = (self.base(), format!("{}/{place}", self.base()));
        let arguments = ["--url", &url, "--base", &base, "--agent", agent, "bridge"];
        let said = client.run(&arguments).await.unwrap_or_else(|error| {
            panic!("{client:?} with {agent}: {error:#}\n{}", self.server.log())
        });
        assert!(said.contains(" 0 failed"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_the_agent_communication_protocol_uses_agents_of_every_kind() {
    let bridges = Bridges::start().await;
    for agent in AGENTS {
        bridges.drive(Foreign::Python, "communication", agent).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_the_agent_connect_protocol_uses_agents_of_every_kind() {
    let bridges = Bridges::start().await;
    for agent in AGENTS {
        bridges.drive(Foreign::Connect, "connect", agent).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_the_agent_client_protocol_uses_agents_of_every_kind() {
    let bridges = Bridges::start().await;
    let (home, base) =
        (Home::new(bridges.dir.path(), &Default::default()).unwrap(), bridges.base());
    for agent in AGENTS {
        let command = home.command_line(&["connect", agent]).await.unwrap();
        let options = ["--trilogue", "--name", agent, "--base", &base, "bridge"];
        let said = Official::Python.drive(bridges.dir.path(), &options, &command).await;
        said.unwrap_or_else(|error| panic!("{agent}: {error:#}\n{}", bridges.server.log()));
    }
}

/// The agents also work directly with the official client of their protocol, without Trilogue between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_use_the_agents_of_their_own_protocol_directly() {
    let (communication, connect) =
        tokio::try_join!(ForeignServer::communication(), ForeignServer::connect()).unwrap();
    for (client, server, agent) in [
        (Foreign::Python, &communication, "words"),
        (Foreign::Connect, &connect, "0b6ba1de-5b9e-4a0c-9d3c-8f5b9f8f0001"),
    ] {
        let said = client.run(&["--url", &server.url(), "--agent", agent, "bridge"]).await.unwrap();
        assert!(said.contains(" 0 failed"), "{said}");
    }
    let dir = Folder::new().unwrap();
    let agent = Official::Python.agent(&[]).await.unwrap();
    Official::Python.drive(dir.path(), &["bridge"], &agent).await.unwrap();
}
