//! A listener that stays while no server runs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use trilogue_backends::child::AdoptedChild;
use uuid::Uuid;

use super::agent::{Agent, NAME, Server, block_on, folder};
use super::{Place, SERVER};

/// Starts a held agent, tells its instance, and waits for the end.
#[expect(clippy::print_stdout, reason = "the test reads it")]
pub(super) fn serve_until_killed(folder: &Path) {
    block_on(async {
        let server = Server::open(folder).await;
        let mut agent = server.start(true).await;
        agent.serve("first");
        let line = format!("tcp 127.0.0.1 {}", agent.port);
        assert_eq!(agent.attempt(&line).await, "first");
        let (pipe, sent) = (server.work().join("pipe"), server.work().join("sent"));
        let port = agent.port;
        let later = format!("wait {} 127.0.0.1 {port} {}", pipe.display(), sent.display());
        assert_eq!(agent.attempt(&later).await, "waiting");
        println!("{}", json!({ "instance": agent.child.instance().to_string(), "port": port }));
        std::future::pending::<()>().await;
    });
}

/// Starts a server that continues with the agent.
async fn adopt(folder: &Path, instance: Uuid) -> (Server, AdoptedChild) {
    loop {
        let server = Server::open(folder).await;
        server.children.adopt_held().await.unwrap();
        if let Some(adopted) = server.children.adopt(instance, NAME, 0) {
            return (server, adopted);
        }
        // A task of the server before, which was in this process, can have its records for a moment.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(super) fn a_listener_outlives_its_server(place: Place) {
    let folder = folder();
    let (pipe, sent) = (folder.path().join("work/pipe"), folder.path().join("work/sent"));
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut server = Command::new("/proc/self/exe")
        .args([SERVER.as_ref(), folder.path()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    let instance = told["instance"].as_str().unwrap().parse().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    // The agent connects while no server runs.
    std::fs::OpenOptions::new().write(true).open(&pipe).unwrap().write_all(b"go").unwrap();
    block_on(async {
        while !sent.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for (round, text) in [(0, "second"), (1, "third")] {
            let (server, adopted) = adopt(folder.path(), instance).await;
            drop(adopted.begin);
            let mut agent = Agent::new(adopted.started);
            let broker = agent.broker.as_ref().unwrap();
            assert_eq!(json!(broker.port), told["port"]);
            assert_eq!(broker.is_private, place.has_namespaces());
            let broker = agent.serve(text);
            let so_far = ["first", "waiting", "second", "second"];
            for expected in &so_far[..3 + round] {
                assert_eq!(agent.next_line().await, *expected);
            }
            let line = format!("tcp 127.0.0.1 {}", agent.port);
            assert_eq!(agent.attempt(&line).await, text);
            if round == 0 {
                // It is left to the next server, as by one that stops.
                agent.child.set_outlives(true);
            }
            server.children.close().await;
            // This process continues, but its server does not.
            broker.abort();
            broker.await.unwrap_err();
        }
    });
}
