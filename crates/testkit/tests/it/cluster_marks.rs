//! An agent that records each execution outside of all nodes.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;
use trilogue_testkit::wait_only_server::WaitOnlyServer;
use trilogue_testkit::{Client, Seed, until};

use crate::bridge::bridge_settings;
use crate::kill_rounds::{SETTLE_LIMIT, Scenario};

const FAR_AGENT: &str = "org.example.old";
/// The agent's name on the nodes.
const AGENT: &str = "far_org_example_old";

/// Clients that request runs of the agent, and the agent's server.
#[derive(Debug)]
pub(crate) struct Marks {
    server: WaitOnlyServer,
    /// The expected input of the agent, by run.
    asked: BTreeMap<String, Mark>,
}

#[derive(Clone, Debug)]
pub(crate) struct Mark {
    run: String,
    text: String,
    /// Whether a node has acknowledged the run.
    is_known: bool,
}

/// How many inputs were requested, and how many executed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ExecutionTally {
    asked: usize,
    pub(crate) once: usize,
    /// Not executed, because the run or the request was lost before.
    never: usize,
}

// === impl Marks ===

impl Marks {
    pub(crate) async fn start() -> Result<Self> {
        Ok(Self { server: WaitOnlyServer::start().await?, asked: BTreeMap::new() })
    }

    /// The settings that give a node the agent.
    pub(crate) fn settings(&self) -> String {
        bridge_settings("agent-connect", &self.server.url(), &[FAR_AGENT])
    }

    /// Fails if an input was executed twice, if a completed run was never executed, or if an acknowledged run is gone. All runs must have ended.
    pub(crate) async fn check_all(&self, client: &Client) -> Result<ExecutionTally> {
        let mut executions: BTreeMap<String, usize> = BTreeMap::new();
        for text in self.server.run_messages() {
            *executions.entry(text).or_default() += 1;
        }
        let mut seen = ExecutionTally { asked: self.asked.len(), ..ExecutionTally::default() };
        for mark in self.asked.values() {
            let count = executions.get(&mark.text).copied().unwrap_or_default();
            let path = format!("/api/v1/runs/{}", mark.run);
            let run = until("the node to answer", SETTLE_LIMIT, || async {
                client.get(&path).await.ok()
            });
            let run = run.await?;
            ensure!(count <= 1, "{mark:?} was executed {count} times: {}", run.json());
            ensure!(run.status != 404 || !mark.is_known, "{mark:?} is gone");
            ensure!(run.status != 404 || count == 0, "{mark:?} was executed and is gone");
            let is_done = run.json()["status"] == "completed";
            ensure!(count == 1 || !is_done, "{mark:?} is done, and was not executed");
            seen.once += count;
            seen.never += usize::from(count == 0);
        }
        Ok(seen)
    }
}

impl Scenario for Marks {
    type Received = Vec<Mark>;

    fn play(
        &self,
        client: &Client,
        seed: &mut Seed,
        clients: usize,
        players: &mut JoinSet<Vec<Mark>>,
    ) {
        for _ in 0..clients {
            players.spawn(ask(client.clone(), seed.fork()));
        }
    }

    /// `check_all` counts the executions at the end.
    async fn check(&mut self, _: &Client, _: &[Vec<Mark>], _: &mut Seed) -> Result<()> {
        Ok(())
    }

    async fn resume(&mut self, _: &Client, told: Vec<Vec<Mark>>) -> Result<()> {
        self.asked.extend(told.into_iter().flatten().map(|mark| (mark.run.clone(), mark)));
        Ok(())
    }

    fn has_seen_enough(&self) -> bool {
        !self.asked.is_empty()
    }
}

/// Requests runs, one after the other. Some wait in the queue of a thread.
async fn ask(client: Client, mut seed: Seed) -> Vec<Mark> {
    let mut told = Vec::new();
    let thread = format!("marks-{}", seed.below(2));
    loop {
        let text = format!("{:016x}", seed.draw());
        let run = format!("mark-{text}");
        let mode = if seed.below(4) == 0 { "async" } else { "wait" };
        let body = json!({
            "agent": AGENT, "id": run, "input": text, "mode": mode,
            "thread_id": thread, "create_thread": true,
        });
        let reply = client.post("/api/v1/runs", &body).await;
        let reply = reply.map(|reply| reply.ok().unwrap());
        told.push(Mark { run, text, is_known: reply.is_ok() });
        if reply.is_err() {
            return told;
        }
    }
}
