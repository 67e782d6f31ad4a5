//! `kill -9` at seeded random points while clients of the Agent Connect Protocol stream, wait, converse, answer and receive callbacks.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use trilogue_testkit::callback::{Delivery, Receiver};
use trilogue_testkit::client::ServerSent;
use trilogue_testkit::{Client, Folder, Home, Seed, ServerOptions, until};

use crate::kill_rounds::{KillPlan, SETTLE_LIMIT, Scenario, kill_rounds, stop};
use crate::kill_runs::{self, RunCounts, RunProtocol, RunRecord, approval, data, id_of};

const PLAN: KillPlan =
    KillPlan { clients: 2, rounds: 6, latest_kill_ms: 500, late_rounds: 3, late_kill_ms: 2_000 };
/// A client that enqueues runs waits for the last of every `WAITED_FOR` ones.
const WAITED_FOR: usize = 32;
const BASE: &str = "/connect";
/// The settings with which a server may call the receiver.
pub(crate) const SETTINGS: &str = "[egress]\nallow = [\"127.0.0.1/32\"]\n";

/// The Agent Connect Protocol.
#[derive(Debug)]
struct Connect;

/// What a client received before the server was killed.
#[derive(Default, Debug)]
pub(crate) struct ClientRecord {
    runs: RunRecord,
    /// Runs whose end must be delivered.
    called: Vec<Value>,
    /// Configured instances.
    instances: Vec<Value>,
    /// Each thread's states from its history, with the thread.
    states: Vec<(String, Value)>,
}

#[derive(Default, Debug)]
pub(crate) struct CaseCounts {
    pub(crate) runs: RunCounts,
    pub(crate) delivered: usize,
    pub(crate) instances: usize,
    pub(crate) states: usize,
}

pub(crate) struct Clients {
    receiver: Arc<Receiver>,
    pub(crate) seen: CaseCounts,
    /// Runs whose end must be delivered.
    called: Vec<Value>,
}

#[derive(Clone)]
struct Player {
    client: Client,
    receiver: Arc<Receiver>,
    seed: Seed,
}

// === impl Connect ===

impl RunProtocol for Connect {
    const RUNS: &'static str = "/connect/runs";
    const STATE: &'static str = "/wait";
    const EVENTS: &'static str = "/stream";
    const START: Option<&'static str> = Some("0");
    const COMPLETED: &'static str = "success";
    const WAITING: &'static str = "interrupted";
    const CREATION: &'static str = "creation";

    fn streamed_request() -> (String, Value) {
        let mut body = run_of("researcher", "what is a log?");
        body["stream_mode"] = json!("custom");
        (format!("{BASE}/runs/stream"), body)
    }

    fn asking_request() -> (String, Value) {
        (format!("{BASE}/runs/wait"), letter())
    }

    fn run_in(answer: &Value) -> &Value {
        &answer["run"]
    }

    fn run_of_event(event: &ServerSent) -> Option<String> {
        data(event)["run_id"].as_str().map(str::to_owned)
    }

    fn is_lost(answer: &Value) -> bool {
        let output = &answer["output"];
        let is_lost = output["errcode"] == 7 || output["data"]["reason"] == "store_unavailable";
        answer["run"]["status"] == "error" && is_lost
    }

    async fn wait_for_end(client: &Client, run: &str) -> Result<Value> {
        let answer = client.get(&format!("{BASE}/runs/{run}/wait?timeout=60")).await?;
        ensure!(answer.status == 200, "the run {run} did not end: {}", answer.status);
        Ok(answer.json())
    }

    async fn answer(client: &Client, run: &str, accepted: &mut Vec<Value>) -> Option<Value> {
        let path = format!("{BASE}/runs/{run}");
        let run = client.post(&path, &approval()).await.ok()?.ok().unwrap();
        let Ok(reply) = client.get(&format!("{path}/wait")).await else {
            accepted.push(run);
            return None;
        };
        Some(reply.ok().unwrap())
    }

    async fn check_whole_stream(_: &Client, run: &str, events: &[ServerSent]) -> Result<()> {
        let ends = events.iter().filter(|event| data(event)["status"] != "pending").count();
        ensure!(ends == 1, "{ends} events end the stream of {run}: {events:#?}");
        Ok(())
    }
}

// === impl Clients ===

impl Clients {
    pub(crate) fn with(receiver: Arc<Receiver>) -> Self {
        Self { receiver, seen: CaseCounts::default(), called: Vec::new() }
    }

    /// Checks that the receiver gets the end of every run that requested it. A callback that was being sent at the kill is sent again once its old sender cannot be alive.
    pub(crate) async fn check_calls(&mut self, client: &Client) -> Result<()> {
        for run in &self.called {
            check_called(client, &self.receiver, id_of(run)?).await?;
            self.seen.delivered += 1;
        }
        Ok(())
    }

