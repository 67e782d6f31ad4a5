//! Agents behind the official server of the Agent Communication Protocol: its own suite and its own agents, through this server.

use trilogue_testkit::foreign::Foreign;
use trilogue_testkit::{Folder, Server, ServerOptions, reserve_address};

use crate::kill_rounds::stop;

/// The checks of the official suite, with one store.
const CHECKS: usize = 27;

/// A server at the root of its address, in front of all agents of another one, for callers without a token.
async fn in_front_of(dir: &Folder, url: &str) -> Server {
    let settings = format!(
        r#"
[egress]
allow = ["127.0.0.0/8", "::1/128"]

[[mounts]]
protocol = "communication"
prefix = "/"

[agents.all]
kind = "agent-communication"
url = "{url}"
agents = "*"
refresh = "200ms"
"#
    );
    let options = ServerOptions {
        settings,
        agents: Vec::new(),
        server_settings: "no_auth = true".to_owned(),
        ..ServerOptions::default()
    };
    Server::start(dir.path(), &options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_suite_passes_through_servers_in_front_of_its_own() {
    let (mut behind, mut front, mut servers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let (address, dir) = (reserve_address().unwrap(), Folder::new().unwrap());
        let server = in_front_of(&dir, &format!("http://{address}")).await;
        behind.push(address.port().to_string());
        front.push(server.home().address().port().to_string());
        servers.push((server, dir));
    }
    let ports = |name: &str, ports: &[String]| [&[name.to_owned()], ports].concat();
    let arguments = [ports("--behind", &behind), ports("--front", &front)].concat();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let said = Foreign::OfficialSuite.run(&arguments).await.unwrap_or_else(|error| {
        let logs: Vec<_> = servers.iter().map(|(server, _)| server.home().log_end()).collect();
        panic!("{error:#}\n{}", logs.join("\n"))
    });
    assert!(said.contains(&format!("{CHECKS} checks ran, 0 failed")), "{said}");
    for (server, _dir) in servers {
        stop(server).await;
    }
}
