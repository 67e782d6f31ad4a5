//! `kill -9` at seeded random points while clients stream, wait and answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use trilogue_domain::lock;
use trilogue_testkit::{Client, Folder, Home, Seed, ServerOptions};

use crate::kill_rounds::{KillPlan, Scenario, kill_rounds, stop};
use crate::ledger::{Ledger, LedgerCounts};
use crate::run_of;

pub(crate) const CLIENTS: usize = 3;
const PLAN: KillPlan =
    KillPlan { clients: CLIENTS, rounds: 8, latest_kill_ms: 700, late_rounds: 0, late_kill_ms: 0 };

#[derive(Clone)]
struct Player {
    client: Client,
    ledger: Arc<Ledger>,
    seed: Seed,
    /// The thread that it uses, together with other clients.
    thread: String,
    cursors: Cursors,
}

/// The last cursor of each thread: reading continues there in the server's next life.
type Cursors = Arc<Mutex<BTreeMap<String, String>>>;

/// Clients that stream, wait, answer and follow, on threads with a common prefix.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) threads: String,
    cursors: Cursors,
    seen: LedgerCounts,
}

// === impl Clients ===

impl Clients {
    pub(crate) fn on(threads: String) -> Self {
        Self { threads, ..Self::default() }
    }
}

impl Scenario for Clients {
    type Received = ();

    fn play(&self, client: &Client, seed: &mut Seed, clients: usize, players: &mut JoinSet<()>) {
        for index in 0..clients {
            let player = |kind: usize, seed: &mut Seed| Player {
                client: client.clone(),
                ledger: Arc::clone(&self.ledger),
                seed: seed.fork(),
                cursors: Arc::clone(&self.cursors),
                thread: format!(
                    "{}-{kind}-{}",
                    self.threads,
                    (index + seed.below(2) as usize) % clients
                ),
            };
            players.spawn(player(0, seed).stream());
            players.spawn(player(0, seed).wait());
            players.spawn(player(1, seed).approve());
            players.spawn(player(0, seed).tail());
        }
    }

    async fn check(&mut self, client: &Client, _: &[()], _: &mut Seed) -> Result<()> {
        self.seen = self.ledger.check(client).await?;
        Ok(())
    }

    async fn resume(&mut self, _: &Client, _: Vec<()>) -> Result<()> {
        Ok(())
    }

    fn has_seen_enough(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let dir = Folder::new().unwrap();
    let home = Home::new(dir.path(), &ServerOptions::default()).unwrap();
    let mut clients = Clients::on("thread".to_owned());
    let server = kill_rounds(&home, PLAN, &mut clients).await;

    // Afterwards the server still works, and pending questions can still be answered.
    let client = server.client();
    let waiting = answer_all(&client, &clients.ledger).await.unwrap();
    let seen = clients.ledger.check(&client).await.unwrap();
    eprintln!("{waiting} questions were answered at the end, {seen:?}");
    assert!(seen.events > 0 && seen.runs > 0, "the clients were told nothing: {seen:?}");
    stop(server).await;
}

/// Answers all pending questions.
pub(crate) async fn answer_all(client: &Client, ledger: &Ledger) -> Result<usize> {
    let mut count = 0;
    loop {
        let page = client.get("/api/v1/interrupts?pending=true&limit=1000").await?.ok()?;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        if items.is_empty() {
            return Ok(count);
        }
        for item in &items {
            let id = item["id"].as_str().unwrap_or_default();
            let answer = json!({"value": {"approved": true, "reason": "at the end"}});
            ledger.answering(id);
            client.post(&format!("/api/v1/interrupts/{id}/answer"), &answer).await?.ok()?;
            ledger.record_answer(id);
            count += 1;
        }
    }
}

// === impl Player ===

impl Player {
    /// Requests runs and reads their streams.
    async fn stream(mut self) {
        while self.one_stream().await.is_ok() {}
    }

    async fn wait(mut self) {
        while self.one_wait().await.is_ok() {}
    }

