//! `kill -9` while clients of the Agent Communication Protocol stream, wait and answer.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use trilogue_testkit::client::{ServerSent, Stream};
use trilogue_testkit::{Client, Folder, Home, Seed, ServerOptions, until};

use crate::kill_rounds::{
    KillPlan, SETTLE_LIMIT, Scenario, ensure_whole, kill_rounds, rest, stop, until_cut,
};

const PLAN: KillPlan =
    KillPlan { clients: 3, rounds: 6, latest_kill_ms: 500, late_rounds: 3, late_kill_ms: 2_000 };
const BASE: &str = "/communication";

/// What a client received before the server was killed.
#[derive(Default, Debug)]
pub(crate) struct ClientRecord {
    /// The events of each stream.
    streams: Vec<Vec<ServerSent>>,
    /// Complete runs from `sync` and resume responses.
    done: Vec<Value>,
    /// Accepted runs whose further state is unknown.
    accepted: Vec<String>,
    /// Runs that wait for an answer.
    waiting: Vec<Value>,
}

#[derive(Default, Debug)]
pub(crate) struct CaseCounts {
    pub(crate) resumed: usize,
    pub(crate) cut: usize,
    pub(crate) missed: usize,
    pub(crate) done: usize,
    pub(crate) accepted: usize,
    pub(crate) answered: usize,
}

// === impl LedgerCounts ===

impl Scenario for CaseCounts {
    type Received = ClientRecord;

    fn play(
        &self,
        client: &Client,
        seed: &mut Seed,
        clients: usize,
        players: &mut JoinSet<ClientRecord>,
    ) {
        for _ in 0..clients {
            players.spawn(stream(client.clone()));
            players.spawn(wait(client.clone(), seed.fork()));
            players.spawn(ask(client.clone(), seed.fork()));
        }
    }

    async fn check(
        &mut self,
        client: &Client,
        told: &[ClientRecord],
        seed: &mut Seed,
    ) -> Result<()> {
        for told in told {
            check(client, told, seed, self).await?;
        }
        Ok(())
    }

    async fn resume(&mut self, client: &Client, told: Vec<ClientRecord>) -> Result<()> {
        for run in told.iter().flat_map(|told| &told.waiting) {
            let path = format!("{BASE}/runs/{}", id_of(run)?);
            let run = client.post(&path, &approval("sync")).await?.ok()?;
            ensure!(run["status"] == "completed", "the answered run is {run}");
            self.answered += 1;
        }
        Ok(())
    }

