//! Measures the Agent Client Protocol from an agent's standard streams through the server to a client's standard streams, and for comparison the official
//! libraries from agent to client with nothing between.
//!
//! The compared programs are measured in turn, round by round, so that other load on the machine affects all alike.

mod agent;
mod allocations;
mod editor;
mod hosted;
mod link;
mod network;
mod peers;
mod rates;
mod server_session;
mod stage_memory;

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tokio::task::block_in_place;

use crate::cost;
use crate::disk::{self, Commit};
use crate::report::{DISK, Report};
use editor::Editor;
use peers::Peer;
use rates::{Ages, Rates, median_of};

pub(crate) use agent::serve as serve_agent;
pub(crate) use hosted::{measure_sandbox, measure_settle};
pub(crate) use network::measure as measure_network;
pub(crate) use server_session::ServerSession;

/// How many updates one turn of a measurement has.
const UPDATES: u64 = 200_000;
/// How many with a disk.
const DURABLE_UPDATES: u64 = 100_000;
/// How many turns are taken in a row, of one update each.
const TURNS: u64 = 5_000;
/// How many with a disk.
const DURABLE_TURNS: u64 = 1_000;
/// The approximate bytes that one paced update appends.
const FRAME_BYTES: usize = 512;
/// The least updates a second with memory, in times of the official Rust library.
const UPDATE_TIMES: f64 = 5.0;
/// The least turns in a row a second with memory, in times of the official Rust library.
const TURN_TIMES: f64 = 2.0;
/// The least rate with a disk, as a share of the memory store's.
const DISK_SHARE: f64 = 0.5;
/// The least with the official library at both ends, in times of its conductor: updates, turns, and turns with a disk.
const UPDATES_OF_CONDUCTOR: f64 = 1.5;
const TURNS_OF_CONDUCTOR: f64 = 1.1;
const DURABLE_TURNS_OF_CONDUCTOR: f64 = 0.6;
/// The most that lies between agent and client for one update with memory.
const ADDED: Duration = Duration::from_micros(200);
/// The most time beyond twice the disk's commit.
const BESIDE_COMMITS: Duration = Duration::from_micros(500);

/// The figures of one round.
#[derive(Clone, Debug)]
struct Round {
    /// Of the peers, in their order.
    peers: Vec<Rates>,
    /// Of the official Rust library at both ends, with its conductor and with our server between.
    conductor: Rates,
    official_memory: Rates,
    official_disk: Rates,
    memory: Rates,
    disk: Rates,
    /// With nothing between.
    direct: Ages,
    memory_ages: Ages,
    disk_ages: Ages,
    commit: Commit,
    /// Commits for each turn in a row.
    commits: f64,
}

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    peers::install().await?;
    let peers = peers::all()?;
    let mut memory = ServerSession::start("trilogue", "memory:").await?;
    let mut disk = ServerSession::start("trilogue", DISK).await?;
    let mut direct = Editor::launch(Command::new(std::env::current_exe()?).arg("agent"))?;
    // Separate servers: a store in memory forgets the sessions of one client for those of another.
    let official = [
        ServerSession::start("trilogue", "memory:").await?,
        ServerSession::start("trilogue", DISK).await?,
    ];
    for editor in [&mut memory.editor, &mut disk.editor, &mut direct] {
        editor.prompt("flood 20000", false)?;
    }
    let mut rounds = Vec::new();
    for _ in 0..report.runs {
        rounds.push(round(report, &peers, &official, &mut memory, &mut disk, &mut direct).await?);
    }
    direct.close()?;
    for ours in official.into_iter().chain([memory, disk]) {
        ours.stop().await?;
    }
    say_rates(report, &peers, &rounds);
    judge_rates(report, &rounds);
    judge_between(report, &rounds);
    judge_ages(report, &rounds);
    allocations::measure(report).await
}

async fn round(
    report: &mut Report,
    peers: &[Peer],
    official: &[ServerSession; 2],
    memory: &mut ServerSession,
    disk: &mut ServerSession,
    direct: &mut Editor,
) -> Result<Round> {
    let rates = block_in_place(|| memory.rates(UPDATES, TURNS))?;
    let rust = &peers[peers::RUST];
    let chain = peers::conductor(&peers::rust_program()?)?;
    let conductor = block_in_place(|| rust.rates_with(&chain, |_| {}))?;
    let official_memory = block_in_place(|| official[0].official_rates(rust))?;
    let official_disk = block_in_place(|| official[1].official_rates(rust))?;
    let peers = block_in_place(|| peers.iter().map(Peer::rates).collect::<Result<_>>())?;
    let before = disk.commits().await?;
    let (turns, turn_micros) = block_in_place(|| disk.turns(DURABLE_TURNS))?;
    let commits = disk.commits().await?.saturating_sub(before) as f64 / DURABLE_TURNS as f64;
    let (updates, update_micros) = block_in_place(|| disk.updates(DURABLE_UPDATES))?;
    let (direct, memory_ages) = block_in_place(|| anyhow::Ok((direct.ages()?, memory.ages()?)))?;
    let commit = disk::measure(report, FRAME_BYTES)?;
    Ok(Round {
        peers,
        conductor,
        official_memory,
        official_disk,
        memory: rates,
        disk: Rates { updates, turns, update_micros, turn_micros },
        direct: Ages::of(&direct),
        memory_ages: Ages::of(&memory_ages),
        disk_ages: Ages::of(&block_in_place(|| disk.ages())?),
        commit,
        commits,
    })
}

