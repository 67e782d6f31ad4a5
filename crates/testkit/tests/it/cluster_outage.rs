//! No node reaches the database for a while, shorter than the nodes' retries: no run is lost, and no node takes a thread of another one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use trilogue_testkit::{Client, DatabaseStop, Editor, Folder, Seed, until};

use crate::bridge::message;
use crate::client_official::{hosted, scripted};
use crate::cluster::{Cluster, Outage, USUAL};
use crate::kill_rounds::announced_seed;
use crate::run_of;

/// Every kind of outage, with its longest duration in a regular test, in milliseconds.
const SHORT: [(Outage, u64); 5] = [
    (Outage::Halt(DatabaseStop::Fast), 9_000),
    (Outage::Halt(DatabaseStop::Immediate), 9_000),
    (Outage::Halt(DatabaseStop::Pause), 9_000),
    (Outage::Hold, 9_000),
    (Outage::Cut, 9_000),
];
/// How the primary is away for which its replica stands in then.
const FAILOVERS: [(Outage, u64); 3] = [
    (Outage::FailOver(DatabaseStop::Pause), 7_000),
    (Outage::FailOver(DatabaseStop::Fence), 7_000),
    (Outage::FailOver(DatabaseStop::Immediate), 7_000),
];
/// Longer than it takes a node to be dead that is silent.
const LEAST_MS: u64 = 5_000;
/// The shortest and longest outage that must not end a run, in milliseconds.
const PROMISED_MS: (u64, u64) = (1_000, 29_000);
/// The number of runs of each kind, spread over the nodes.
const RUNS: usize = 3;
/// The time limit for a run after the outage.
const LIMIT: Duration = Duration::from_secs(60);
/// The length of one step of an agent, in milliseconds.
const STEP_MS: u64 = 400;

/// The results of the runs of all outages.
#[derive(Debug, Default)]
pub(crate) struct OutageTally {
    outages: u64,
    hosted: u64,
    native: u64,
    asking: u64,
}

#[derive(Debug)]
struct Nodes {
    cluster: Cluster,
    _sessions: Folder,
}

impl Nodes {
    async fn start() -> Self {
        Self::start_with(async |settings| Cluster::start_at(USUAL, settings).await).await
    }

    async fn start_replicated() -> Self {
        Self::start_with(async |settings| Cluster::start_replicated(USUAL, settings).await).await
    }

    /// On a cluster that is started with settings.
    async fn start_with(start: impl AsyncFnOnce(&str) -> Result<Cluster>) -> Self {
        let sessions = Folder::new().unwrap();
        let agent = scripted(&sessions.path().join("sessions"), &[]).await;
        let cluster = start(&hosted(&[("scripted", agent)])).await.unwrap();
        Self { cluster, _sessions: sessions }
    }
}

/// A seeded sample of `cargo xtask soak --cluster`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_is_lost_while_the_database_is_away_for_all() {
    let mut seed = announced_seed();
    let nodes = Nodes::start().await;
    let mut tally = OutageTally::default();
    for (how, most) in SHORT {
        let time = LEAST_MS + seed.below(most - LEAST_MS);
        tally.outlast(&nodes.cluster, how, Duration::from_millis(time)).await;
    }
    nodes.cluster.stop().await.unwrap();
}

/// One node finds the new primary behind its proxy, the others by an address with two hosts. A primary that stands still accepts connections and answers none; one that is fenced answers look-ups.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_is_lost_when_a_replica_takes_the_place_of_the_primary() {
    let mut seed = announced_seed();
    let nodes = Nodes::start_replicated().await;
    let mut tally = OutageTally::default();
    for (how, most) in FAILOVERS.into_iter().take(2) {
        let time = LEAST_MS + seed.below(most - LEAST_MS);
        tally.outlast(&nodes.cluster, how, Duration::from_millis(time)).await;
    }
    nodes.cluster.stop().await.unwrap();
}

