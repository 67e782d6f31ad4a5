//! The Agent Communication Protocol: runs of an echo compared with the reference server, and a long stream compared with
//! the native protocol.

mod stream;

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use trilogue_testkit::Server;

use crate::cost::{self, ProcessorTime};
use crate::python::Python;
use crate::report::{self, Report, median, millis};
use crate::{durable, load};

pub(crate) use stream::{PartsServer, read_parts, serve};

/// How many connections ask at once.
const CONNECTIONS: usize = 16;
/// How long the reference server is measured, from its start on.
const REFERENCE_TIME: Duration = Duration::from_secs(20);
/// How many requests one measurement has with memory.
const REQUESTS: u64 = 20_000;
/// How many it has with a disk.
const DURABLE_REQUESTS: u64 = 5_000;
/// The least that we do with memory, in times of the reference server.
const MEMORY_TIMES: f64 = 200.0;
/// The least rate with a disk whose commits are quick, in multiples of the reference server's.
const DURABLE_TIMES: f64 = 50.0;
/// Which commits are quick.
const QUICK_COMMIT: Duration = Duration::from_micros(500);
/// The least runs that share one commit of the disk.
const RUNS_PER_COMMIT: f64 = 6.0;
/// The path that creates runs, below the server's address.
pub(crate) const RUNS: &str = "/communication/runs";

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let body = json!({
        "agent_name": "echo", "mode": "sync",
        "input": [{"role": "user", "parts": [{"content_type": "text/plain", "content": "hello, who is there?"}]}],
    });
    let theirs = reference(&body).await?;
    let what = "the reference server's sync echo, runs a second";
    report.line(what, &format!("{theirs:.1}"));
    in_memory(report, &body, theirs).await?;
    durable(report, &body, theirs).await?;
    stream::measure(report).await
}

/// Runs a second that a fresh reference server makes, its mean over the first seconds.
async fn reference(body: &Value) -> Result<f64> {
    let server = Python::start("communication/reference", &[]).await?;
    let request = load::post(server.address(), "/runs", "none", &body.to_string());
    let done = load::hammer_for(server.address(), request, CONNECTIONS, REFERENCE_TIME).await?;
    Ok(done.per_second())
}

async fn in_memory(report: &mut Report, body: &Value, theirs: f64) -> Result<()> {
    let dir = tempfile::tempdir_in(report::folder())?;
    let server = Server::start(dir.path(), &report::server_options("memory:")?).await?;
    works(&server, body).await?;
    let address = server.home().address();
    let request = load::post(address, RUNS, server.token(), &body.to_string());
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..report.runs {
        let cost = ProcessorTime::of(&server)?;
        let done = load::hammer(address, request.clone(), CONNECTIONS, REQUESTS).await?;
        costs.push(cost.per(REQUESTS)?);
        rates.push(done.per_second());
    }
    server.stop().await?;
    let ours = median(rates);
    report.line("ours with memory:, runs a second", &format!("{ours:.0}"));
    cost::print_processor_time(report, "ours with memory:", costs);
    cost::print_allocations(report, "ours with memory:", "memory:", async |server, runs| {
        let address = server.home().address();
        let request = load::post(address, RUNS, server.token(), &body.to_string());
        load::hammer(address, request, CONNECTIONS, runs).await.map(drop)
    })
    .await?;
    let times = ours / theirs;
    let value = format!("{times:.0}");
    let what = "ours with memory:, in times of the reference";
    report.target(what, &value, times >= MEMORY_TIMES, ">= 200");
    Ok(())
}

/// Repeats the measurement with a disk, and compares it with the disk's own commit.
async fn durable(report: &mut Report, body: &Value, theirs: f64) -> Result<()> {
    let begin = async |server: &Server| works(server, body).await;
    let round = async |server: &Server| {
        let address = server.home().address();
        let request = load::post(address, RUNS, server.token(), &body.to_string());
        Ok(load::hammer(address, request, CONNECTIONS, DURABLE_REQUESTS).await?.per_second())
    };
    let (runs, shared) = (DURABLE_REQUESTS, RUNS_PER_COMMIT);
    let durable = durable::measure(report, "ours", runs, shared, begin, round).await?;
    let times = durable.rate / theirs;
    let (what, value) = ("ours with SQLite, in times of the reference", format!("{times:.0}"));
    if durable.commit < QUICK_COMMIT {
        report.target(what, &value, times >= DURABLE_TIMES, ">= 50");
    } else {
        report.line(what, &value);
        report.line("no target for that: the disk's commit takes", &millis(durable.commit));
    }
    Ok(())
}

/// Checks that the server answers like the reference: complete, with the sent text.
async fn works(server: &Server, body: &Value) -> Result<()> {
    let run = server.client().post(RUNS, body).await?.ok()?;
    ensure!(run["status"] == "completed", "the run is {run}");
    let said = &run["output"][0]["parts"][0]["content"];
    ensure!(*said == body["input"][0]["parts"][0]["content"], "the echo is {run}");
    Ok(())
}
