//! The long form of the kill tests, with statistics: many power cuts of one server, or faults of several, while clients use them.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::task::JoinSet;
use trilogue_testkit::disk_journal::PowerLoss;
use trilogue_testkit::shim::Shim;
use trilogue_testkit::{Folder, Home, Seed, ServerOptions};

use crate::client_chaos::survive_network;
use crate::cluster_chaos::{ChaosPlan, survive};
use crate::cluster_outage::outlast_all;
use crate::kill_rounds::{Scenario, announced_seed};
use crate::ledger::{Differences, LedgerCounts};
use crate::native_kill::{CLIENTS, Clients};
use crate::stream_resume::resume_everything;

/// The number of kills; `TRILOGUE_KILLS` overrides it.
const KILLS: u64 = 20;
/// The latest change at which a life may end.
const LAST_CHANGE: u64 = 600;
/// The same for a quarter of the lives, which end during their start.
const LAST_CHANGE_OF_START: u64 = 16;
/// The time limit for a life to reach its last change; then it is killed anyway.
const LIFE_LIMIT: Duration = Duration::from_secs(20);
/// The number of other faults for each outage of the database that all nodes share.
const FAULTS_PER_OUTAGE: u64 = 4;
/// The number of lives that use the same threads, which grow with each life.
const LIVES_PER_LEDGER: u64 = 20;
/// How long connections of the Agent Client Protocol wait for their next turn.
const SILENCE: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
struct KillTally {
    kills: u64,
    /// The kills that hit a server before it was ready.
    while_starting: u64,
    differences: Differences,
}

/// Kills servers at their N-th change, cuts the power of their disks, and compares the next life with what clients received.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes as long as one likes: cargo xtask soak --kills N"]
async fn power_cuts_take_nothing_that_was_acknowledged() {
    let mut seed = announced_seed();
    let dir = Folder::new().unwrap();
    let home = Home::new(dir.path(), &ServerOptions::default()).unwrap();
    let shim = Shim::build(dir.path(), &home.store_dir()).unwrap();
    let mut toll = KillTally::default();
    let mut all = Vec::new();
    for kill in 0..kills() {
        if kill % LIVES_PER_LEDGER == 0 {
            all.push(Clients::on(format!("thread-{kill}")));
        }
        let clients = all.last().unwrap();
        live_and_die(&home, &shim, clients, &mut seed, &mut toll).await.unwrap();
        let server = home.start().await.unwrap();
        let (_, differences) = clients.ledger.compare(&server.client()).await.unwrap();
        toll.differences.extend(differences);
        toll.kills += 1;
        server.kill().await.unwrap();
        eprintln!("kill {}: {}", kill + 1, toll.line());
    }
    let server = home.start().await.unwrap();
    let mut seen = LedgerCounts::default();
    for clients in &all {
        let (here, differences) = clients.ledger.compare(&server.client()).await.unwrap();
        (seen.events, seen.runs) = (seen.events + here.events, seen.runs + here.runs);
        toll.differences.extend(differences);
    }
    eprintln!("{} runs, {} events acknowledged; {}", seen.runs, seen.events, toll.line());
    assert!(seen.events > 0, "the clients were told nothing");
    assert!(toll.differences.is_empty(), "{:#?}", toll.differences);
}

/// Kills, pauses and cuts off the nodes of one store, and restarts the services that they share. Prints the faults, the comparisons, and how long threads were unavailable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes as long as one likes: cargo xtask soak --cluster --kills N"]
async fn nodes_lose_nothing_that_one_acknowledged() {
    let plan = ChaosPlan { faults: kills(), awaits_calls: true, measures_pauses: true };
    survive(plan).await;
}

/// Resumes every resumable stream under every fault, repeatedly. Prints the matrix.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes as long as one likes: cargo xtask soak --streams --kills N"]
async fn streams_resume_after_every_fault() {
    resume_everything(kills()).await;
}

/// Lets the network fail between clients of the Agent Client Protocol and their server, in this many runs, and lets connections wait for [`SILENCE`]. Prints the faults and what was received.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes as long as one likes: cargo xtask soak --network --kills N"]
async fn clients_lose_nothing_over_a_network_that_fails() {
    survive_network(kills(), Some(SILENCE)).await;
}

/// Keeps the database from all nodes, for 1 to 29 seconds, a quarter as often as there are faults above. Prints the number of runs that survived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes as long as one likes: cargo xtask soak --cluster --kills N"]
async fn nodes_outlast_every_outage_of_their_database() {
    outlast_all(kills().div_ceil(FAULTS_PER_OUTAGE), &mut announced_seed()).await;
}

fn kills() -> u64 {
    let kills = std::env::var("TRILOGUE_KILLS").ok().and_then(|text| text.parse().ok());
    kills.unwrap_or(KILLS)
}

/// Plays one life of a server with clients, up to a power cut.
async fn live_and_die(
    home: &Home,
    shim: &Shim,
    clients: &Clients,
    seed: &mut Seed,
    toll: &mut KillTally,
) -> Result<()> {
    let last = if seed.below(4) == 0 { LAST_CHANGE_OF_START } else { LAST_CHANGE };
    let start = shim.begin_journal(Some(1 + seed.below(last)))?;
    match home.clone().with_environment(shim.environment()).start().await {
        Ok(server) => {
            let mut players = JoinSet::new();
            clients.play(&server.client(), seed, CLIENTS, &mut players);
            server.end_within(LIFE_LIMIT).await?;
            while let Some(player) = players.join_next().await {
                player?;
            }
        }
        Err(error) => {
            let message = format!("{error:#}");
            ensure!(message.contains("signal: 9"), "the server ended otherwise: {message}");
            toll.while_starting += 1;
        }
    }
    let journal = shim.journal(start)?;
    let loss =
        if seed.below(2) == 0 { PowerLoss::Everything } else { PowerLoss::Some(seed.fork()) };
    journal.image(journal.len(), loss).write(&home.store_dir())
}

// === impl KillTally ===

impl KillTally {
    fn line(&self) -> String {
        let Differences { lost, doubled, reordered, made_up } = &self.differences;
        format!(
            "{} kills ({} of them during a start), {} lost, {} doubled, {} reordered, {} made up",
            self.kills,
            self.while_starting,
            lost.len(),
            doubled.len(),
            reordered.len(),
            made_up.len()
        )
    }
}
