//! Rolling restarts: each node in turn stops and starts again, while clients of all protocols use the cluster through nginx.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use trilogue_testkit::client::ServerSent;
use trilogue_testkit::{Client, until};

use crate::cluster::{Cluster, NAMES};
use crate::run_of;

/// The number of restarts of each node.
const ROUNDS: usize = 3;
/// The number of clients of each kind.
const CLIENTS: usize = 2;
/// The time under load before the first restart, between two restarts, and after the last.
const BETWEEN: Duration = Duration::from_millis(300);
/// The longest time between two responses to a client's short requests: less than `dead_after`, because a thread that pauses for that long was taken over, not handed over.
const MAX_PAUSE: Duration = Duration::from_secs(4);
/// The time limit for a run.
const RUN_LIMIT: Duration = Duration::from_secs(30);
const LETTER: &str = "Write to ada@example.com about the report: it is ready.";

/// The clients' findings.
#[derive(Debug, Default)]
struct Findings {
    errors: Vec<String>,
    longest_pause: Duration,
    requests: usize,
    streams: usize,
    resumed: usize,
    answers: usize,
}

#[derive(Clone, Debug)]
struct Player {
    client: Client,
    number: usize,
    findings: Arc<Mutex<Findings>>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restarts_cause_no_errors() {
    let mut cluster = Cluster::start("").await.unwrap();
    let client = cluster.proxy_client();
    let findings = Arc::new(Mutex::new(Findings::default()));
    let players = (0..CLIENTS).flat_map(|number| {
        let player = || Player { client: client.clone(), number, findings: Arc::clone(&findings) };
        [
            player().pulse().boxed_local(),
            player().native().boxed_local(),
            player().communication().boxed_local(),
            player().connect().boxed_local(),
            player().tail().boxed_local(),
        ]
    });
    let mut stops = Vec::new();
    let restarting = async {
        for _ in 0..ROUNDS {
            for index in 0..NAMES.len() {
                // Keeps up the load between two restarts; this waits for no condition.
                tokio::time::sleep(BETWEEN).await;
                stops.push(cluster.restart(index).await.unwrap());
            }
        }
        tokio::time::sleep(BETWEEN).await;
        client.close();
    };
    tokio::join!(join_all(players), restarting);
    let findings = std::mem::take(&mut *findings.lock().unwrap());
    eprintln!("stops took {stops:?}");
    let Findings { longest_pause, requests, streams, resumed, answers, errors } = findings;
    eprintln!(
        "{requests} requests, {streams} streams, {resumed} resumed, {answers} answers, {} errors, longest pause {longest_pause:?}",
        errors.len()
    );
    assert!(errors.is_empty(), "{errors:#?}\n{}", cluster.log_ends());
    assert!(longest_pause < MAX_PAUSE, "a thread was paused for {longest_pause:?}");
    assert!(requests > 100 && streams > 10 && resumed > 0 && answers > 0);
    cluster.stop().await.unwrap();
}

// === impl Player ===

impl Player {
    /// Sends short requests to one thread, to measure its pauses.
    async fn pulse(self) {
        let thread = format!("pulse-{}", self.number);
        self.play(async || {
            self.post("/api/v1/threads", &json!({ "id": thread })).await?;
            let path = format!("/api/v1/threads/{thread}");
            let mut last = Instant::now();
            for number in 0_u64.. {
                let body = Bytes::from(json!({"metadata": {"n": number}}).to_string());
                self.send(Method::PATCH, &path, body).await?;
                let read = self.get(&path).await?;
                ensure!(read["metadata"]["n"] == number, "{read} is not the newest state");
                let pause = last.elapsed();
                last = Instant::now();
                let mut findings = self.findings.lock().unwrap();
                findings.longest_pause = findings.longest_pause.max(pause);
            }
            Ok(())
        })
        .await;
    }

    /// Uses runs that it waits for, questions, and streams, over `/api/v1`.
    async fn native(self) {
        let thread = format!("native-{}", self.number);
        self.play(async || {
            let runs = "/api/v1/runs";
            let run = self.post(runs, &run_of("echo", &thread, &json!("hi"), "wait")).await?;
            ensure!(run["status"] == "completed", "{run}");
            let run = self.post(runs, &run_of("echo", &thread, &json!("hi"), "async")).await?;
            let waited = self.get(&format!("{runs}/{}/wait", text(&run["id"]))).await?;
            ensure!(waited["status"] == "completed", "{waited}");
            let letter = run_of("mailcomposer", &format!("{thread}-mail"), &json!(LETTER), "wait");
            let asking = self.post(runs, &letter).await?;
            let question = text(&asking["interrupts"][0]["id"]);
            let path = format!("/api/v1/interrupts/{question}/answer");
            self.answer(&path, &json!({"value": {"approved": true, "reason": "fine"}})).await?;
            let waited = self.get(&format!("{runs}/{}/wait", text(&asking["id"]))).await?;
            ensure!(waited["status"] == "completed", "{waited}");
            let body = run_of("researcher", &format!("{thread}-log"), &json!("a log?"), "async");
            let run = self.post(runs, &body).await?;
            self.read_stream(&format!("{runs}/{}/events", text(&run["id"])), None).await
        })
        .await;
    }

