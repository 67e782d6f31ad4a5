//! The resumable streams of all protocols: how each begins, its cursor, and its complete form.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use trilogue_testkit::client::{ServerSent, Stream};
use trilogue_testkit::{Client, until};

use crate::kill_rounds::until_cut;
use crate::run_of;

/// The time limit for a run to end, and for a server to accept a request again.
const LIMIT: Duration = Duration::from_secs(60);
/// The number of events of a running run that a client reads before the fault.
const EVENTS_BEFORE: usize = 3;
const ENDED: [&str; 4] = ["completed", "failed", "cancelled", "timed_out"];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum StreamKind {
    NativeRun,
    /// With `Last-Event-ID`.
    NativeThread,
    /// With `?after=`.
    NativeThreadAfter,
    CommunicationRun,
    ConnectRun,
    ConnectThreadRun,
}

/// The activity on a thread during the fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Activity {
    /// Its run has ended, so no server needs to load it.
    Ended,
    /// Its run waits for an answer.
    Idle,
    /// Its run is running.
    Active,
}

impl Activity {
    pub(crate) const ALL: [Self; 3] = [Self::Ended, Self::Idle, Self::Active];
}

/// One client's stream of a run, on a separate thread.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) kind: StreamKind,
    pub(crate) activity: Activity,
    run: String,
    path: String,
    received: Vec<ServerSent>,
    stream: Option<Stream>,
}

// === impl StreamKind ===

impl StreamKind {
    pub(crate) const ALL: [Self; 6] = [
        Self::NativeRun,
        Self::NativeThread,
        Self::NativeThreadAfter,
        Self::CommunicationRun,
        Self::ConnectRun,
        Self::ConnectThreadRun,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NativeRun => "api/v1 run",
            Self::NativeThread => "api/v1 thread",
            Self::NativeThreadAfter => "api/v1 thread, after=",
            Self::CommunicationRun => "communication run",
            Self::ConnectRun => "connect run",
            Self::ConnectThreadRun => "connect thread run",
        }
    }

    fn is_thread(self) -> bool {
        matches!(self, Self::NativeThread | Self::NativeThreadAfter)
    }

    fn is_connect(self) -> bool {
        matches!(self, Self::ConnectRun | Self::ConnectThreadRun)
    }
}

// === impl Subject ===

impl Subject {
    /// Begins a run on this thread through one server.
    pub(crate) async fn begin(
        kind: StreamKind,
        activity: Activity,
        thread: &str,
        client: &Client,
    ) -> Result<Self> {
        let (agent, text) = match activity {
            Activity::Ended => ("echo", "Howdy!"),
            Activity::Idle => {
                ("mailcomposer", "Write to ada@example.com about the report: it is ready.")
            }
            Activity::Active => ("researcher", "what is a log?"),
        };
        let member = |run: &Value, name: &str| {
            run[name].as_str().map(str::to_owned).with_context(|| format!("no {name}: {run}"))
        };
        let (run, path) = match kind {
            StreamKind::NativeRun | StreamKind::NativeThread | StreamKind::NativeThreadAfter => {
                let body = run_of(agent, thread, &json!(text), "async");
                let run = member(&client.post("/api/v1/runs", &body).await?.ok()?, "id")?;
                let path = match kind.is_thread() {
                    true => format!("/api/v1/threads/{thread}/events"),
                    false => format!("/api/v1/runs/{run}/events"),
                };
                (run, path)
            }
            StreamKind::CommunicationRun => {
                let part = json!({"content_type": "text/plain", "content": text});
                let input = json!([{"role": "user", "parts": [part]}]);
                let body = json!({"agent_name": agent, "mode": "async", "input": input});
                let run = client.post("/communication/runs", &body).await?.ok()?;
                let run = member(&run, "run_id")?;
                (run.clone(), format!("/communication/runs/{run}/events"))
            }
            StreamKind::ConnectRun | StreamKind::ConnectThreadRun => {
                let base = match kind {
                    StreamKind::ConnectRun => "/connect/runs".to_owned(),
                    _ => {
                        let body = json!({"thread_id": thread, "if_exists": "do_nothing"});
                        client.post("/connect/threads", &body).await?.ok()?;
                        format!("/connect/threads/{thread}/runs")
                    }
                };
                let mut body = json!({"agent_id": agent, "input": {"message": text}});
                if activity == Activity::Active {
                    body["stream_mode"] = json!("custom");
                }
                let run = member(&client.post(&base, &body).await?.ok()?, "run_id")?;
                (run.clone(), format!("{base}/{run}/stream"))
            }
        };
        Ok(Self { kind, activity, run, path, received: Vec::new(), stream: None })
    }