    fn has_seen_enough(&self) -> bool {
        [self.resumed, self.missed, self.done, self.answered].iter().all(|count| *count > 0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_go_on_where_they_were_cut_by_kill_9() {
    let dir = Folder::new().unwrap();
    let home = Home::new(dir.path(), &ServerOptions::default()).unwrap();
    let mut seen = CaseCounts::default();
    let server = kill_rounds(&home, PLAN, &mut seen).await;
    assert!(seen.resumed > 0 && seen.missed > 0, "no stream was resumed: {seen:?}");
    assert!(seen.done > 0 && seen.answered > 0, "the clients were told nothing: {seen:?}");
    stop(server).await;
}

/// A stream that ended while its run waits becomes live again once the run is answered, in the server's next life.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_stream_is_live() {
    let dir = Folder::new().unwrap();
    let home = Home::new(dir.path(), &ServerOptions::default()).unwrap();
    let server = home.start().await.unwrap();
    let mut first = open(&server.client(), &letter("stream")).await.unwrap();
    let before = rest(&mut first).await.unwrap();
    let last = before.last().unwrap();
    assert_eq!(kind(last), "run.awaiting");
    let run = run_id(last).unwrap();
    let cursor = last.id.clone().unwrap();

    let home = server.kill().await.unwrap();
    let server = home.start().await.unwrap();
    let client = server.client();
    let path = format!("{BASE}/runs/{run}/events");
    let mut second = client.stream(&path, Some(&cursor)).await.unwrap();
    let answer = client.post(&format!("{BASE}/runs/{run}"), &approval("async")).await.unwrap();
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
    let mut stream = open(&client, &question("stream")).await.unwrap();
    let mut whole = vec![stream.next().await.unwrap().unwrap()];
    let run = run_id(&whole[0]).unwrap();
    let path = format!("{BASE}/runs/{run}/events");
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
    let text = r#"{"approved": true, "reason": "fine"}"#;
    let message =
        json!({"role": "user", "parts": [{"content_type": "text/plain", "content": text}]});
    json!({"await_resume": {"type": "message", "message": message}, "mode": mode})
}

fn data(event: &ServerSent) -> Value {
    serde_json::from_str(&event.data).unwrap()
}

fn kind(event: &ServerSent) -> String {
    data(event)["type"].as_str().unwrap_or_default().to_owned()
}

fn id_of(run: &Value) -> Result<&str> {
    run["run_id"].as_str().with_context(|| format!("a run without an id: {run}"))
}

fn run_id(event: &ServerSent) -> Option<String> {
    data(event)["run"]["run_id"].as_str().map(str::to_owned)
}

async fn open(client: &Client, request: &Value) -> Result<Stream> {
    let headers = [("accept", "text/event-stream")];
    let body = Bytes::from(request.to_string());
    client.stream_of(Method::POST, &format!("{BASE}/runs"), &headers, body).await
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

async fn stream(client: Client) -> ClientRecord {
    let mut told = ClientRecord::default();
    while let Ok(mut stream) = open(&client, &question("stream")).await {
        let (events, cut) = until_cut(&mut stream).await;
        told.streams.push(events);
        if cut {
            break;
        }
    }
    told
}

/// Requests runs, and waits for the end of some of them.
async fn wait(client: Client, mut seed: Seed) -> ClientRecord {
    let mut told = ClientRecord::default();
    loop {
        let mode = if seed.below(3) == 0 { "async" } else { "sync" };
        let text = format!("{:x}", seed.draw());
        let input =
            json!([{"role": "user", "parts": [{"content_type": "text/plain", "content": text}]}]);
        let body = json!({"agent_name": "echo", "mode": mode, "input": input});
        let Ok(reply) = client.post(&format!("{BASE}/runs"), &body).await else { return told };
        let run = reply.ok().unwrap();
        match mode {
            "async" => told.accepted.push(run["run_id"].as_str().unwrap().to_owned()),
            _ if is_lost(&run) => told.done.push(run),
            _ => {
                assert_eq!(run["output"][0]["parts"][0]["content"], *text, "{run}");
                told.done.push(run);
            }
        }
    }
}

/// Requests runs that ask a question. Answers some, and leaves others waiting.
async fn ask(client: Client, mut seed: Seed) -> ClientRecord {
    let mut told = ClientRecord::default();
    while let Ok(reply) = client.post(&format!("{BASE}/runs"), &letter("sync")).await {
        let run = reply.ok().unwrap();
        if is_lost(&run) {
            told.done.push(run);
            continue;
        }
        assert_eq!(run["status"], "awaiting", "{run}");
        if seed.below(2) == 0 {
            told.waiting.push(run);
            continue;
        }
        let path = format!("{BASE}/runs/{}", id_of(&run).unwrap());
        let Ok(reply) = client.post(&path, &approval("sync")).await else { break };
        let run = reply.ok().unwrap();
        assert!(run["status"] == "completed" || is_lost(&run), "{run}");
        told.done.push(run);
    }
    told
}

/// Compares what a client received with the server's state now.
async fn check(
    client: &Client,
    told: &ClientRecord,
    seed: &mut Seed,
    seen: &mut CaseCounts,
) -> Result<()> {
    for events in &told.streams {
        // A reader may have stored less than it received.
        let kept = seed.below(events.len() as u64 + 1) as usize;
        check_stream(client, events.get(..kept).unwrap_or_default(), seen).await?;
        check_stream(client, events, seen).await?;
    }
    for run in &told.done {
        let now = client.get(&format!("{BASE}/runs/{}", id_of(run)?)).await?.ok()?;
        ensure!(now == *run, "the run was told as {run} and is {now}");
        seen.done += 1;
    }
    for id in &told.accepted {
        let run = wait_for_end(client, id).await?;
        ensure!(run["status"] == "completed" || is_lost(&run), "the accepted run is {run}");
        seen.accepted += 1;
    }
    for run in &told.waiting {
        let now = client.get(&format!("{BASE}/runs/{}", id_of(run)?)).await?.ok()?;
        ensure!(now == *run, "the waiting run was told as {run} and is {now}");
    }
    Ok(())
}

/// Checks that the events from before the kill, and the events after them, are the run's whole stream.
async fn check_stream(client: &Client, told: &[ServerSent], seen: &mut CaseCounts) -> Result<()> {
    // A connection that broke before its first event has no run id.
    let Some(run) = told.first().and_then(run_id) else { return Ok(()) };
    wait_for_end(client, &run).await?;
    let path = format!("{BASE}/runs/{run}/events");
    let cursor = told.last().and_then(|event| event.id.clone()).context("an event without id")?;
    let mut resumed = client.stream(&path, Some(&cursor)).await?;
    let missed = rest(&mut resumed).await?;
    let mut all = client.stream(&path, None).await?;
    let all = rest(&mut all).await?;
    let missed_count = missed.len();
    ensure_whole(told, &missed, &all)?;
    let list = client.get(&path).await?.ok()?;
    let listed: Vec<Value> = all.iter().map(data).collect();
    ensure!(list["events"] == Value::Array(listed), "the list differs from the stream");
    seen.resumed += 1;
    seen.missed += missed_count;
    seen.cut += usize::from(missed_count > 0);
    Ok(())
}

async fn wait_for_end(client: &Client, id: &str) -> Result<Value> {
    let path = format!("{BASE}/runs/{id}");
    until("the run to end", SETTLE_LIMIT, || async {
        let run = client.get(&path).await.ok()?.ok().ok()?;
        let ended = matches!(run["status"].as_str()?, "completed" | "failed" | "cancelled");
        ended.then_some(run)
    })
    .await
}

/// Whether the run was lost: it was running when the server was killed, or while its database was away for longer than the retries of changes.
fn is_lost(run: &Value) -> bool {
    let reason = &run["error"]["data"]["reason"];
    run["status"] == "failed" && (reason == "agent_lost" || reason == "store_unavailable")
}
