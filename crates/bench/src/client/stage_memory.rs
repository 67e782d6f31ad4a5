//! The memory of the stages of sandboxes: of each, and of many agents at once, with holders and without.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use trilogue::STAGE_COMMAND;
use trilogue_domain::ThreadId;

use super::hosted::run;
use super::server_session::ServerSession;
use crate::memory::mib;
use crate::report::Report;

/// How many agents are hosted at once.
const AGENTS: u64 = 100;
/// How many of them start at once.
const STARTS_AT_ONCE: u64 = 4;
/// The largest number of processes of one agent. One principal has three quarters of it.
const MAX_PROCESSES: u64 = 2 * AGENTS;

/// Measures the stages of many agents, with a holder in each and without.
pub(super) async fn measure_holders(report: &mut Report) -> Result<()> {
    for setting in ["outlive = true", "outlive = false"] {
        let settings = format!(
            "sandbox = \"auto\"\nanswer_settle = \"0s\"\nmax_processes = {MAX_PROCESSES}\n{setting}\n\n[runtime]\nmax_agent_processes = {MAX_PROCESSES}"
        );
        let session = ServerSession::start_flood("memory:", &settings).await?;
        for _ in 0..AGENTS / STARTS_AT_ONCE {
            let threads: Vec<_> = (0..STARTS_AT_ONCE).map(|_| ThreadId::generate()).collect();
            try_join_all(threads.iter().map(|thread| run(&session, thread))).await?;
        }
        let status = session.server.client().get("/api/v1/status").await?.ok()?;
        let agents = status["agents"]["processes"].as_u64().context("no processes are counted")?;
        ensure!(agents >= AGENTS, "{agents} agents run");
        let stages = private_memory(session.dir());
        session.stop().await?;
        let sum = stages.iter().sum::<u64>();
        let what = format!("{setting}, {} stages of {agents} agents, private memory", stages.len());
        let each = sum.checked_div(agents).unwrap_or_default();
        report.line(&what, &format!("{}, {each} KiB for an agent", mib(sum)));
    }
    Ok(())
}

/// The private memory of each stage of a server in this folder, in KiB.
pub(super) fn private_memory(dir: &Path) -> Vec<u64> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let folder = dir.as_os_str().as_encoded_bytes();
    let is_stage = |line: &[u8]| {
        let words: Vec<_> = line.split(|byte| *byte == 0).collect();
        // The path of its policy is in the state folder of the server.
        words.get(1) == Some(&STAGE_COMMAND.as_bytes())
            && words.iter().any(|word| word.starts_with(folder))
    };
    let stages =
        processes.filter(|path| fs::read(path.join("cmdline")).is_ok_and(|it| is_stage(&it)));
    let rollups = stages.filter_map(|path| fs::read_to_string(path.join("smaps_rollup")).ok());
    let private = rollups.map(|rollup| {
        let lines = rollup.lines().filter(|line| line.starts_with("Private_"));
        lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    });
    private.collect()
}
