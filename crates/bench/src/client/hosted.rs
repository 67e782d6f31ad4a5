//! What settings of a hosted agent cost: the wait for late output, and the sandbox.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::task::block_in_place;
use trilogue_domain::ThreadId;

use super::rates::median_of;
use super::server_session::ServerSession;
use super::stage_memory::{measure_holders, private_memory};
use crate::echo::RUNS;
use crate::report::{Report, millis, percentile, spread};

/// How many turns an editor takes in a row.
const TURNS: u64 = 1_000;
/// How many runs are timed, one after the other.
const LATENCIES: usize = 50;
/// How many threads get a process of the agent, in each round.
const STARTS: usize = 8;
/// How much longer the start of an agent may take in a sandbox.
const MORE_START: Duration = Duration::from_millis(15);
/// The least share of the turns without a sandbox that remains with it.
const TURN_SHARE: f64 = 0.98;
/// How much private memory a stage of a sandbox may have, in KiB.
const STAGE_KIB: u64 = 4 * 1024;

/// The figures of one setting in one round.
struct Round {
    /// Turns of an editor in a row, a second: its response does not wait.
    turns: f64,
    /// From the request for a run to its end.
    runs: Vec<Duration>,
    /// The same for the first run of a thread, which starts a process.
    starts: Vec<Duration>,
}

/// Measures `answer_settle` with its default and without it.
pub(crate) async fn measure_settle(report: &mut Report) -> Result<()> {
    let settings = ["150ms", "0s"].map(|settle| format!("answer_settle = \"{settle}\""));
    measure(report, &settings).await.map(drop)
}

/// Measures a sandbox and none.
pub(crate) async fn measure_sandbox(report: &mut Report) -> Result<()> {
    let settings =
        ["auto", "off"].map(|mode| format!("sandbox = \"{mode}\"\nanswer_settle = \"0s\""));
    let ([with, without], stages) = measure(report, &settings).await?;
    let start = |rounds: &[Round]| percentile(&all(rounds, |round| &round.starts), 0.50);
    let more = start(&with).saturating_sub(start(&without));
    report.target("more for a start, p50", &millis(more), more <= MORE_START, "<= 15 ms");
    let pairs: Vec<_> = with.iter().zip(&without).collect();
    let share = median_of(&pairs, |(with, without)| with.turns / without.turns);
    report.target("share of turns", &format!("{share:.2}"), share >= TURN_SHARE, ">= 0.98");
    let mean = stages.iter().sum::<u64>().checked_div(stages.len() as u64);
    let mean = mean.context("nothing ran in a sandbox on this machine")?;
    let what = format!("private memory of a stage, mean of {}", stages.len());
    report.target(&what, &format!("{mean} KiB"), mean < STAGE_KIB, "< 4 MiB");
    measure_holders(report).await
}

/// Measures an editor's turns, and the latency of runs through `/api/v1`, with each of the settings in turn. Returns the rounds of each, and the private memory of the stages of sandboxes.
async fn measure(
    report: &mut Report,
    settings: &[String; 2],
) -> Result<([Vec<Round>; 2], Vec<u64>)> {
    let mut servers = Vec::new();
    for setting in settings {
        servers.push(ServerSession::start_flood("memory:", setting).await?);
    }
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..report.runs {
        for (server, rounds) in servers.iter_mut().zip(&mut rounds) {
            let (turns, _) = block_in_place(|| server.turns(TURNS))?;
            let (runs, starts) = (latencies(server).await?, starts(server).await?);
            rounds.push(Round { turns, runs, starts });
        }
    }
    let stages = servers.iter().flat_map(|server| private_memory(server.dir())).collect();
    for server in servers {
        server.stop().await?;
    }
    for (setting, rounds) in settings.iter().zip(&rounds) {
        let setting = setting.lines().next().unwrap_or_default();
        let turns = median_of(rounds, |round| round.turns);
        report.line(&format!("{setting}, turns in a row a second"), &format!("{turns:.0}"));
        for (what, times) in [
            ("a run", all(rounds, |round| &round.runs)),
            ("a run that starts the agent", all(rounds, |round| &round.starts)),
        ] {
            report.line(&format!("{setting}, {what}, p50 / p99"), &spread(&times));
        }
    }
    Ok((rounds, stages))
}

/// The times of all rounds.
fn all(rounds: &[Round], times: impl Fn(&Round) -> &[Duration]) -> Vec<Duration> {
    rounds.iter().flat_map(times).copied().collect()
}

/// The times of runs on one thread, one after the other: each has ended when the next begins.
async fn latencies(session: &ServerSession) -> Result<Vec<Duration>> {
    let thread = ThreadId::generate();
    // The first run starts the agent's process.
    run(session, &thread).await?;
    let mut times = Vec::with_capacity(LATENCIES);
    for _ in 0..LATENCIES {
        times.push(run(session, &thread).await?);
    }
    Ok(times)
}

/// The times of the first runs of new threads.
async fn starts(session: &ServerSession) -> Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(STARTS);
    for _ in 0..STARTS {
        times.push(run(session, &ThreadId::generate()).await?);
    }
    Ok(times)
}

pub(super) async fn run(session: &ServerSession, thread: &ThreadId) -> Result<Duration> {
    let body = json!({
        "agent": "flood", "input": "flood 1", "mode": "wait", "thread_id": thread.as_str(),
        "create_thread": true,
    });
    let begun = Instant::now();
    let run = session.server.client().post(RUNS, &body).await?.ok()?;
    ensure!(run["status"] == "completed", "{run}");
    Ok(begun.elapsed())
}