    pub(crate) fn check_deliveries(&self) {
        check_deliveries(&self.receiver.deliveries());
    }
}

/// Omits the deliveries, which would fill a screen.
impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.seen.fmt(f)
    }
}

impl Scenario for Clients {
    type Received = ClientRecord;

    fn play(
        &self,
        client: &Client,
        seed: &mut Seed,
        clients: usize,
        players: &mut JoinSet<ClientRecord>,
    ) {
        for _ in 0..clients {
            let player = |seed: &mut Seed| Player {
                client: client.clone(),
                receiver: Arc::clone(&self.receiver),
                seed: seed.fork(),
            };
            players.spawn(of_runs(kill_runs::stream::<Connect>(client.clone())));
            players.spawn(player(seed).wait());
            players.spawn(player(seed).converse());
            players.spawn(of_runs(kill_runs::ask::<Connect>(client.clone(), seed.fork())));
            players.spawn(player(seed).be_called());
            players.spawn(player(seed).configure());
        }
    }

    async fn check(
        &mut self,
        client: &Client,
        told: &[ClientRecord],
        seed: &mut Seed,
    ) -> Result<()> {
        for told in told {
            check(client, told, seed, &mut self.seen).await?;
        }
        Ok(())
    }

    async fn resume(&mut self, client: &Client, told: Vec<ClientRecord>) -> Result<()> {
        for mut told in told {
            self.called.append(&mut told.called);
            kill_runs::resume::<Connect>(client, &told.runs, &mut self.seen.runs).await?;
        }
        Ok(())
    }

