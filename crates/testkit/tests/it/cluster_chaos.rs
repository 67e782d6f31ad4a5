//! Nodes of one store die, pause, and lose their networks or their time, and PostgreSQL and NATS restart, while clients of all protocols use the nodes, also through nginx.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use trilogue_testkit::callback::Receiver;
use trilogue_testkit::{Client, Seed, until};

use crate::cluster::{Cluster, Fault, FaultRecord};
use crate::cluster_editor::{Turns, edit};
use crate::cluster_history::Histories;
use crate::cluster_marks::Marks;
use crate::cluster_pauses::{Pauses, Pulses, THREADS};
use crate::kill_rounds::{SETTLE_LIMIT, Scenario, announced_seed, ended_player, rounds};
use crate::ledger::Ledger;
use crate::native_kill::answer_all;
use crate::{communication_kill, connect_kill, native_kill};

/// The number of faults between two checks.
const FAULTS_PER_ROUND: u64 = 2;
/// The number of rounds, enough for each fault once; `TRILOGUE_KILL_ROUNDS` overrides it.
const ROUNDS: u64 = (Fault::ALL.len() as u64).div_ceil(FAULTS_PER_ROUND);
/// The longest pause before a fault, and before the clients stop, in milliseconds.
const LATEST_MS: u64 = 500;
/// The number of clients of each kind.
const CLIENTS: usize = 1;
/// The statuses of runs that have not ended and do not wait for an answer.
const OPEN: [&str; 3] = ["queued", "running", "cancelling"];

#[derive(Clone, Copy, Debug)]
pub(crate) struct ChaosPlan {
    pub(crate) faults: u64,
    /// Whether to wait for every callback. A callback that a dying node was sending is sent again half a minute later.
    pub(crate) awaits_calls: bool,
    /// Whether to print how long threads were unavailable.
    pub(crate) measures_pauses: bool,
}

/// All clients, what they received, and the results of the checks.
#[derive(Debug)]
struct AllClients {
    native: native_kill::Clients,
    communication: communication_kill::Clients,
    connect: connect_kill::Clients,
    histories: Histories,
    marks: Marks,
    turns: Turns,
    pauses: Pauses,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_any_node_acknowledged_survives_whatever_happens_to_nodes() {
    survive(ChaosPlan {
        faults: rounds(ROUNDS) * FAULTS_PER_ROUND,
        awaits_calls: false,
        measures_pauses: false,
    })
    .await;
}

/// Applies the plan's faults, and compares what clients received with the state on every node.
pub(crate) async fn survive(plan: ChaosPlan) {
    let mut seed = announced_seed();
    let receiver = Arc::new(Receiver::start().await.unwrap());
    let marks = Marks::start().await.unwrap();
    let settings = format!("{}{}", connect_kill::SETTINGS, marks.settings());
    let mut cluster = Cluster::start(&settings).await.unwrap();
    let mut everyone = AllClients {
        native: native_kill::Clients::on("thread".to_owned()),
        communication: communication_kill::Clients::default(),
        connect: connect_kill::Clients::with(receiver),
        histories: Histories::default(),
        marks,
        turns: Turns::default(),
        pauses: Pauses::default(),
    };
    let mut left = Vec::new();
    let mut count = BTreeMap::new();
    for round in 0..plan.faults.div_ceil(FAULTS_PER_ROUND) {
        let mut faults = Vec::new();
        for _ in 0..FAULTS_PER_ROUND {
            if left.is_empty() {
                left = Fault::shuffled(&mut seed);
            }
            faults.extend(left.pop());
        }
        for fault in &faults {
            *count.entry(format!("{fault:?}")).or_insert(0) += 1;
        }
        let measured = plan.measures_pauses.then_some(round);
        let played = everyone.play(&mut cluster, &faults, measured, &mut seed).await;
        if let Err(error) = played.with_context(|| format!("round {round}: {faults:?}")) {
            panic!("{error:?}\n{}", cluster.log_ends());
        }
        eprintln!("round {round}: {faults:?}; {}", everyone.line());
    }
    eprintln!("faults: {count:?}");
    everyone.settle(plan, &cluster).await;
    cluster.stop().await.unwrap();
}

// === impl AllClients ===

impl AllClients {
    /// Runs all clients while faults happen, and compares. `round` names the measured threads.
    async fn play(
        &mut self,
        cluster: &mut Cluster,
        faults: &[Fault],
        measured: Option<u64>,
        seed: &mut Seed,
    ) -> Result<()> {
        let client = cluster.client();
        let [mut one, mut two, mut three, mut four, mut five] = [0; 5].map(|_| seed.fork());
        let command = cluster.home().command_line(&["connect", "researcher"]).await?;
        let cwd = cluster.folder().to_owned();
        let pulses = Pulses::of(cluster);
        let beating = async {
            match measured {
                Some(round) => Pauses::pulse(&pulses, round, &client).await,
                None => BTreeMap::new(),
            }
        };
        let striking = async {
            let struck = inject_fault(cluster, faults, measured.map(|_| THREADS), seed).await;
            client.close();
            struck
        };
        // A separate task, so that a busy editor does not delay the other clients.
        let editing = tokio::spawn(edit(command, cwd, client.clone()));
        let (strikes, natives, communications, connects, talks, marks, moments) = tokio::join!(
            striking,
            keep_playing(&self.native, &client, &mut one),
            keep_playing(&self.communication, &client, &mut two),
            keep_playing(&self.connect, &client, &mut three),
            keep_playing(&self.histories, &client, &mut four),
            keep_playing(&self.marks, &client, &mut five),
            beating,
        );
        self.pauses.count(&moments, &strikes?);
        let sessions = editing.await.context("the editor failed")?;
        check_everywhere(cluster, &mut self.native, natives, &mut one).await?;
        check_everywhere(cluster, &mut self.communication, communications, &mut two).await?;
        check_everywhere(cluster, &mut self.connect, connects, &mut three).await?;
        check_everywhere(cluster, &mut self.histories, talks, &mut four).await?;
        check_everywhere(cluster, &mut self.marks, marks, &mut five).await?;
        self.turns.check(&cluster.clients(), &sessions).await
    }

