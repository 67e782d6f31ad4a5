//! Runs with a disk, compared with the disk's own commit.

use std::time::Duration;

use anyhow::Result;
use trilogue_testkit::Server;

use crate::cost::{self, ProcessorTime};
use crate::disk;
use crate::report::{self, Report, median};

/// The approximate bytes that a run of `echo` appends.
const FRAME_BYTES: usize = 512;

#[derive(Debug)]
pub(crate) struct Durable {
    /// Runs a second.
    pub(crate) rate: f64,
    /// How long the disk takes for a commit.
    pub(crate) commit: Duration,
    /// How many runs end while it does.
    pub(crate) runs_in_commit: f64,
}

/// Measures rounds of `runs` runs on a server that `begin` has tried; `round` returns its runs per second. On average at least `shared` runs must
/// share a commit.
pub(crate) async fn measure(
    report: &mut Report,
    name: &str,
    runs: u64,
    shared: f64,
    begin: impl AsyncFn(&Server) -> Result<()>,
    round: impl AsyncFn(&Server) -> Result<f64>,
) -> Result<Durable> {
    let dir = tempfile::tempdir_in(report::folder())?;
    let options = report::server_options("sqlite:store/trilogue.db")?;
    let server = Server::start(dir.path(), &options).await?;
    begin(&server).await?;
    let before = commits(&server).await?;
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    let (mut latencies, mut runs_in_commit) = (Vec::new(), Vec::new());
    for _ in 0..report.runs {
        let commit = disk::measure(report, FRAME_BYTES)?.p50.as_secs_f64();
        let cost = ProcessorTime::of(&server)?;
        let rate = round(&server).await?;
        costs.push(cost.per(runs)?);
        rates.push(rate);
        latencies.push(commit);
        runs_in_commit.push(rate * commit);
    }
    let made = commits(&server).await?.saturating_sub(before).max(1);
    server.stop().await?;
    let rate = median(rates);
    report.line(&format!("{name} with SQLite and fsync, runs a second"), &format!("{rate:.0}"));
    cost::print_processor_time(report, &format!("{name} with SQLite and fsync"), costs);
    let per_commit = (report.runs as u64 * runs) as f64 / made as f64;
    let what = format!("{name} with SQLite, runs for each commit made");
    let (value, target) = (format!("{per_commit:.1}"), format!(">= {shared}"));
    report.target(&what, &value, per_commit >= shared, &target);
    let commit = Duration::from_secs_f64(median(latencies));
    Ok(Durable { rate, commit, runs_in_commit: median(runs_in_commit) })
}

async fn commits(server: &Server) -> Result<u64> {
    let status = server.client().get("/api/v1/status").await?.ok()?;
    Ok(status["store"]["commits"].as_u64().unwrap_or_default())
}
