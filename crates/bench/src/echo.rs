//! Runs of `echo` through `/api/v1`, compared with a bare handler that parses and returns the same
//! JSON.

use anyhow::Result;
use serde_json::json;
use trilogue_testkit::Server;

use crate::cost::{self, ProcessorTime};
use crate::peer::Peer;
use crate::report::{self, Report, median};
use crate::{durable, load};

/// How many connections ask at once.
const CONNECTIONS: usize = 16;
/// How many requests one measurement has, for memory and the peer.
const REQUESTS: u64 = 20_000;
/// How many it has with a disk.
const DURABLE_REQUESTS: u64 = 5_000;
/// The least share of the peer's requests.
const SHARE: f64 = 0.4;
/// The path that creates runs.
pub(crate) const RUNS: &str = "/api/v1/runs";
/// The least runs that share one commit of the disk.
const RUNS_PER_COMMIT: f64 = 6.0;

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let body =
        json!({"agent": "echo", "input": "hello, who is there?", "mode": "wait"}).to_string();
    let dir = tempfile::tempdir_in(report::folder())?;
    let server = Server::start(dir.path(), &report::server_options("memory:")?).await?;
    let answer = server.client().post(RUNS, &serde_json::from_str(&body)?).await?;
    answer.ok()?;
    let peer = Peer::start("json", &String::from_utf8_lossy(&answer.body)).await?;

    let ours = load::post(server.home().address(), RUNS, server.token(), &body);
    let theirs = load::post(peer.address(), RUNS, server.token(), &body);
    let (mut our_rates, mut their_rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut costs = Vec::new();
    for _ in 0..report.runs {
        let them = load::hammer(peer.address(), theirs.clone(), CONNECTIONS, REQUESTS).await?;
        let cost = ProcessorTime::of(&server)?;
        let us = load::hammer(server.home().address(), ours.clone(), CONNECTIONS, REQUESTS).await?;
        costs.push(cost.per(REQUESTS)?);
        our_rates.push(us.per_second());
        their_rates.push(them.per_second());
        ratios.push(us.per_second() / them.per_second());
    }
    report.line(
        "a bare handler of the same JSON, requests a second",
        &format!("{:.0}", median(their_rates)),
    );
    report.line("echo with memory:, runs a second", &format!("{:.0}", median(our_rates)));
    cost::print_processor_time(report, "echo with memory:", costs);
    cost::print_allocations(report, "echo with memory:", "memory:", async |server, runs| {
        let request = load::post(server.home().address(), RUNS, server.token(), &body);
        load::hammer(server.home().address(), request, CONNECTIONS, runs).await.map(drop)
    })
    .await?;
    let ratio = median(ratios);
    report.target(
        "echo with memory:, share of the peer",
        &format!("{ratio:.2}"),
        ratio >= SHARE,
        ">= 0.40",
    );
    drop(peer);
    server.stop().await?;
    durable(report, &body).await
}

/// Repeats the measurement with a disk, and compares it with the disk's own commit.
async fn durable(report: &mut Report, body: &str) -> Result<()> {
    let begin = async |_: &Server| Ok(());
    let round = async |server: &Server| {
        let address = server.home().address();
        let request = load::post(address, RUNS, server.token(), body);
        Ok(load::hammer(address, request, CONNECTIONS, DURABLE_REQUESTS).await?.per_second())
    };
    let (runs, shared) = (DURABLE_REQUESTS, RUNS_PER_COMMIT);
    let durable = durable::measure(report, "echo", runs, shared, begin, round).await?;
    let value = format!("{:.1}", durable.runs_in_commit);
    report.line("the same in the time of one bare commit", &value);
    Ok(())
}
