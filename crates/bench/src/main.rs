//! The figures, each measured beside a peer in the same run.
//!
//! Started by `cargo xtask bench [NAMES…]`, which builds it and the server in release mode.
//! With `peer NAME` it is itself the peer: a bare server in a process of its own, as ours is.
//! With `agent` it is an agent on its standard streams.
//! With `ledger [--bless]` it counts what operations cost, and compares that with the committed counts.
//! With `ours ADDRESS` or `parts ADDRESS STORE` it is our server with an agent of its own.

mod appends;
mod client;
mod cluster;
mod cluster_nodes;
mod communication;
mod connect;
mod cost;
mod disk;
mod durable;
mod echo;
mod flow;
mod hop;
mod ledger;
mod load;
mod memory;
mod peer;
mod python;
mod report;
mod retention;
mod search;
mod start;
mod stream;
mod subscribers;

use std::process::ExitCode;

use anyhow::{Result, bail};

use report::Report;

/// Every figure, in the order in which it is measured.
const NAMES: [&str; 16] = [
    "start",
    "appends",
    "stream",
    "echo",
    "sse",
    "memory",
    "retention",
    "communication",
    "connect",
    "search",
    "client",
    "network",
    "settle",
    "sandbox",
    "hop",
    "cluster",
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            report::say(&format!("error: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            report::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Whether every target was reached.
async fn run(arguments: &[String]) -> Result<bool> {
    load::raise_file_limit()?;
    match arguments {
        [role] if role == "agent" => return client::serve_agent().map(|()| true),
        [role, name] if role == "peer" => return peer::serve(name).await.map(|()| true),
        [role, address] if role == "ours" => {
            return subscribers::serve(address).await.map(|()| true);
        }
        [role, address, store] if role == "parts" => {
            return communication::serve(address, store).await.map(|()| true);
        }
        [role, options @ ..] if role == "ledger" => return ledger::run(options).await,
        _ => {}
    }
    for name in arguments {
        if !NAMES.contains(&name.as_str()) {
            bail!("unknown figure '{name}': expected one of {}", NAMES.join(", "));
        }
    }
    let mut report = Report::begin()?;
    for name in NAMES {
        if !arguments.is_empty() && !arguments.iter().any(|wanted| wanted == name) {
            continue;
        }
        report.section(name);
        match name {
            "start" => start::measure(&mut report).await?,
            "appends" => appends::measure(&mut report).await?,
            "stream" => stream::measure(&mut report).await?,
            "echo" => echo::measure(&mut report).await?,
            "sse" => subscribers::measure(&mut report).await?,
            "memory" => memory::measure(&mut report).await?,
            "retention" => retention::measure(&mut report).await?,
            "communication" => communication::measure(&mut report).await?,
            "connect" => connect::measure(&mut report).await?,
            "search" => search::measure(&mut report).await?,
            "network" => client::measure_network(&mut report).await?,
            "settle" => client::measure_settle(&mut report).await?,
            "sandbox" => client::measure_sandbox(&mut report).await?,
            "hop" => hop::measure(&mut report).await?,
            "cluster" => cluster::measure(&mut report).await?,
            _ => client::measure(&mut report).await?,
        }
    }
    Ok(report.end())
}
