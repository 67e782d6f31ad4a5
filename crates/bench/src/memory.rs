//! Resident memory: idle, and after many runs.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use trilogue_testkit::{Server, until};

use crate::load;
use crate::report::{self, Report};

/// How many runs are made.
const RUNS: u64 = 100_000;
/// The most that the idle server may have, in KiB.
const IDLE_KIB: u64 = 30 * 1024;
/// The most that it may have more afterwards, in KiB.
const MORE_KIB: u64 = 20 * 1024;
/// How many connections make the runs.
const CONNECTIONS: usize = 64;
/// How long the server may take to release memory that it no longer needs.
const SETTLE: Duration = Duration::from_secs(30);

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let dir = tempfile::tempdir_in(report::folder())?;
    let options = report::server_options("sqlite:store/trilogue.db")?;
    let server = Server::start(dir.path(), &options).await?;
    server.client().get("/api/v1/agents").await?.ok()?;
    let idle = resident(&server)?;
    report.target("idle, SQLite", &mib(idle), idle < IDLE_KIB, "< 30 MiB");

    let body =
        json!({"agent": "echo", "input": "hello, who is there?", "mode": "wait"}).to_string();
    let address = server.home().address();
    let request = load::post(address, "/api/v1/runs", server.token(), &body);
    let done = load::hammer(address, request, CONNECTIONS, RUNS).await?;
    report.line(&format!("{RUNS} runs, a second"), &format!("{:.0}", done.per_second()));

    let allowed = idle + MORE_KIB;
    let settled = until("memory to settle", SETTLE, || async {
        resident(&server).ok().filter(|resident| *resident <= allowed)
    });
    let after = match settled.await {
        Ok(after) => after,
        Err(_) => resident(&server)?,
    };
    let more = after.saturating_sub(idle);
    report.target(&format!("more after {RUNS} runs"), &mib(more), more <= MORE_KIB, "<= 20 MiB");
    Ok(())
}

/// Resident memory of a server, in KiB.
pub(crate) fn resident(server: &Server) -> Result<u64> {
    let pid = server.pid().context("the server is gone")?;
    resident_of(&fs::read_to_string(format!("/proc/{pid}/status"))?)
}

/// The same from the text of a process's status.
pub(crate) fn resident_of(status: &str) -> Result<u64> {
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let value = line.split_whitespace().nth(1).context("no value")?;
    Ok(value.parse()?)
}

pub(crate) fn mib(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}