/// A node that stood still has lost the threads of its runs. On every protocol, a client that waits there gets a message that says what happened and what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_protocol_says_what_to_do_when_a_thread_was_taken_over() {
    let (sessions, cwd) = (Folder::new().unwrap(), Folder::new().unwrap());
    let agent = scripted(&sessions.path().join("sessions"), &[]).await;
    let cluster = Cluster::start(&hosted(&[("scripted", agent)])).await.unwrap();
    let work = working(LIMIT);
    let command = cluster.home().command_line(&["connect", "scripted"]).await.unwrap();
    let mut editor = Editor::launch(&command, cwd.path()).await;
    let session = editor.session_in(cwd.path()).await;
    let prompt = editor.start_prompt(&session, &work).await;
    let said = json!({ "messages": [{ "role": "human", "content": work }] });
    let requests = [
        ("/api/v1/runs", run_of("scripted", "native", &json!(work), "wait")),
        (
            "/communication/runs",
            json!({ "agent_name": "scripted", "input": [message(&work)], "mode": "sync" }),
        ),
        ("/connect/runs/wait", json!({ "agent_id": "scripted", "input": said })),
    ];
    let mut waiting = JoinSet::new();
    let client = &cluster.clients()[0];
    for (path, body) in requests {
        let client = client.clone();
        waiting.spawn(async move { (path, client.post(path, &body).await) });
    }
    let count = waiting.len() + 1;
    until("all runs to be at work", LIMIT, || async {
        let runs = client.get("/api/v1/runs?status=running").await.ok()?.ok().ok()?;
        (runs["items"].as_array()?.len() == count).then_some(())
    })
    .await
    .unwrap();
    let taken_over = until("their threads to be taken over", LIMIT, || async {
        (cluster.take_overs().await.ok()? >= count as i64).then_some(())
    });
    cluster.pause(0, taken_over).await.unwrap().unwrap();
    let mut told = vec![("an editor", editor.answer(&prompt).await["error"].to_string())];
    while let Some(waited) = waiting.join_next().await {
        let (path, reply) = waited.unwrap();
        told.push((path, String::from_utf8_lossy(&reply.unwrap().body).into_owned()));
    }
    for (by, text) in told {
        eprintln!("{by}: {text}");
        let says = |part: &str| text.contains(part);
        let is_of_owner = says("taken the run's thread over") && says("look at the run");
        // A client that reads the log first sees how the next owner ended the run.
        let is_of_log = says("what it did last is not known");
        assert!(is_of_owner || is_of_log, "{by}: {text}");
        assert!(!says("epoch"), "{by}: {text}");
    }
    editor.close().await;
    cluster.stop().await.unwrap();
}

/// Plays this many outages, each kind in turn.
pub(crate) async fn outlast_all(outages: u64, seed: &mut Seed) {
    let nodes = Nodes::start_replicated().await;
    let mut tally = OutageTally::default();
    let kinds = [&SHORT[..], &FAILOVERS].concat();
    for number in 0..outages {
        let (how, _) = kinds[(number % kinds.len() as u64) as usize];
        let (least, most) = PROMISED_MS;
        let time = Duration::from_millis(least + seed.below(most - least));
        tally.outlast(&nodes.cluster, how, time).await;
        eprintln!("{tally:?}, 0 runs lost");
    }
    nodes.cluster.stop().await.unwrap();
}

// === impl OutageTally ===

impl OutageTally {
    /// Starts runs of every kind on every node, keeps the database away, and waits for the runs' ends.
    async fn outlast(&mut self, cluster: &Cluster, how: Outage, time: Duration) {
        self.outages += 1;
        let begun = Instant::now();
        let survived = self.try_outlast(cluster, how, time).await;
        if let Err(error) = survived {
            panic!("{how:?} for {time:?}: {error:?}\n{}", cluster.log_ends());
        }
        if matches!(how, Outage::FailOver(_)) {
            cluster.replicate_again().await.unwrap();
        }
        eprintln!("{how:?} for {time:?}: {:?}", begun.elapsed());
    }

