//! `kill -9` while clients of the Agent Communication Protocol stream, wait and answer.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use trilogue_testkit::client::{ServerSent, Stream};
use trilogue_testkit::{Client, Folder, Home, Seed, ServerOptions, until};

use crate::kill_rounds::{KillPlan, SETTLE_LIMIT, Scenario, kill_rounds, rest, stop};
use crate::kill_runs::{self, RunCounts, RunProtocol, RunRecord, data, open};

const PLAN: KillPlan =
    KillPlan { clients: 3, rounds: 6, latest_kill_ms: 500, late_rounds: 3, late_kill_ms: 2_000 };
const RUNS: &str = "/communication/runs";

/// The Agent Communication Protocol.
#[derive(Debug)]
struct Communication;

#[derive(Default, Debug)]
pub(crate) struct Clients {
    pub(crate) seen: RunCounts,
}

// === impl Communication ===

impl RunProtocol for Communication {
    const RUNS: &'static str = RUNS;
    const STATE: &'static str = "";
    const EVENTS: &'static str = "/events";
    const START: Option<&'static str> = None;
    const COMPLETED: &'static str = "completed";
    const WAITING: &'static str = "awaiting";
    const CREATION: &'static str = "created_at";

    fn streamed_request() -> (String, Value) {
        (RUNS.to_owned(), question("stream"))
    }

    fn asking_request() -> (String, Value) {
        (RUNS.to_owned(), letter("sync"))
    }

    fn run_in(state: &Value) -> &Value {
        state
    }

    fn run_of_event(event: &ServerSent) -> Option<String> {
        run_id(event)
    }

    fn is_lost(run: &Value) -> bool {
        let reason = &run["error"]["data"]["reason"];
        run["status"] == "failed" && (reason == "agent_lost" || reason == "store_unavailable")
    }

    async fn wait_for_end(client: &Client, id: &str) -> Result<Value> {
        let path = format!("{RUNS}/{id}");
        until("the run to end", SETTLE_LIMIT, || async {
            let run = client.get(&path).await.ok()?.ok().ok()?;
            let ended = matches!(run["status"].as_str()?, "completed" | "failed" | "cancelled");
            ended.then_some(run)
        })
        .await
    }

    async fn answer(client: &Client, id: &str, _: &mut Vec<Value>) -> Option<Value> {
        let reply = client.post(&format!("{RUNS}/{id}"), &approval("sync")).await.ok()?;
        Some(reply.ok().unwrap())
    }

    async fn check_whole_stream(client: &Client, run: &str, events: &[ServerSent]) -> Result<()> {
        let list = client.get(&format!("{RUNS}/{run}/events")).await?.ok()?;
        let listed: Vec<Value> = events.iter().map(data).collect();
        ensure!(list["events"] == Value::Array(listed), "the list differs from the stream");
        Ok(())
    }
}

// === impl Clients ===

impl Scenario for Clients {
    type Received = RunRecord;

    fn play(
        &self,
        client: &Client,
        seed: &mut Seed,
        clients: usize,
        players: &mut JoinSet<RunRecord>,
    ) {
        for _ in 0..clients {
            players.spawn(kill_runs::stream::<Communication>(client.clone()));
            players.spawn(wait(client.clone(), seed.fork()));
            players.spawn(kill_runs::ask::<Communication>(client.clone(), seed.fork()));
        }
    }

    async fn check(&mut self, client: &Client, told: &[RunRecord], seed: &mut Seed) -> Result<()> {
        for told in told {
            kill_runs::check::<Communication>(client, told, seed, &mut self.seen).await?;
        }
        Ok(())
    }

    async fn resume(&mut self, client: &Client, told: Vec<RunRecord>) -> Result<()> {
        for told in &told {
            kill_runs::resume::<Communication>(client, told, &mut self.seen).await?;
        }
        Ok(())
    }