    /// Waits after all faults until everything has ended, and checks that every node shows the same.
    async fn settle(&mut self, plan: ChaosPlan, cluster: &Cluster) {
        let client = cluster.client();
        let answered = answer_all(&client, &self.native.ledger).await.unwrap();
        eprintln!("{answered} questions were answered at the end");
        for node in cluster.clients() {
            nothing_is_open(&node).await.unwrap();
            let seen = self.native.ledger.check(&node).await.unwrap();
            assert!(seen.events > 0 && seen.runs > 0, "the clients were told nothing: {seen:?}");
        }
        if plan.awaits_calls {
            self.connect.check_calls(&client).await.unwrap();
        }
        self.connect.check_deliveries();
        let executed = self.marks.check_all(&client).await.unwrap();
        let threads = Ledger::check_threads(&client).await.unwrap();
        let take_overs = cluster.take_overs().await.unwrap();
        eprintln!("{threads} threads are whole, and were taken over {take_overs} times");
        eprintln!("executed by their marks: {executed:?}");
        eprintln!("0 lost, 0 doubled, 0 reordered, 0 made up; {}", self.line());
        if plan.measures_pauses {
            eprintln!("{}", self.pauses.lines());
        }
        let answers = self.native.ledger.check(&client).await.unwrap().answers;
        let (communication, connect) = (&self.communication.seen, &self.connect.seen.runs);
        assert!(answers > 0 && communication.answered > 0 && connect.answered > 0);
        assert!(communication.missed > 0 && connect.missed > 0, "no stream was resumed");
        assert!(take_overs > 0, "no node took over what another had");
        assert!(executed.once > 0 && self.turns.ended > 0 && self.histories.has_seen_enough());
    }

    fn line(&self) -> String {
        let Self { native, communication, connect, histories, turns, .. } = self;
        format!("{native:?}, {communication:?}, {connect:?}, {histories:?}, {turns:?}")
    }
}

/// Applies faults one after the other at random moments; the sleeps wait for no condition.
async fn inject_fault(
    cluster: &mut Cluster,
    faults: &[Fault],
    threads: Option<&str>,
    seed: &mut Seed,
) -> Result<Vec<FaultRecord>> {
    let mut strikes = Vec::new();
    for fault in faults {
        tokio::time::sleep(Duration::from_millis(seed.below(LATEST_MS))).await;
        strikes.push(cluster.inject_fault(*fault, threads, seed).await?);
    }
    tokio::time::sleep(Duration::from_millis(seed.below(LATEST_MS))).await;
    Ok(strikes)
}

/// Runs clients until `client` is closed. Starts further ones once many have ended with a connection.
async fn keep_playing<S: Scenario>(
    scenario: &S,
    client: &Client,
    seed: &mut Seed,
) -> Vec<S::Received> {
    let mut players = JoinSet::new();
    let mut told = Vec::new();
    let mut enough = 0;
    loop {
        if players.len() <= enough && !client.is_closed() {
            scenario.play(client, seed, CLIENTS, &mut players);
            enough = players.len() / 2;
        }
        match ended_player(&mut players).await {
            Some(one) => told.push(one),
            None => return told,
        }
    }
}

/// Checks on every node what the clients received, and then lets the scenario continue.
async fn check_everywhere<S: Scenario>(
    cluster: &Cluster,
    scenario: &mut S,
    told: Vec<S::Received>,
    seed: &mut Seed,
) -> Result<()> {
    for node in cluster.clients() {
        scenario.check(&node, &told, seed).await?;
    }
    scenario.resume(&cluster.client(), told).await
}

/// Every run of the store ends, or waits for an answer.
async fn nothing_is_open(client: &Client) -> Result<()> {
    for status in OPEN {
        let path = format!("/api/v1/runs?status={status}");
        let left = || async { client.get(&path).await.ok()?.ok().ok() };
        let what = format!("the last run that is {status}");
        let ended = until(&what, SETTLE_LIMIT, || async {
            left().await?["items"].as_array()?.is_empty().then_some(())
        });
        ended.await.with_context(|| format!("some run stays {status}"))?;
    }
    Ok(())
}