    async fn try_outlast(&mut self, cluster: &Cluster, how: Outage, time: Duration) -> Result<()> {
        let before = cluster.take_overs().await?;
        let clients = cluster.clients();
        let mut runs = JoinSet::new();
        for (index, node) in clients.iter().cycle().take(RUNS * clients.len()).enumerate() {
            // Each run is read through a different node than its own.
            let reader = clients[(index + 1) % clients.len()].clone();
            let thread = format!("outage-{}-{index}", self.outages);
            let (agent, input) = match index / clients.len() {
                0 => ("scripted", working(time)),
                1 => ("scripted", format!("say:one\nslow:{STEP_MS}\npermission\nsay:two")),
                _ => ("researcher", format!("what is a log, {index}?")),
            };
            let asks = index / clients.len() == 1;
            let run = create(node, agent, &thread, &input).await?;
            runs.spawn(async move {
                let ended = follow(&reader, &run, asks).await;
                ended.with_context(|| format!("the run of {agent} on {thread}"))
            });
        }
        cluster.outage(how, time).await?;
        while let Some(ended) = runs.join_next().await {
            ended??;
        }
        let count = clients.len() as u64;
        self.hosted += count;
        self.asking += count;
        self.native += count;
        let taken = cluster.take_overs().await? - before;
        ensure!(taken == 0, "{taken} threads of live nodes were taken over");
        Ok(())
    }
}

/// What a hosted agent does for longer than an outage takes.
pub(crate) fn working(outage: Duration) -> String {
    let steps = outage.as_millis() as u64 / STEP_MS + 4;
    (0..steps).map(|step| format!("say:{step} \ntool\nslow:{STEP_MS}\n")).collect()
}

pub(crate) async fn create(
    node: &Client,
    agent: &str,
    thread: &str,
    input: &str,
) -> Result<String> {
    let request = run_of(agent, thread, &json!(input), "async");
    let run = node.post("/api/v1/runs", &request).await?.ok()?;
    run["id"].as_str().map(str::to_owned).context("the run has no id")
}

/// Reads a run's stream to its end, which must be the run's, answers its question, and checks how it ended.
pub(crate) async fn follow(reader: &Client, run: &str, asks: bool) -> Result<()> {
    let path = format!("/api/v1/runs/{run}/events");
    let mut stream = reader.stream(&path, None).await?;
    let reading = async {
        let mut last = Value::Null;
        while let Some(event) = stream.next().await? {
            last = serde_json::from_str(&event.data).unwrap_or_default();
        }
        anyhow::Ok(last)
    };
    let answering = async { if asks { answer(reader, run).await } else { Ok(()) } };
    let (read, answered) = tokio::join!(tokio::time::timeout(LIMIT, reading), answering);
    answered?;
    let last = read.context("the stream does not end")??;
    ensure!(last["code"].is_null(), "the stream ended with {last}");
    let path = format!("/api/v1/runs/{run}");
    let ended = until("the run's end", LIMIT, || async {
        let run = reader.get(&path).await.ok()?.ok().ok()?;
        let is_open = ["queued", "running", "interrupted"].contains(&run["status"].as_str()?);
        (!is_open).then_some(run)
    });
    let ended = ended.await?;
    ensure!(ended["status"] == "completed", "it ended as {ended}");
    Ok(())
}

async fn answer(client: &Client, run: &str) -> Result<()> {
    let path = format!("/api/v1/interrupts?run_id={run}&pending=true");
    let asked = until("the question", LIMIT, || async {
        let listed = client.get(&path).await.ok()?.ok().ok()?;
        listed["items"].as_array()?.first().cloned()
    });
    let asked = asked.await?;
    let id = asked["id"].as_str().context("the question has no id")?;
    let path = format!("/api/v1/interrupts/{id}/answer");
    client.post(&path, &json!({ "option": "once" })).await?.ok().map(drop)
}
