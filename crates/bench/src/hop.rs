//! Agents at other servers: the cost of the way through this server, compared with the same calls without it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use trilogue_testkit::{Server, ServerOptions};

use crate::communication::{PartsServer, RUNS, read_parts};
use crate::load;
use crate::memory::{mib, resident};
use crate::python::Python;
use crate::report::{self, Report, median, millis};

/// The number of connections in a measurement of throughput.
const CONNECTIONS: usize = 16;
/// How many requests one round has on each side.
const REQUESTS: u64 = 400;
/// The number of sequential requests in a measurement of latency.
const TURNS: u64 = 100;
/// The least rate through this server, as a share of the Python server's own.
const SHARE: f64 = 0.7;
/// How many parts the stream has.
const PARTS: usize = 2_000;
/// The number of streams that are open at once; for each, the number of parts and the pause before each part in
/// milliseconds.
const STREAMS: usize = 1_000;
const SLOW_PARTS: usize = 20;
const SLOW_PAUSE: u64 = 250;
/// The most memory that the server may have more while they are open, in KiB.
const MORE_KIB: u64 = 128 * 1024;

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    communication(report).await?;
    connect(report).await?;
    streams(report).await
}

/// Measures sync runs of an echo at the reference server, and the same through this server.
async fn communication(report: &mut Report) -> Result<()> {
    let far = Python::start("communication/reference", &[]).await?;
    let body = |agent: &str| {
        json!({
            "agent_name": agent, "mode": "sync",
            "input": [{"role": "user", "parts": [{"content_type": "text/plain", "content": "hello, who is there?"}]}],
        })
    };
    let (_dir, near) =
        in_front("agent-communication", far.address(), "", "name = \"echo\"").await?;
    let direct = load::post(far.address(), "/runs", "none", &body("echo").to_string());
    pair(report, "the communication reference", &far, direct, &near, RUNS, &body("far")).await
}

/// Measures runs of a small answer at a server of the Agent Connect Protocol, created and awaited, and the same through
/// this server.
async fn connect(report: &mut Report) -> Result<()> {
    let far = Python::start_program("connect/peer", "agent.py", &[]).await?;
    let message = json!({"role": "user", "content": "say:hello, who is there?"});
    let input = json!({"input": {"messages": [message]}});
    let (_dir, near) =
        in_front("agent-connect", far.address(), "", "agent = \"org.example.words\"").await?;
    let direct = load::post(far.address(), "/runs/wait", "none", &input.to_string());
    let mut through = input;
    through["agent_id"] = "far".into();
    pair(report, "the connect server", &far, direct, &near, "/connect/runs/wait", &through).await
}

/// Measures both ways in turn: many connections for throughput, one for latency.
async fn pair(
    report: &mut Report,
    name: &str,
    far: &Python,
    direct: Vec<u8>,
    near: &Server,
    path: &str,
    body: &Value,
) -> Result<()> {
    let address = near.home().address();
    let through = load::post(address, path, near.token(), &body.to_string());
    let (mut theirs, mut ours, mut shares, mut added) = (vec![], vec![], vec![], vec![]);
    for _ in 0..report.runs {
        let them =
            load::hammer(far.address(), direct.clone(), CONNECTIONS, REQUESTS).await?.per_second();
        let us = load::hammer(address, through.clone(), CONNECTIONS, REQUESTS).await?.per_second();
        theirs.push(them);
        ours.push(us);
        shares.push(us / them);
        let alone = load::hammer(far.address(), direct.clone(), 1, TURNS).await?;
        let hop = load::hammer(address, through.clone(), 1, TURNS).await?;
        added.push((hop.elapsed.as_secs_f64() - alone.elapsed.as_secs_f64()) / TURNS as f64);
    }
    report.line(&format!("{name}, runs a second"), &format!("{:.0}", median(theirs)));
    report.line("the same through our server", &format!("{:.0}", median(ours)));
    let added = Duration::from_secs_f64(median(added).max(0.0));
    report.line("added to a run, one at a time", &millis(added));
    let share = median(shares);
    let what = format!("share of {name}");
    report.target(&what, &format!("{share:.2}"), share >= SHARE, ">= 0.70");
    Ok(())
}

/// Measures a long stream, and many slow ones, from one Trilogue server through another.
async fn streams(report: &mut Report) -> Result<()> {
    let far = PartsServer::start().await?;
    let name = "name = \"parts\"";
    let (_dir, near) =
        in_front("agent-communication", far.address(), "/communication", name).await?;
    let body = |agent: &str, text: String| {
        json!({
            "agent_name": agent, "mode": "stream",
            "input": [{"role": "user", "parts": [{"content_type": "text/plain", "content": text}]}],
        })
    };
    let (address, token) = (near.home().address(), near.token());
    let long = PARTS.to_string();
    let mut added = Vec::new();
    for round in 0..=report.runs {
        let direct = body("parts", long.clone());
        let alone = read_parts(far.address(), RUNS, "none", &direct, PARTS).await?;
        let hop = read_parts(address, RUNS, token, &body("far", long.clone()), PARTS).await?;
        // The first round pays for memory that later ones find.
        if round > 0 {
            added.push((hop.as_secs_f64() - alone.as_secs_f64()) / PARTS as f64);
        }
    }
    let micros = median(added) * 1e6;
    report.line(&format!("added to each of {PARTS} parts"), &format!("{micros:.1} us"));

    let idle = resident(&near)?;
    let slow = body("far", format!("{SLOW_PARTS} {SLOW_PAUSE}"));
    let (begun, mut open) = (Instant::now(), JoinSet::new());
    for _ in 0..STREAMS {
        let (token, slow) = (token.to_owned(), slow.clone());
        open.spawn(async move { read_parts(address, RUNS, &token, &slow, SLOW_PARTS).await });
    }
    let mut most = idle;
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    while !open.is_empty() {
        tokio::select! {
            _ = tick.tick() => most = most.max(resident(&near)?),
            ended = open.join_next() => drop(ended.transpose()?.transpose()?),
        }
    }
    report
        .line(&format!("{STREAMS} streams at once, until the last ends"), &millis(begun.elapsed()));
    let more = most - idle;
    let what = format!("more memory with {STREAMS} streams at once");
    report.target(&what, &mib(more), more <= MORE_KIB, "<= 128 MiB");
    Ok(())
}

/// A server with memory in front of an agent of this kind, by the name `far`.
async fn in_front(
    kind: &str,
    far: SocketAddr,
    path: &str,
    which: &str,
) -> Result<(TempDir, Server)> {
    let dir = tempfile::tempdir_in(report::folder())?;
    let settings =
        format!("[agents.far]\nkind = \"{kind}\"\nurl = \"http://{far}{path}\"\n{which}\n\n");
    let options = ServerOptions { settings, ..report::server_options("memory:")? };
    let server = Server::start(dir.path(), &options).await?;
    Ok((dir, server))
}