    /// Requests runs that ask a question, and answers.
    async fn approve(mut self) {
        while self.one_approval().await.is_ok() {}
    }

    async fn tail(self) {
        while self.follow().await.is_ok() {}
    }

    /// A request for a run, whose id is recorded in the ledger first.
    fn request(&mut self, agent: &str, input: &Value, mode: &str) -> (String, Value) {
        let id = format!("run-{:016x}", self.seed.draw());
        let mut request = run_of(agent, &self.thread, input, mode);
        request["id"] = json!(id);
        self.ledger.record_request(&id);
        (id, request)
    }

    async fn one_stream(&mut self) -> Result<()> {
        let (_, request) = self.request("researcher", &json!("what is a log?"), "stream");
        let body = Bytes::from(request.to_string());
        let headers = [("accept", "text/event-stream")];
        let mut stream =
            self.client.stream_of(Method::POST, "/api/v1/runs", &headers, body).await?;
        while let Some(event) = stream.next().await? {
            self.note(&event.data);
        }
        Ok(())
    }

    async fn one_wait(&mut self) -> Result<()> {
        let text = format!("{:x}", self.seed.draw());
        let mode = if self.seed.below(3) == 0 { "async" } else { "wait" };
        let (_, request) = self.request("echo", &json!(text), mode);
        let run = self.client.post("/api/v1/runs", &request).await?.ok()?;
        self.ledger.run(&run);
        if run["status"] == "completed" {
            assert!(run["output"].to_string().contains(&text), "the echo is another: {run}");
        }
        Ok(())
    }

    async fn one_approval(&mut self) -> Result<()> {
        let input = json!({"message": "Write to ada@example.com about the report: it is ready."});
        let (_, request) = self.request("mailcomposer", &input, "wait");
        let run = self.client.post("/api/v1/runs", &request).await?.ok()?;
        self.ledger.run(&run);
        let Some(interrupt) = run["interrupts"][0]["id"].as_str() else { return Ok(()) };
        self.ledger.question(interrupt);
        // Leaves some questions pending over the restart.
        if self.seed.below(3) == 0 {
            return Ok(());
        }
        let path = format!("/api/v1/interrupts/{interrupt}/answer");
        let answer = json!({"value": {"approved": true, "reason": "fine"}});
        self.ledger.answering(interrupt);
        self.client.post(&path, &answer).await?.ok()?;
        self.ledger.record_answer(interrupt);
        Ok(())
    }

    async fn follow(&self) -> Result<()> {
        let path = format!("/api/v1/threads/{}/events", self.thread);
        let cursor = lock(&self.cursors).get(&self.thread).cloned();
        let mut stream = match self.client.stream(&path, cursor.as_deref()).await {
            Ok(stream) => stream,
            Err(error) => {
                let is_refused = error.to_string().contains("invalid_cursor");
                assert!(!is_refused, "{cursor:?} of {} was given: {error:#}", self.thread);
                // The thread may not exist yet. If the server is gone, this request fails.
                self.client.get("/healthz").await?;
                tokio::task::yield_now().await;
                return Ok(());
            }
        };
        while let Some(event) = stream.next().await? {
            self.note(&event.data);
            if let Some(id) = event.id {
                lock(&self.cursors).insert(self.thread.clone(), id);
            }
        }
        Ok(())
    }

    /// Records an event of this client's thread. Skips data that is not an event of the log.
    fn note(&self, data: &str) {
        let event: Value = serde_json::from_str(data).unwrap_or_default();
        let has_number = event["number"].is_u64() && event["type"].is_string();
        if has_number {
            let mut event = event;
            // Removes the id: it counts run numbers on a run's stream and thread numbers on a thread's.
            event.as_object_mut().map(|members| members.remove("id"));
            self.ledger.event(&self.thread, &event);
            if event["type"] == "run.created" && event["run_id"].is_string() {
                self.ledger.run(&json!({"id": event["run_id"], "status": "queued"}));
            }
        }
    }
}
