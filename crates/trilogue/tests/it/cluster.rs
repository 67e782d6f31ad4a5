//! Several servers behind nginx, started by the example, with the real PostgreSQL, NATS and nginx.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{BINARY, Home, lasting_address, until};

/// The example, on its own ports. Stopped when dropped.
struct Cluster {
    home: Home,
    target: PathBuf,
    port: u16,
    started: String,
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cluster").join(name)
}

// === impl Cluster ===

impl Cluster {
    fn start() -> Self {
        let home = Home::new();
        let target = home.work().join("target");
        let port: u16 = lasting_address().rsplit_once(':').unwrap().1.parse().unwrap();
        let mut cluster = Self { home, target, port, started: String::new() };
        let output = cluster.command("start").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        cluster.started = String::from_utf8(output.stdout).unwrap();
        cluster
    }

    fn command(&self, name: &str) -> Command {
        let mut command = self.home.program("bash");
        command
            .arg(script(name))
            .env("TRILOGUE", BINARY)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CLUSTER_PORT", self.port.to_string());
        command
    }

    /// Runs a command of the program against the proxy.
    fn run(&self, arguments: &[&str]) -> Output {
        let token =
            self.target.join(format!("cluster/state/trilogue/tokens/127.0.0.1-{}", self.port + 1));
        self.home
            .program(BINARY)
            .args(arguments)
            .env("TRILOGUE_URL", format!("http://127.0.0.1:{}", self.port))
            .env("TRILOGUE_TOKEN", fs::read_to_string(token).unwrap().trim())
            .output()
            .unwrap()
    }

    /// Runs a command that must succeed and print JSON.
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn alive(&self) -> Vec<String> {
        let nodes = self.json(&["nodes"]);
        let alive = nodes.as_array().unwrap().iter().filter(|node| node["alive"] == true);
        alive.map(|node| node["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let stopped = self.command("stop").status();
        assert!(std::thread::panicking() || stopped.is_ok_and(|status| status.success()));
    }
}

#[test]
fn a_client_of_a_cluster_does_not_notice_that_a_server_is_killed() {
    let cluster = Cluster::start();
    assert!(cluster.started.contains(&format!("http://127.0.0.1:{}", cluster.port)));
    assert_eq!(cluster.alive(), ["a", "b"]);
    let echo = |text: &str| {
        let output = cluster.run(&["run", "echo", text, "--thread", "t"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), text, "{output:?}");
    };
    // Some of these requests reach the owner of their thread, others the other server.
    (0..4).for_each(|number| echo(&format!("before {number}")));
    cluster.run(&["run", "mailcomposer", "Write to ada@example.com saying hi", "--thread", "mail"]);
    let questions = || cluster.json(&["inbox"])["items"].as_array().unwrap().len();
    assert_eq!(questions(), 1);

    let drained = cluster.run(&["nodes", "drain", "b"]);
    assert!(String::from_utf8_lossy(&drained.stdout).starts_with("b: draining"), "{drained:?}");
    echo("meanwhile");
    let back = cluster.run(&["nodes", "drain", "b", "--undo"]);
    assert_eq!(String::from_utf8_lossy(&back.stdout), "b: takes threads\n");
    let nobody = cluster.run(&["nodes", "drain", "nobody"]);
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("no server has the name 'nobody'"));

    let pid = fs::read_to_string(cluster.target.join("cluster/a.pid")).unwrap();
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    echo("after");
    assert_eq!(questions(), 1, "it outlives the server that asked it");
    let answered = cluster.run(&["approve", "--yes"]);
    assert!(answered.status.success(), "{answered:?}");
    assert_eq!(questions(), 0);
    until(|| (cluster.alive() == ["b"]).then_some(()));
    let runs = cluster.json(&["runs", "--thread", "t"]);
    let runs = runs["items"].as_array().unwrap();
    assert_eq!(runs.len(), 6);
    assert!(runs.iter().all(|run| run["status"] == "completed"), "{runs:?}");
}
