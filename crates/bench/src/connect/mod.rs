//! The Agent Connect Protocol: a run is created and awaited, compared with a Python server and a bare one of the same two
//! routes.

mod bare;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use trilogue_testkit::Server;

use crate::cost::{self, ProcessorTime};
use crate::durable;
use crate::flow::{self, Flow};
use crate::peer::Peer;
use crate::python::Python;
use crate::report::{self, Report, median};

pub(crate) use bare::router;

/// How many connections ask at once.
const CONNECTIONS: usize = 8;
/// How long the Python server is measured each time.
const PYTHON_TIME: Duration = Duration::from_secs(5);
/// How many runs one measurement has with memory.
const RUNS: u64 = 10_000;
/// How many it has with a disk.
const DURABLE_RUNS: u64 = 4_000;
/// The least that we do with memory, in times of the Python server.
const PYTHON_TIMES: f64 = 8.0;
/// The least that we do with memory, as a share of the bare server.
const BARE_SHARE: f64 = 0.45;
/// The least runs that share one commit of the disk.
const RUNS_PER_COMMIT: f64 = 1.5;
/// The path of the protocol, below the server's address.
pub(crate) const BASE: &str = "/connect";

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let body = json!({
        "agent_id": "echo", "input": {"message": "hello, who is there?"},
        "on_completion": "delete", "on_disconnect": "cancel", "multitask_strategy": "reject",
    })
    .to_string();
    in_memory(report, &body).await?;
    durable(report, &body).await
}

async fn in_memory(report: &mut Report, body: &str) -> Result<()> {
    let dir = tempfile::tempdir_in(report::folder())?;
    let server = Server::start(dir.path(), &report::server_options("memory:")?).await?;
    works(&server, body).await?;
    let bare = Peer::start("connect", "").await?;
    let python = Python::start("connect/peer", &[]).await?;
    let quick = Python::start("connect/peer", &["quick"]).await?;
    let ours = Flow::create_and_wait(server.home().address(), BASE, server.token(), body);
    let bare_flow = Flow::create_and_wait(bare.address(), "", "none", body);
    let python_flow = Flow::create_and_wait(python.address(), "", "none", body);
    let quick_flow = Flow::create_and_wait(quick.address(), "", "none", body);
    let (mut our_rates, mut bare_rates) = (Vec::new(), Vec::new());
    let (mut python_rates, mut quick_rates) = (Vec::new(), Vec::new());
    let (mut shares, mut times, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..report.runs {
        let them = flow::for_time(&python_flow, CONNECTIONS, PYTHON_TIME).await?.per_second();
        quick_rates.push(flow::for_time(&quick_flow, CONNECTIONS, PYTHON_TIME).await?.per_second());
        let least = flow::times(&bare_flow, CONNECTIONS, RUNS).await?.per_second();
        let cost = ProcessorTime::of(&server)?;
        let us = flow::times(&ours, CONNECTIONS, RUNS).await?.per_second();
        costs.push(cost.per(RUNS)?);
        our_rates.push(us);
        bare_rates.push(least);
        python_rates.push(them);
        shares.push(us / least);
        times.push(us / them);
    }
    server.stop().await?;
    let rate = |rates| format!("{:.0}", median(rates));
    report.line("a Python server, create and wait, runs a second", &rate(python_rates));
    report.line("the same with its quick parts in C, runs a second", &rate(quick_rates));
    report.line("a bare server, create and wait, runs a second", &rate(bare_rates));
    report.line("ours with memory:, runs a second", &rate(our_rates));
    cost::print_processor_time(report, "ours with memory:", costs);
    cost::print_allocations(report, "ours with memory:", "memory:", async |server, runs| {
        let address = server.home().address();
        let flow = Flow::create_and_wait(address, BASE, server.token(), body);
        flow::times(&flow, CONNECTIONS, runs).await.map(drop)
    })
    .await?;
    let (times, share) = (median(times), median(shares));
    let what = "ours with memory:, in times of the Python server";
    report.target(what, &format!("{times:.1}"), times >= PYTHON_TIMES, ">= 8");
    let what = "ours with memory:, share of the bare server";
    report.target(what, &format!("{share:.2}"), share >= BARE_SHARE, ">= 0.45");
    Ok(())
}

/// Repeats the measurement with a disk, and compares it with the disk's own commit.
async fn durable(report: &mut Report, body: &str) -> Result<()> {
    let begin = async |server: &Server| works(server, body).await;
    let round = async |server: &Server| {
        let flow = Flow::create_and_wait(server.home().address(), BASE, server.token(), body);
        Ok(flow::times(&flow, CONNECTIONS, DURABLE_RUNS).await?.per_second())
    };
    let (runs, shared) = (DURABLE_RUNS, RUNS_PER_COMMIT);
    durable::measure(report, "ours", runs, shared, begin, round).await.map(drop)
}

/// Checks that the run succeeds and returns the sent text.
async fn works(server: &Server, body: &str) -> Result<()> {
    let body: Value = serde_json::from_str(body)?;
    let client = server.client();
    let run = client.post(&format!("{BASE}/runs"), &body).await?.ok()?;
    let id = run["run_id"].as_str().context("the run has no id")?;
    let answer = client.get(&format!("{BASE}/runs/{id}/wait")).await?.ok()?;
    ensure!(answer["run"]["status"] == "success", "the answer is {answer}");
    let said = answer["output"]["values"].to_string();
    ensure!(said.contains("hello, who is there?"), "the answer is {answer}");
    Ok(())
}