    /// Reads up to the question, or some events of a running run.
    pub(crate) async fn read_before(&mut self, client: &Client, extra: usize) -> Result<()> {
        if self.activity == Activity::Ended {
            until("the run to end", LIMIT, || async { self.has_ended(client).await.then_some(()) })
                .await?;
        }
        // A connect stream begins with the present by default; this cursor is the beginning.
        let begin = self.kind.is_connect().then_some("0");
        let mut stream = client.stream(&self.path, begin).await?;
        loop {
            let next = tokio::time::timeout(LIMIT, stream.next()).await;
            let Some(event) = next.with_context(|| self.line())?? else { break };
            ensure!(event.id.is_some(), "{}: an event without id: {event:?}", self.line());
            self.received.push(event);
            let is_enough = match self.activity {
                Activity::Idle => self.last_data()["type"] == "interrupt.raised",
                Activity::Ended => self.kind.is_connect() || self.received.len() == EVENTS_BEFORE,
                Activity::Active => self.received.len() >= EVENTS_BEFORE + extra,
            };
            if is_enough {
                break;
            }
        }
        ensure!(!self.received.is_empty(), "{}: nothing came", self.line());
        self.stream = Some(stream);
        Ok(())
    }

    /// Reads the remaining events until the connection breaks; drops a connection that did not break.
    pub(crate) async fn lose_connection(&mut self) {
        let Some(mut stream) = self.stream.take() else { return };
        let cut = tokio::time::timeout(Duration::from_millis(20), until_cut(&mut stream)).await;
        if let Ok((events, _)) = cut {
            self.received.extend(events);
        }
    }

    /// Resumes the stream, answers its run's question, and reads to the run's end. Returns the number of missed events.
    pub(crate) async fn resume(&mut self, client: &Client) -> Result<usize> {
        let before = self.received.len();
        let mut stream = self.open(client).await?;
        if self.activity == Activity::Idle {
            let answer = json!({"value": {"approved": true, "reason": "fine"}});
            let path = format!("/api/v1/runs/{}/answer", self.run);
            until("the answer to be taken", LIMIT, || async {
                let reply = client.post(&path, &answer).await.ok()?;
                // If an answer was accepted but its response was lost, the second one gets 409.
                matches!(reply.status, 200..=299 | 409).then_some(())
            })
            .await?;
        }
        let reading = async {
            // The end may have come before the connection broke; a thread's stream continues after it.
            while !self.kind.is_thread() || !self.has_end(client).await {
                let (events, _) = self.until_end_or_cut(&mut stream).await;
                self.received.extend(events);
                if self.has_end(client).await {
                    return Ok(());
                }
                stream = self.open(client).await?;
            }
            Ok(())
        };
        let read: Result<Result<()>, _> = tokio::time::timeout(LIMIT, reading).await;
        match read {
            Ok(read) => read?,
            Err(_) => bail!("{}: the end did not come: {:?}", self.line(), self.received.last()),
        }
        Ok(self.received.len() - before)
    }