fn say_rates(report: &mut Report, peers: &[Peer], rounds: &[Round]) {
    for (index, peer) in peers.iter().enumerate() {
        let of = |figure: fn(&Rates) -> f64| median_of(rounds, |round| figure(&round.peers[index]));
        let line = |what: &str| format!("{}, client and agent alone, {what} a second", peer.name);
        report.line(&line("updates"), &format!("{:.0}", of(|rates| rates.updates)));
        report.line(&line("turns in a row"), &format!("{:.0}", of(|rates| rates.turns)));
    }
    for (store, of) in
        [("memory:", (|round| round.memory) as fn(&Round) -> Rates), ("SQLite", |round| round.disk)]
    {
        let updates = median_of(rounds, |round| of(round).updates);
        let turns = median_of(rounds, |round| of(round).turns);
        report.line(&format!("{store}, updates a second"), &format!("{updates:.0}"));
        report.line(&format!("{store}, turns in a row a second"), &format!("{turns:.0}"));
        let micros = rounds.iter().map(|round| of(round).update_micros).collect();
        cost::print_processor_time(report, &format!("{store}, an update"), micros);
        let micros = rounds.iter().map(|round| of(round).turn_micros).collect();
        cost::print_processor_time(report, &format!("{store}, a turn"), micros);
    }
    let commits = median_of(rounds, |round| round.commits);
    report.line("SQLite, commits for a turn", &format!("{commits:.1}"));
}

fn judge_rates(report: &mut Report, rounds: &[Round]) {
    let rust = |round: &Round| round.peers[peers::RUST];
    let times = median_of(rounds, |round| round.memory.updates / rust(round).updates);
    let what = "memory:, updates a second, in times of the Rust library";
    report.target(what, &format!("{times:.1}"), times >= UPDATE_TIMES, ">= 5");
    let times = median_of(rounds, |round| round.memory.turns / rust(round).turns);
    let what = "memory:, turns in a row, in times of the Rust library";
    report.target(what, &format!("{times:.1}"), times >= TURN_TIMES, ">= 2");
    let share = median_of(rounds, |round| round.disk.updates / round.memory.updates);
    let what = "SQLite, updates a second, share of memory";
    report.target(what, &format!("{share:.2}"), share >= DISK_SHARE, ">= 0.50");
    let share = median_of(rounds, |round| round.disk.turns / round.memory.turns);
    let what = "SQLite, turns in a row, share of memory";
    report.target(what, &format!("{share:.2}"), share >= DISK_SHARE, ">= 0.50");
}

/// Compares the official library at both ends with this server between them, and with the library's own conductor between them.
fn judge_between(report: &mut Report, rounds: &[Round]) {
    for (what, of) in [
        ("nothing", (|round| round.peers[peers::RUST]) as fn(&Round) -> Rates),
        ("the conductor", |round| round.conductor),
        ("memory:", |round| round.official_memory),
        ("SQLite", |round| round.official_disk),
    ] {
        let updates = median_of(rounds, |round| of(round).updates);
        let turns = median_of(rounds, |round| of(round).turns);
        let what = format!("the Rust library, {what} between, updates / turns a second");
        report.line(&what, &format!("{updates:.0} / {turns:.0}"));
    }
    let mut judge = |what: &str, least: f64, times: f64| {
        let what = format!("{what}, in times of the conductor");
        report.target(&what, &format!("{times:.2}"), times >= least, &format!(">= {least:.1}"));
    };
    let updates = |round: &Round| round.official_memory.updates / round.conductor.updates;
    judge("memory: between, updates", UPDATES_OF_CONDUCTOR, median_of(rounds, updates));
    let turns = |round: &Round| round.official_memory.turns / round.conductor.turns;
    judge("memory: between, turns", TURNS_OF_CONDUCTOR, median_of(rounds, turns));
    let turns = |round: &Round| round.official_disk.turns / round.conductor.turns;
    judge("SQLite between, turns", DURABLE_TURNS_OF_CONDUCTOR, median_of(rounds, turns));
}

/// Compares like with like: a percentile with the same one of the path with nothing between.
fn judge_ages(report: &mut Report, rounds: &[Round]) {
    for (what, of) in [
        ("nothing between", (|round| round.direct) as fn(&Round) -> Ages),
        ("memory:", |round| round.memory_ages),
        ("SQLite", |round| round.disk_ages),
    ] {
        let p50 = median_of(rounds, |round| micros(of(round).p50));
        let p99 = median_of(rounds, |round| micros(of(round).p99));
        report.line(
            &format!("{what}, age of an update, p50 / p99"),
            &format!("{p50:.0} us / {p99:.0} us"),
        );
    }
    let added = |of: fn(&Ages) -> Duration, with: fn(&Round) -> Ages| {
        median_of(rounds, |round| micros(of(&with(round))) - micros(of(&round.direct)))
    };
    let p50 = added(|ages| ages.p50, |round| round.memory_ages);
    let what = "memory:, added to the age of an update, p50";
    report.target(what, &format!("{p50:.0} us"), p50 < micros(ADDED), "< 200 us");
    let p99 = added(|ages| ages.p99, |round| round.memory_ages);
    report.line("memory:, added to the age of an update, p99", &format!("{p99:.0} us"));
    let late = added(|ages| ages.p99, |round| round.disk_ages);
    let most = median_of(rounds, |round| micros(round.commit.p99 * 2 + BESIDE_COMMITS));
    let what = "SQLite, added to the age of an update, p99";
    report.target(what, &format!("{late:.0} us"), late <= most, &format!("<= {most:.0} us"));
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
