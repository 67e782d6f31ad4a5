//! The cost of an operation at the server: processor time, and the number of allocations.
//!
//! Both hold on a noisy machine, where rates do not.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::json;
use trilogue_testkit::{Server, ServerOptions};

use crate::report::{self, Report, median};

/// The number of operations before the measurement, which make the allocations of the start.
const WARM_UP: u64 = 1_000;
/// How many are counted then.
const COUNTED: u64 = 4_000;
/// The unit of the system's processor time, in microseconds: the same on every Linux machine.
const MICROS_PER_TICK: f64 = 1e4;
/// The server with a counting allocator.
const COUNTING_SERVER: &str = "trilogue-counted";

/// The processor time of a server, from a moment on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessorTime {
    pid: u32,
    /// The processor time of the process at the start, in microseconds.
    before: f64,
}

// === impl ProcessorTime ===

impl ProcessorTime {
    /// Counts from now on.
    pub(crate) fn of(server: &Server) -> Result<Self> {
        let pid = server.pid().context("the server is gone")?;
        Ok(Self { pid, before: used_micros(pid)? })
    }

    /// Returns the processor time per operation since the start, in microseconds.
    pub(crate) fn per(self, operations: u64) -> Result<f64> {
        Ok((used_micros(self.pid)? - self.before) / operations as f64)
    }
}

/// Prints the processor time of an operation, from several measurements.
pub(crate) fn print_processor_time(report: &mut Report, what: &str, micros: Vec<f64>) {
    report.line(&format!("{what}, processor time"), &format!("{:.1} us", median(micros)));
}

/// Prints how often a server with this store asks for memory for one of the operations that `work` does.
pub(crate) async fn print_allocations(
    report: &mut Report,
    what: &str,
    store: &str,
    work: impl AsyncFn(&Server, u64) -> Result<()>,
) -> Result<()> {
    let dir = tempfile::tempdir_in(report::folder())?;
    let binary = Some(sibling_path(COUNTING_SERVER)?);
    let options = ServerOptions { binary, ..report::server_options(store)? };
    let server = Server::start(dir.path(), &options).await?;
    work(&server, WARM_UP).await?;
    let mut counts = Vec::new();
    for _ in 0..report.runs {
        let before = allocations(&server).await?;
        work(&server, COUNTED).await?;
        let made = allocations(&server).await?.saturating_sub(before);
        counts.push(made as f64 / COUNTED as f64);
    }
    server.stop().await?;
    report.line(&format!("{what}, allocations"), &format!("{:.1}", median(counts)));
    Ok(())
}

/// How often a counting server has asked for memory so far.
pub(crate) async fn allocations(server: &Server) -> Result<u64> {
    let question = json!({"agent": "allocations", "input": "how often?", "mode": "wait"});
    let run = server.client().post("/api/v1/runs", &question).await?.ok()?;
    let text = run["output"][0]["parts"][0]["content"].as_str().context("the agent is mute")?;
    Ok(text.parse()?)
}

/// Returns the path of a program in this program's folder.
pub(crate) fn sibling_path(program: &str) -> Result<PathBuf> {
    let me = std::env::current_exe()?;
    Ok(me.parent().context("the program lies in no folder")?.join(program))
}

/// The processor time that a process has used so far, its threads included, in microseconds.
fn used_micros(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold spaces; the 14th and 15th value are time in user mode and in the kernel.
    let (_, values) = stat.rsplit_once(") ").context("no name in the status")?;
    let ticks = |place: usize| -> Result<f64> {
        let value = values.split(' ').nth(place).context("the status is short")?;
        Ok(value.parse::<u64>()? as f64)
    };
    Ok((ticks(11)? + ticks(12)?) * MICROS_PER_TICK)
}