    /// Deliveries are only checked at the end.
    fn has_seen_enough(&self) -> bool {
        let counts = [self.seen.instances, self.seen.states, self.called.len()];
        self.seen.runs.has_seen_enough() && counts.iter().all(|&count| count > 0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_were_told_survives_kill_9() {
    let receiver = Arc::new(Receiver::start().await.unwrap());
    let dir = Folder::new().unwrap();
    let settings = SETTINGS.to_owned();
    let options = ServerOptions { settings, ..ServerOptions::default() };
    let home = Home::new(dir.path(), &options).unwrap();
    let mut clients = Clients::with(Arc::clone(&receiver));
    let server = kill_rounds(&home, PLAN, &mut clients).await;
    clients.check_calls(&server.client()).await.unwrap();
    clients.check_deliveries();
    let seen = clients.seen;
    seen.runs.assert_enough();
    assert!(seen.delivered > 0 && seen.instances > 0 && seen.states > 0, "{seen:?}");
    stop(server).await;
}

/// A request for a run of an agent that takes a message.
fn run_of(agent: &str, text: &str) -> Value {
    json!({"agent_id": agent, "input": {"message": text}, "on_disconnect": "continue"})
}

fn letter() -> Value {
    run_of("mailcomposer", "Write to ada@example.com about the report: it is ready.")
}

/// The record of a client that only uses runs.
async fn of_runs(playing: impl Future<Output = RunRecord>) -> ClientRecord {
    ClientRecord { runs: playing.await, ..ClientRecord::default() }
}

// === impl Player ===

impl Player {
    /// Requests runs, and waits for the end of some of them; some start later.
    async fn wait(mut self) -> ClientRecord {
        let mut told = ClientRecord::default();
        loop {
            let text = format!("{:x}", self.seed.draw());
            let mut body = run_of("echo", &text);
            match self.seed.below(4) {
                0 => {
                    body["after_seconds"] = json!(self.seed.below(2));
                    let Ok(reply) = self.client.post(&format!("{BASE}/runs"), &body).await else {
                        return told;
                    };
                    told.runs.accepted.push(reply.ok().unwrap());
                }
                _ => {
                    let path = format!("{BASE}/runs/wait");
                    let Ok(reply) = self.client.post(&path, &body).await else { return told };
                    let answer = reply.ok().unwrap();
                    let has_text = answer["output"]["values"].to_string().contains(&text);
                    let is_fine = answer["run"]["status"] == "success" && has_text;
                    assert!(is_fine || Connect::is_lost(&answer), "{answer}");
                    told.runs.done.push(answer);
                }
            }
        }
    }

    /// Requests runs on one thread, concurrently with its other users, and reads its states.
    async fn converse(mut self) -> ClientRecord {
        let mut told = ClientRecord::default();
        let thread = format!("thread-{}", self.seed.below(3));
        let path = format!("{BASE}/threads/{thread}");
        loop {
            let mut body = run_of("echo", &format!("{:x}", self.seed.draw()));
            body["if_not_exists"] = json!("create");
            body["multitask_strategy"] = json!("enqueue");
            let Ok(reply) = self.client.post(&format!("{path}/runs"), &body).await else {
                return told;
            };
            let run = reply.ok().unwrap();
            let last = format!("{path}/runs/{}/wait", id_of(&run).unwrap());
            told.runs.accepted.push(run);
            // Only a limited number of runs may wait for their turn on a thread.
            if told.runs.accepted.len().is_multiple_of(WAITED_FOR)
                && self.client.get(&last).await.is_err()
            {
                return told;
            }
            if self.seed.below(3) == 0 {
                let Ok(reply) = self.client.get(&format!("{path}/history")).await else {
                    return told;
                };
                let history = reply.ok().unwrap();
                let states = history.as_array().cloned().unwrap_or_default();
                told.states.extend(states.into_iter().map(|state| (thread.clone(), state)));
            }
        }
    }

    /// Requests runs whose end is delivered.
    async fn be_called(self) -> ClientRecord {
        let mut told = ClientRecord::default();
        let mut body = run_of("echo", "call me");
        body["webhook"] = json!(self.receiver.url());
        while let Ok(reply) = self.client.post(&format!("{BASE}/runs"), &body).await {
            told.called.push(reply.ok().unwrap());
        }
        told
    }

    async fn configure(self) -> ClientRecord {
        let mut told = ClientRecord::default();
        let body = json!({"config": {"style": "formal"}, "metadata": {"a": [1]}});
        let path = format!("{BASE}/agents/mailcomposer/configurations");
        while let Ok(reply) = self.client.post(&path, &body).await {
            told.instances.push(reply.ok().unwrap());
        }
        told
    }
}

/// All states of a thread. A page ends early if it would become too large.
async fn history(client: &Client, thread: &str) -> Result<Vec<Value>> {
    let first = format!("{BASE}/threads/{thread}/history?limit=1000");
    let (mut path, mut states) = (first.clone(), Vec::new());
    loop {
        let page = client.get(&path).await?;
        let found = page.ok()?;
        states.extend(found.as_array().context("a history that is no list")?.iter().cloned());
        let Some(next) = page.headers.get("trilogue-next") else { return Ok(states) };
        path = format!("{first}&before={}", next.to_str()?);
    }
}

async fn check(
    client: &Client,
    told: &ClientRecord,
    seed: &mut Seed,
    seen: &mut CaseCounts,
) -> Result<()> {
    kill_runs::check::<Connect>(client, &told.runs, seed, &mut seen.runs).await?;
    for instance in &told.instances {
        let id = instance["configuration_id"].as_str().context("an instance without id")?;
        let path = format!("{BASE}/agents/mailcomposer/configurations/{id}");
        let now = client.get(&path).await?.ok()?;
        ensure!(now == *instance, "the instance was {instance} and is {now}");
        seen.instances += 1;
    }
    let mut histories = BTreeMap::new();
    for (thread, state) in &told.states {
        if !histories.contains_key(thread) {
            histories.insert(thread.clone(), history(client, thread).await?);
        }
        let now = histories.get(thread);
        ensure!(now.is_some_and(|now| now.contains(state)), "{thread} has lost {state}: {now:?}");
        seen.states += 1;
    }
    Ok(())
}

/// Checks that the receiver gets the run's end with its actual result.
async fn check_called(client: &Client, receiver: &Receiver, run: &str) -> Result<()> {
    let answer = Connect::wait_for_end(client, run).await?;
    let what = format!("the end of {run} to be delivered");
    let heard = until(&what, SETTLE_LIMIT, || async {
        receiver.deliveries().iter().map(body).find(|body| body["run_id"] == run)
    });
    let heard = heard.await?;
    ensure!(heard["status"] == answer["run"]["status"], "{heard} was delivered of {answer}");
    ensure!(heard["output"] == answer["output"], "{heard} was delivered of {answer}");
    Ok(())
}

fn body(delivery: &Delivery) -> Value {
    serde_json::from_slice(&delivery.body).unwrap_or_default()
}

fn delivery_id(delivery: &Delivery) -> &str {
    delivery.headers["webhook-id"].to_str().unwrap()
}

/// Checks that deliveries with one id are equal, and that no end was delivered in two ways.
fn check_deliveries(deliveries: &[Delivery]) {
    let mut by_id: BTreeMap<&str, Value> = BTreeMap::new();
    let mut by_run: BTreeMap<String, &str> = BTreeMap::new();
    for delivery in deliveries {
        let (id, body) = (delivery_id(delivery), body(delivery));
        let run = body["run_id"].as_str().unwrap_or_default().to_owned();
        let first = by_run.entry(run).or_insert(id);
        assert_eq!(*first, id, "the end of a run was delivered under two ids: {body}");
        let first = by_id.entry(id).or_insert_with(|| body.clone());
        assert_eq!(*first, body, "one delivery was sent in two forms");
    }
}
