//! Whether the server removes stateless runs as fast as a steady load makes them.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::time::{Instant, sleep_until};
use trilogue_testkit::Server;

use crate::report::{self, Report, median};
use crate::{connect, load};

/// How many connections make the runs.
const CONNECTIONS: usize = 64;
/// How long the load lasts.
const TIME: Duration = Duration::from_secs(24);
/// How long a run is kept, and how often the server looks for runs to remove: with both, this many seconds of runs are kept.
const KEPT: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_secs(1);
/// The most seconds of runs that may remain at the end of the load. This includes runs that the removal has not reached yet.
const MOST_KEPT: f64 = 6.0;

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    for (store, what) in [("sqlite:store/trilogue.db", "SQLite"), ("memory:", "memory:")] {
        let (mut rates, mut kept) = (Vec::new(), Vec::new());
        for _ in 0..report.runs {
            let (rate, left) = load(store, TIME).await?;
            rates.push(rate);
            kept.push(left as f64 / rate);
        }
        let rate = format!("{:.0}", median(rates));
        report.line(&format!("stateless runs a second, {what}"), &rate);
        let kept = median(kept);
        report.target(
            &format!("kept at the end of the load, {what}"),
            &format!("{kept:.1} s of runs"),
            kept <= MOST_KEPT,
            "<= 6 s",
        );
    }
    Ok(())
}

/// The rate of a load, and how many runs were there when it ended.
async fn load(store: &str, time: Duration) -> Result<(f64, u64)> {
    let dir = tempfile::tempdir_in(report::folder())?;
    let settings = format!(
        "\n[runtime]\nkeep_stateless_runs_for = \"{}s\"\nretention_interval = \"{}s\"\n",
        KEPT.as_secs(),
        INTERVAL.as_secs()
    );
    let options = trilogue_testkit::ServerOptions { settings, ..report::server_options(store)? };
    let server = Server::start(dir.path(), &options).await?;
    // A run through `/api/v1` makes a thread that is kept; this one is stateless.
    let body = json!({
        "agent_id": "echo", "input": {"message": "hello, who is there?"}, "on_completion": "delete",
    });
    let address = server.home().address();
    let path = format!("{}/runs/wait", connect::BASE);
    let request = load::post(address, &path, server.token(), &body.to_string());
    let end = Instant::now() + time;
    let looked = async {
        // Just before the end, under load.
        sleep_until(end - Duration::from_millis(200)).await;
        runs(&server).await
    };
    let (done, left) = tokio::join!(load::hammer_for(address, request, CONNECTIONS, time), looked);
    server.stop().await?;
    Ok((done?.per_second(), left?))
}

async fn runs(server: &Server) -> Result<u64> {
    let status = server.client().get("/api/v1/status").await?.ok()?;
    status["store"]["runs"].as_u64().context("the status counts no runs")
}