    async fn communication(self) {
        self.play(async || {
            let runs = "/communication/runs";
            let body = |agent: &str, text: &str, mode: &str| {
                let part = json!({"content_type": "text/plain", "content": text});
                json!({"agent_name": agent, "mode": mode, "input": [{"role": "user", "parts": [part]}]})
            };
            let run = self.post(runs, &body("echo", "hi", "sync")).await?;
            ensure!(run["status"] == "completed", "{run}");
            let asking = self.post(runs, &body("mailcomposer", LETTER, "sync")).await?;
            ensure!(asking["status"] == "awaiting", "{asking}");
            let approval = json!({"content_type": "text/plain", "content": r#"{"approved": true, "reason": "fine"}"#});
            let message = json!({"role": "user", "parts": [approval]});
            let answer =
                json!({"await_resume": {"type": "message", "message": message}, "mode": "sync"});
            let path = format!("{runs}/{}", text(&asking["run_id"]));
            let run = self.answer(&path, &answer).await?;
            ensure!(run["status"] == "completed", "{run}");
            let run = self.post(runs, &body("researcher", "a log?", "async")).await?;
            self.read_stream(&format!("{runs}/{}/events", text(&run["run_id"])), None).await
        })
        .await;
    }

    async fn connect(self) {
        self.play(async || {
            let runs = "/connect/runs";
            let body = |agent: &str, text: &str| {
                json!({"agent_id": agent, "input": {"message": text}, "on_disconnect": "continue"})
            };
            let done = self.post("/connect/runs/wait", &body("echo", "hi")).await?;
            ensure!(done["run"]["status"] == "success", "{done}");
            let run = self.post(runs, &body("echo", "hi")).await?;
            let done = self.get(&format!("{runs}/{}/wait", text(&run["run_id"]))).await?;
            ensure!(done["run"]["status"] == "success", "{done}");
            let asking = self.post("/connect/runs/wait", &body("mailcomposer", LETTER)).await?;
            let path = format!("{runs}/{}", text(&asking["run"]["run_id"]));
            self.answer(&path, &json!({"approved": true, "reason": "fine"})).await?;
            let done = self.get(&format!("{path}/wait")).await?;
            ensure!(done["run"]["status"] == "success", "{done}");
            let mut question = body("researcher", "a log?");
            question["stream_mode"] = json!("custom");
            let run = self.post(runs, &question).await?;
            self.read_stream(&format!("{runs}/{}/stream", text(&run["run_id"])), Some("0")).await
        })
        .await;
    }

    /// Follows a thread that others change, from its beginning on each server.
    async fn tail(self) {
        let path = format!("/api/v1/threads/native-{}/events", self.number);
        let found = until("the thread to exist", RUN_LIMIT, || async {
            self.client.get(&path).await.ok().filter(|reply| reply.status == 200)
        });
        drop(found.await);
        let mut seen = 0;
        self.play(async || {
            let opened = self.client.stream(&path, None).await;
            let mut stream = opened.context("a stream of a thread was not opened")?;
            self.findings.lock().unwrap().resumed += usize::from(seen > 0);
            let mut last = 0;
            while let Some(event) = stream.next().await.context("a stream of a thread broke")? {
                if event.id.is_none() {
                    break;
                }
                let number = read(&event)["number"].as_u64().context("no number")?;
                ensure!(number == last + 1, "event {number} follows event {last}");
                last = number;
            }
            ensure!(last >= seen, "the log ends at {last}, and had {seen} events before");
            seen = last;
            Ok(())
        })
        .await;
    }

    /// Repeats a script until the client is closed. A failure before that is an error.
    async fn play(&self, mut script: impl AsyncFnMut() -> Result<()>) {
        while !self.client.is_closed() {
            let played = script().await;
            if self.client.is_closed() {
                return;
            }
            if let Err(error) = played {
                self.findings.lock().unwrap().errors.push(format!("{error:#}"));
            }
        }
    }

    /// Reads a run's stream to its end, resumes it each time a server ends it early, and compares it with the whole stream. `first` is the cursor of its beginning.
    async fn read_stream(&self, path: &str, first: Option<&str>) -> Result<()> {
        let mut events: Vec<ServerSent> = Vec::new();
        loop {
            let cursor = events.last().and_then(|event| event.id.clone());
            let opened = self.client.stream(path, cursor.as_deref().or(first)).await;
            let mut stream = opened.with_context(|| format!("{path} was not opened"))?;
            let mut is_cut = false;
            while let Some(event) = stream.next().await.with_context(|| format!("{path} broke"))? {
                // The server reports that it stops.
                is_cut |= event.id.is_none();
                events.extend(event.id.is_some().then_some(event));
            }
            if !is_cut {
                break;
            }
            self.findings.lock().unwrap().resumed += 1;
        }
        self.findings.lock().unwrap().streams += 1;
        let mut whole = Vec::new();
        let mut stream = self.client.stream(path, first).await.context("a second look")?;
        while let Some(event) = stream.next().await? {
            if event.id.is_none() {
                // Another stop cut it.
                return Ok(());
            }
            whole.push(event);
        }
        ensure!(!events.is_empty() && events == whole, "{path}: {events:#?}\n{whole:#?}");
        Ok(())
    }

    async fn answer(&self, path: &str, body: &Value) -> Result<Value> {
        let answered = self.post(path, body).await?;
        self.findings.lock().unwrap().answers += 1;
        Ok(answered)
    }

    async fn get(&self, path: &str) -> Result<Value> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.send(Method::POST, path, Bytes::from(body.to_string())).await
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Value> {
        let named = || format!("{method} {path} {}", String::from_utf8_lossy(&body));
        let replied = self.client.send(method.clone(), path, &[], body.clone()).await;
        let reply = replied.with_context(named)?.ok().with_context(named)?;
        self.findings.lock().unwrap().requests += 1;
        Ok(reply)
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn read(event: &ServerSent) -> Value {
    serde_json::from_str(&event.data).unwrap_or_default()
}