    /// Compares the received events with a whole stream from this server, and resumes once more at the end.
    pub(crate) async fn check(&self, client: &Client) -> Result<()> {
        let begin = self.kind.is_connect().then_some("0");
        let mut stream = client.stream(&self.path, begin).await?;
        let mut all = Vec::new();
        let reading = async {
            loop {
                match stream.next().await? {
                    Some(event) => all.push(event),
                    None => return anyhow::Ok(()),
                }
                if self.kind.is_thread() && is_run_end(&data(all.last())) {
                    return Ok(());
                }
            }
        };
        tokio::time::timeout(LIMIT, reading).await.with_context(|| self.line())??;
        // A sample replaces the previous one, and a whole stream omits answered questions.
        let is_lasting = |event: &&ServerSent| {
            let is_sample = event.id.as_ref().is_some_and(|id| id.ends_with(".v"));
            !self.kind.is_connect() || !is_sample && data(Some(event))["status"] != "interrupted"
        };
        let whole: Vec<_> = self.received.iter().filter(is_lasting).collect();
        let all: Vec<_> = all.iter().filter(is_lasting).collect();
        ensure!(
            whole == all,
            "{}: lost, doubled or reordered: {:#?}\nbut the whole is {all:#?}",
            self.line(),
            self.received
        );
        let mut ids: Vec<_> = self.received.iter().map(|event| event.id.as_deref()).collect();
        ids.dedup();
        ensure!(ids.len() == self.received.len(), "{}: doubled: {ids:?}", self.line());
        // The end of the stream is a valid cursor too.
        self.open(client).await.map(drop)
    }

    /// Opens the stream at the client's cursor. Retries if a server cannot do it now; a refusal is an error.
    async fn open(&self, client: &Client) -> Result<Stream> {
        let id = self.received.last().and_then(|event| event.id.as_deref()).context("no place")?;
        let path = match self.kind {
            StreamKind::NativeThreadAfter => format!("{}?after={id}", self.path),
            _ => self.path.clone(),
        };
        let header = (self.kind != StreamKind::NativeThreadAfter).then_some(id);
        until("the stream to be open", LIMIT, || async {
            match client.stream(&path, header).await {
                Ok(stream) => Some(Ok(stream)),
                Err(error) if error.to_string().contains("refused: 4") => {
                    Some(Err(error.context(format!("{}: {id} was refused", self.line()))))
                }
                Err(_) => None,
            }
        })
        .await?
    }

    async fn until_end_or_cut(&self, stream: &mut Stream) -> (Vec<ServerSent>, bool) {
        if !self.kind.is_thread() {
            return until_cut(stream).await;
        }
        let mut events = Vec::new();
        while let Ok(Some(event)) = stream.next().await {
            if event.id.is_none() {
                break;
            }
            let ends = is_run_end(&data(Some(&event)));
            events.push(event);
            if ends {
                break;
            }
        }
        (events, false)
    }

    /// Whether the run has ended and its stream has reported that.
    async fn has_end(&self, client: &Client) -> bool {
        if self.kind.is_thread() || self.kind == StreamKind::NativeRun {
            return is_run_end(&self.last_data());
        }
        let last = self.last_data();
        let kind = last["type"].as_str().unwrap_or_default();
        let is_end = match self.kind {
            StreamKind::CommunicationRun => {
                matches!(kind, "run.completed" | "run.failed" | "run.cancelled")
            }
            _ => !matches!(last["status"].as_str(), Some("pending" | "interrupted")),
        };
        is_end && self.has_ended(client).await
    }

    async fn has_ended(&self, client: &Client) -> bool {
        let Ok(reply) = client.get(&format!("/api/v1/runs/{}", self.run)).await else {
            return false;
        };
        ENDED.iter().any(|status| reply.json()["status"] == *status)
    }

    fn last_data(&self) -> Value {
        data(self.received.last())
    }

    fn line(&self) -> String {
        format!("{}, {:?}, run {}", self.kind.name(), self.activity, self.run)
    }
}

fn data(event: Option<&ServerSent>) -> Value {
    event.and_then(|event| serde_json::from_str(&event.data).ok()).unwrap_or_default()
}

fn is_run_end(event: &Value) -> bool {
    event["type"] == "run.ended"
}