    fn has_seen_enough(&self) -> bool {
        self.seen.has_seen_enough()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_go_on_where_they_were_cut_by_kill_9() {
    let dir = Folder::new().unwrap();
    let home = Home::new(dir.path(), &ServerOptions::default()).unwrap();
    let mut clients = Clients::default();
    let server = kill_rounds(&home, PLAN, &mut clients).await;
    clients.seen.assert_enough();
    stop(server).await;
}

/// A stream that ended while its run waits becomes live again once the run is answered, in the server's next life.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_stream_is_live() {
    let dir = Folder::new().unwrap();
    let home = Home::new(dir.path(), &ServerOptions::default()).unwrap();
    let server = home.start().await.unwrap();
    let mut first = open(&server.client(), RUNS, &letter("stream")).await.unwrap();
    let before = rest(&mut first).await.unwrap();
    let last = before.last().unwrap();
    assert_eq!(kind(last), "run.awaiting");
    let run = run_id(last).unwrap();
    let cursor = last.id.clone().unwrap();

    let home = server.kill().await.unwrap();
    let server = home.start().await.unwrap();
    let client = server.client();
    let path = format!("{RUNS}/{run}/events");
    let mut second = client.stream(&path, Some(&cursor)).await.unwrap();
    let answer = client.post(&format!("{RUNS}/{run}"), &approval("async")).await.unwrap();
    assert_eq!(answer.status, 202, "{}", answer.json());
    let after = rest(&mut second).await.unwrap();
    assert_eq!(after.first().map(kind).as_deref(), Some("run.in-progress"));
    assert_eq!(after.last().map(kind).as_deref(), Some("run.completed"));
    let mut whole = client.stream(&path, None).await.unwrap();
    assert_eq!(rest_of_all(&mut whole, &client, &path).await.unwrap(), [before, after].concat());
}

/// A stream that its reader drops continues at the same event, in the same life of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_can_be_left_and_joined_at_every_event() {
    let dir = Folder::new().unwrap();
    let server = Home::new(dir.path(), &ServerOptions::default()).unwrap().start().await.unwrap();
    let client = server.client();
    let mut stream = open(&client, RUNS, &question("stream")).await.unwrap();
    let mut whole = vec![stream.next().await.unwrap().unwrap()];
    let run = run_id(&whole[0]).unwrap();
    let path = format!("{RUNS}/{run}/events");
    drop(stream);
    // One connection per event, while the run continues.
    loop {
        let cursor = whole.last().and_then(|event| event.id.clone()).unwrap();
        let mut stream = client.stream(&path, Some(&cursor)).await.unwrap();
        let Some(event) = stream.next().await.unwrap() else { break };
        whole.push(event);
    }
    assert_eq!(whole.last().map(kind).as_deref(), Some("run.completed"));
    let list = client.get(&path).await.unwrap().ok().unwrap();
    assert_eq!(list["events"], Value::Array(whole.iter().map(data).collect()));
}

fn question(mode: &str) -> Value {
    let input = json!([{"role": "user", "parts": [{"content_type": "text/plain", "content": "what is a log?"}]}]);
    json!({"agent_name": "researcher", "mode": mode, "input": input})
}

fn letter(mode: &str) -> Value {
    let text = "Write to ada@example.com about the report: it is ready.";
    let input =
        json!([{"role": "user", "parts": [{"content_type": "text/plain", "content": text}]}]);
    json!({"agent_name": "mailcomposer", "mode": mode, "input": input})
}

fn approval(mode: &str) -> Value {
    let text = kill_runs::approval().to_string();
    let message =
        json!({"role": "user", "parts": [{"content_type": "text/plain", "content": text}]});
    json!({"await_resume": {"type": "message", "message": message}, "mode": mode})
}

fn kind(event: &ServerSent) -> String {
    data(event)["type"].as_str().unwrap_or_default().to_owned()
}

fn run_id(event: &ServerSent) -> Option<String> {
    data(event)["run"]["run_id"].as_str().map(str::to_owned)
}

/// Reads all events of a run to its end, across the pauses of its stream at questions.
async fn rest_of_all(stream: &mut Stream, client: &Client, path: &str) -> Result<Vec<ServerSent>> {
    let mut events = rest(stream).await?;
    while events.last().is_some_and(|last| kind(last) == "run.awaiting") {
        let cursor = events.last().and_then(|last| last.id.clone());
        let mut next = client.stream(path, cursor.as_deref()).await?;
        events.extend(rest(&mut next).await?);
    }
    Ok(events)
}

/// Requests runs, and waits for the end of some of them.
async fn wait(client: Client, mut seed: Seed) -> RunRecord {
    let mut told = RunRecord::default();
    loop {
        let mode = if seed.below(3) == 0 { "async" } else { "sync" };
        let text = format!("{:x}", seed.draw());
        let input =
            json!([{"role": "user", "parts": [{"content_type": "text/plain", "content": text}]}]);
        let body = json!({"agent_name": "echo", "mode": mode, "input": input});
        let Ok(reply) = client.post(RUNS, &body).await else { return told };
        let run = reply.ok().unwrap();
        match mode {
            "async" => told.accepted.push(run),
            _ if Communication::is_lost(&run) => told.done.push(run),
            _ => {
                assert_eq!(run["output"][0]["parts"][0]["content"], *text, "{run}");
                told.done.push(run);
            }
        }
    }
}
