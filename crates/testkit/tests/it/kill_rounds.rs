//! The kill harness: clients use a server, `kill -9` ends it at a seeded moment, and the test compares its next life with what the clients received.

use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use trilogue_testkit::client::{ServerSent, Stream};
use trilogue_testkit::{Client, Home, Seed, Server};

pub(crate) const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// When a server is killed, and how many times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KillPlan {
    /// The number of clients of each kind.
    pub(crate) clients: usize,
    /// The number of kills; `TRILOGUE_KILL_ROUNDS` overrides it.
    pub(crate) rounds: u64,
    /// The latest kill after the clients' start, in milliseconds.
    pub(crate) latest_kill_ms: u64,
    pub(crate) late_rounds: u64,
    /// The earliest kill in a late round, in milliseconds.
    pub(crate) late_kill_ms: u64,
}

pub(crate) trait Scenario: std::fmt::Debug {
    type Received: Send + 'static;

    /// Starts this many clients of each kind. Each ends with its connection.
    fn play(
        &self,
        client: &Client,
        seed: &mut Seed,
        clients: usize,
        players: &mut JoinSet<Self::Received>,
    );

    /// Compares what the clients received with the server's state now, and changes nothing.
    async fn check(
        &mut self,
        client: &Client,
        told: &[Self::Received],
        seed: &mut Seed,
    ) -> Result<()>;

    /// Continues from there: answers the pending questions.
    async fn resume(&mut self, client: &Client, told: Vec<Self::Received>) -> Result<()>;

    /// Whether the rounds so far have covered enough cases.
    fn has_seen_enough(&self) -> bool;
}

/// Starts a server, and plays a scenario through all kills; returns the last server.
pub(crate) async fn kill_rounds(
    home: &Home,
    plan: KillPlan,
    scenario: &mut impl Scenario,
) -> Server {
    let mut seed = announced_seed();
    let rounds = rounds(plan.rounds);
    let mut server = home.start().await.unwrap();
    for round in 0..rounds + plan.late_rounds {
        if round >= rounds && scenario.has_seen_enough() {
            break;
        }
        let mut players = JoinSet::new();
        scenario.play(&server.client(), &mut seed, plan.clients, &mut players);
        let least = if round < rounds { 0 } else { plan.late_kill_ms };
        kill_late(server, least + seed.below(plan.latest_kill_ms)).await;
        let mut told = Vec::new();
        while let Some(one) = ended_player(&mut players).await {
            told.push(one);
        }
        server = home.start().await.unwrap();
        scenario.check(&server.client(), &told, &mut seed).await.unwrap();
        scenario.resume(&server.client(), told).await.unwrap();
        eprintln!("round {round}: {scenario:?}");
    }
    server
}

/// Waits for a client to end, and returns what it received; `None` if no client is left. Passes an assertion's panic on.
pub(crate) async fn ended_player<T: 'static>(players: &mut JoinSet<T>) -> Option<T> {
    let player = players.join_next().await?;
    Some(player.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())))
}

pub(crate) fn announced_seed() -> Seed {
    let (number, seed) = Seed::from_env("TRILOGUE_SEED");
    eprintln!("TRILOGUE_SEED={number}");
    seed
}

pub(crate) fn rounds(default: u64) -> u64 {
    let rounds = std::env::var("TRILOGUE_KILL_ROUNDS").ok().and_then(|text| text.parse().ok());
    rounds.unwrap_or(default)
}

/// Kills a server after this many milliseconds.
pub(crate) async fn kill_late(server: Server, after_ms: u64) -> Home {
    // The kill comes at a random moment; this waits for no condition.
    tokio::time::sleep(Duration::from_millis(after_ms)).await;
    server.kill().await.unwrap()
}

/// Stops a server, which must exit cleanly.
pub(crate) async fn stop(server: Server) {
    let (_, status) = server.stop().await.unwrap();
    assert!(status.success(), "the stop ended with {status}");
}

pub(crate) async fn rest(stream: &mut Stream) -> Result<Vec<ServerSent>> {
    let mut events = Vec::new();
    while let Some(event) = tokio::time::timeout(SETTLE_LIMIT, stream.next()).await?? {
        events.push(event);
    }
    Ok(events)
}

/// Reads events up to the end of a stream or of its connection, and returns whether it broke. Leaves out the server's notice that the stream breaks, which is not an event of the run and has no id.
pub(crate) async fn until_cut(stream: &mut Stream) -> (Vec<ServerSent>, bool) {
    let mut events = Vec::new();
    loop {
        match stream.next().await {
            Ok(Some(event)) if event.id.is_none() => {
                assert!(event.data.contains("error"), "an event without id: {event:?}");
                return (events, true);
            }
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, false),
            Err(_) => return (events, true),
        }
    }
}

/// Fails unless the received and the missed events make up the whole stream.
pub(crate) fn ensure_whole(
    told: &[ServerSent],
    missed: &[ServerSent],
    all: &[ServerSent],
) -> Result<()> {
    let (told_count, missed_count) = (told.len(), missed.len());
    let joined = [told, missed].concat();
    anyhow::ensure!(
        joined == all,
        "{told_count} events were told and {missed_count} missed of {}:\n{joined:#?}\n{all:#?}",
        all.len()
    );
    Ok(())
}
