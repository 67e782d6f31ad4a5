//! What the wait for late output costs: `answer_settle` with its default and without it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::task::block_in_place;
use trilogue_domain::ThreadId;

use super::rates::median_of;
use super::server_session::ServerSession;
use crate::echo::RUNS;
use crate::report::{Report, millis, percentile};

/// The settings that are compared. The first is the default.
const SETTLES: [&str; 2] = ["150ms", "0s"];
/// How many turns an editor takes in a row.
const TURNS: u64 = 1_000;
/// How many runs are timed, one after the other.
const LATENCIES: usize = 50;

/// The figures of one setting in one round.
struct Round {
    /// Turns of an editor in a row, a second: its response does not wait.
    turns: f64,
    /// From the request for a run to its end.
    runs: Vec<Duration>,
}

/// Measures an editor's turns and the latency of runs through `/api/v1`, with both settings in turn.
pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let mut servers = Vec::new();
    for settle in SETTLES {
        let setting = format!("answer_settle = \"{settle}\"");
        servers.push(ServerSession::start_flood("memory:", &setting).await?);
    }
    let mut rounds: Vec<Vec<Round>> = SETTLES.iter().map(|_| Vec::new()).collect();
    for _ in 0..report.runs {
        for (server, rounds) in servers.iter_mut().zip(&mut rounds) {
            let (turns, _) = block_in_place(|| server.turns(TURNS))?;
            rounds.push(Round { turns, runs: latencies(server).await? });
        }
    }
    for server in servers {
        server.stop().await?;
    }
    for (settle, rounds) in SETTLES.iter().zip(&rounds) {
        let turns = median_of(rounds, |round| round.turns);
        let what = format!("answer_settle of {settle}, turns in a row a second");
        report.line(&what, &format!("{turns:.0}"));
        let all: Vec<_> = rounds.iter().flat_map(|round| round.runs.iter().copied()).collect();
        let times = [0.50, 0.99].map(|share| millis(percentile(&all, share)));
        let what = format!("answer_settle of {settle}, a run, p50 / p99");
        report.line(&what, &times.join(" / "));
    }
    Ok(())
}

/// The times of runs on one thread, one after the other: each has ended when the next begins.
async fn latencies(session: &ServerSession) -> Result<Vec<Duration>> {
    let client = session.server.client();
    let body = json!({
        "agent": "flood", "input": "flood 1", "mode": "wait",
        "thread_id": ThreadId::generate().as_str(), "create_thread": true,
    });
    // The first run starts the agent's process.
    client.post(RUNS, &body).await?.ok()?;
    let mut times = Vec::with_capacity(LATENCIES);
    for _ in 0..LATENCIES {
        let begun = Instant::now();
        let run = client.post(RUNS, &body).await?.ok()?;
        times.push(begun.elapsed());
        ensure!(run["status"] == "completed", "{run}");
    }
    Ok(times)
}
