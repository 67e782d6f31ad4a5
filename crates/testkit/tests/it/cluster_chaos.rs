//! Nodes of one store die, stand still and lose their networks, while clients of three protocols use them through any node.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use trilogue_testkit::callback::Receiver;
use trilogue_testkit::{Client, Seed, until};

use crate::cluster::{Cluster, Fault};
use crate::kill_rounds::{SETTLE_LIMIT, Scenario, announced_seed, ended_player, rounds};
use crate::ledger::Ledger;
use crate::native_kill::answer_all;
use crate::{communication_kill, connect_kill, native_kill};

/// How many faults there are between two looks at what is left.
const FAULTS_PER_ROUND: u64 = 2;
/// How many rounds there are, unless `TRILOGUE_KILL_ROUNDS` says otherwise: each fault once.
const ROUNDS: u64 = Fault::ALL.len() as u64 / FAULTS_PER_ROUND;
/// The longest pause before a fault, and before the clients' end, in milliseconds.
const LATEST_MS: u64 = 500;
/// Clients of each kind.
const CLIENTS: usize = 1;
/// The statuses of runs that are neither over nor wait for an answer.
const OPEN: [&str; 3] = ["queued", "running", "cancelling"];

#[derive(Clone, Copy, Debug)]
pub(crate) struct ChaosPlan {
    pub(crate) faults: u64,
    /// Whether to wait for every callback. One that was on its way from a node that died is sent again half a minute later.
    pub(crate) awaits_calls: bool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_any_node_acknowledged_survives_whatever_happens_to_nodes() {
    survive(ChaosPlan { faults: rounds(ROUNDS) * FAULTS_PER_ROUND, awaits_calls: false }).await;
}

/// Lets so many faults happen, and compares what clients were told with what every node says then.
pub(crate) async fn survive(plan: ChaosPlan) {
    let mut seed = announced_seed();
    let receiver = Arc::new(Receiver::start().await.unwrap());
    let mut cluster = Cluster::start(connect_kill::SETTINGS).await.unwrap();
    let mut native = native_kill::Clients::on("thread".to_owned());
    let mut communication = communication_kill::Seen::default();
    let mut connect = connect_kill::Clients::with(receiver);
    let mut left = Vec::new();
    for round in 0..plan.faults.div_ceil(FAULTS_PER_ROUND) {
        let mut faults = Vec::new();
        for _ in 0..FAULTS_PER_ROUND {
            if left.is_empty() {
                left = Fault::shuffled(&mut seed);
            }
            faults.extend(left.pop());
        }
        let played = async {
            let client = cluster.client();
            let (mut one, mut two, mut three) = (seed.fork(), seed.fork(), seed.fork());
            let striking = async {
                let struck = strike(&mut cluster, &faults, &mut seed).await;
                client.close();
                struck
            };
            let (struck, natives, communications, connects) = tokio::join!(
                striking,
                keep_playing(&native, &client, &mut one),
                keep_playing(&communication, &client, &mut two),
                keep_playing(&connect, &client, &mut three),
            );
            struck?;
            check_everywhere(&cluster, &mut native, natives, &mut one).await?;
            check_everywhere(&cluster, &mut communication, communications, &mut two).await?;
            check_everywhere(&cluster, &mut connect, connects, &mut three).await
        };
        if let Err(error) = played.await.with_context(|| format!("round {round}: {faults:?}")) {
            panic!("{error:?}\n{}", cluster.log_ends());
        }
        eprintln!("round {round}: {faults:?}; {native:?}, {communication:?}, {connect:?}");
    }

    let client = cluster.client();
    let answered = answer_all(&client, &native.ledger).await.unwrap();
    eprintln!("{answered} questions were answered at the end");
    for node in cluster.clients() {
        nothing_is_open(&node).await.unwrap();
        let seen = native.ledger.check(&node).await.unwrap();
        assert!(seen.events > 0 && seen.runs > 0, "the clients were told nothing: {seen:?}");
    }
    if plan.awaits_calls {
        connect.check_calls(&client).await.unwrap();
    }
    connect.check_deliveries();
    let threads = Ledger::check_threads(&client).await.unwrap();
    let take_overs = cluster.take_overs().await.unwrap();
    eprintln!("{threads} threads are whole, and were taken over {take_overs} times");
    let answers = native.ledger.check(&client).await.unwrap().answers;
    assert!(answers > 0 && communication.answered > 0 && connect.seen.answered > 0);
    assert!(communication.missed > 0 && connect.seen.missed > 0, "no stream was resumed");
    assert!(take_overs > 0, "no node took over what another had");
    cluster.stop().await.unwrap();
}

/// Lets faults happen one after the other. Their moments are what is random here; nothing waits for anything.
async fn strike(cluster: &mut Cluster, faults: &[Fault], seed: &mut Seed) -> Result<()> {
    for fault in faults {
        tokio::time::sleep(Duration::from_millis(seed.below(LATEST_MS))).await;
        cluster.strike(*fault, seed).await?;
    }
    tokio::time::sleep(Duration::from_millis(seed.below(LATEST_MS))).await;
    Ok(())
}

/// Has clients play until theirs is closed. Where many have ended with a connection, further ones begin.
async fn keep_playing<S: Scenario>(scenario: &S, client: &Client, seed: &mut Seed) -> Vec<S::Told> {
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

/// Every node says what the clients were told, and then they go on.
async fn check_everywhere<S: Scenario>(
    cluster: &Cluster,
    scenario: &mut S,
    told: Vec<S::Told>,
    seed: &mut Seed,
) -> Result<()> {
    for node in cluster.clients() {
        scenario.check(&node, &told, seed).await?;
    }
    scenario.go_on(&cluster.client(), told).await
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
