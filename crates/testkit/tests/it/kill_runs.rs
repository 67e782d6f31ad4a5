//! Clients that stream, wait for and answer runs, on both protocols over HTTP that have runs: what they do, and what of it must survive a kill.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_testkit::client::{ServerSent, Stream};
use trilogue_testkit::{Client, Seed};

use crate::kill_rounds::{ensure_whole, rest, until_cut};

/// What a client received about runs before the server was killed.
#[derive(Default, Debug)]
pub(crate) struct RunRecord {
    /// The events of each stream.
    pub(crate) streams: Vec<Vec<ServerSent>>,
    /// Complete responses about ended runs.
    pub(crate) done: Vec<Value>,
    /// Accepted runs whose further state is unknown.
    pub(crate) accepted: Vec<Value>,
    /// Responses about runs that wait for an answer.
    pub(crate) waiting: Vec<Value>,
}

#[derive(Default, Debug)]
pub(crate) struct RunCounts {
    pub(crate) resumed: usize,
    pub(crate) missed: usize,
    pub(crate) done: usize,
    pub(crate) accepted: usize,
    pub(crate) answered: usize,
}

/// How a protocol shows runs.
pub(crate) trait RunProtocol {
    /// The path of all runs.
    const RUNS: &'static str;
    /// What follows the path of a run in the path of its state.
    const STATE: &'static str;
    /// What follows the path of a run in the path of its events.
    const EVENTS: &'static str;
    /// The cursor before the first event.
    const START: Option<&'static str>;
    const COMPLETED: &'static str;
    const WAITING: &'static str;
    /// The member of a run with its creation.
    const CREATION: &'static str;

    /// The path and the body that start a run with a stream.
    fn streamed_request() -> (String, Value);

    /// The path and the body that start a run with a question and wait for it.
    fn asking_request() -> (String, Value);

    /// The run in a response about its state.
    fn run_in(state: &Value) -> &Value;

    /// The id of the run of a stream's first event.
    fn run_of_event(event: &ServerSent) -> Option<String>;

    /// Whether the run was lost: it was running when the server was killed, or while its database was away for longer than the retries of changes.
    fn is_lost(state: &Value) -> bool;

    async fn wait_for_end(client: &Client, run: &str) -> Result<Value>;

    /// Answers a run and returns its next state; `None` if the connection broke. Records a run whose state is then unknown.
    async fn answer(client: &Client, run: &str, accepted: &mut Vec<Value>) -> Option<Value>;

    /// Checks the whole stream of a run in this protocol's way.
    async fn check_whole_stream(client: &Client, run: &str, events: &[ServerSent]) -> Result<()>;
}

// === impl RunCounts ===

impl RunCounts {
    /// Whether streams were resumed with missed events, and clients learned of ends and answers.
    pub(crate) fn has_seen_enough(&self) -> bool {
        [self.resumed, self.missed, self.done, self.answered].iter().all(|count| *count > 0)
    }

    /// Fails if the clients could not receive enough for a check.
    pub(crate) fn assert_enough(&self) {
        assert!(self.resumed > 0 && self.missed > 0, "no stream was resumed: {self:?}");
        assert!(self.done > 0 && self.answered > 0, "the clients were told nothing: {self:?}");
    }
}

pub(crate) fn data(event: &ServerSent) -> Value {
    serde_json::from_str(&event.data).unwrap()
}

pub(crate) fn id_of(run: &Value) -> Result<&str> {
    run["run_id"].as_str().with_context(|| format!("a run without an id: {run}"))
}

pub(crate) fn approval() -> Value {
    json!({"approved": true, "reason": "fine"})
}

pub(crate) async fn open(client: &Client, path: &str, request: &Value) -> Result<Stream> {
    let headers = [("accept", "text/event-stream")];
    client.stream_of(Method::POST, path, &headers, Bytes::from(request.to_string())).await
}

pub(crate) async fn stream<P: RunProtocol>(client: Client) -> RunRecord {
    let mut told = RunRecord::default();
    let (path, request) = P::streamed_request();
    while let Ok(mut stream) = open(&client, &path, &request).await {
        let (events, cut) = until_cut(&mut stream).await;
        told.streams.push(events);
        if cut {
            break;
        }
    }
    told
}

/// Requests runs that ask a question. Answers some, and leaves others waiting.
pub(crate) async fn ask<P: RunProtocol>(client: Client, mut seed: Seed) -> RunRecord {
    let mut told = RunRecord::default();
    let (path, request) = P::asking_request();
    while let Ok(reply) = client.post(&path, &request).await {
        let state = reply.ok().unwrap();
        if P::is_lost(&state) {
            told.done.push(state);
            continue;
        }
        assert_eq!(P::run_in(&state)["status"], P::WAITING, "{state}");
        if seed.below(2) == 0 {
            told.waiting.push(state);
            continue;
        }
        let run = id_of(P::run_in(&state)).unwrap();
        let Some(state) = P::answer(&client, run, &mut told.accepted).await else { break };
        assert!(P::run_in(&state)["status"] == P::COMPLETED || P::is_lost(&state), "{state}");
        told.done.push(state);
    }
    told
}

/// Compares what a client received with the server's state now.
pub(crate) async fn check<P: RunProtocol>(
    client: &Client,
    told: &RunRecord,
    seed: &mut Seed,
    seen: &mut RunCounts,
) -> Result<()> {
    for events in &told.streams {
        // A reader may have stored less than it received.
        let kept = seed.below(events.len() as u64 + 1) as usize;
        check_stream::<P>(client, events.get(..kept).unwrap_or_default(), seen).await?;
        check_stream::<P>(client, events, seen).await?;
    }
    for state in told.done.iter().chain(&told.waiting) {
        let path = format!("{}/{}{}", P::RUNS, id_of(P::run_in(state))?, P::STATE);
        let now = client.get(&path).await?.ok()?;
        ensure!(now == *state, "the run was told as {state} and is {now}");
    }
    seen.done += told.done.len();
    for run in &told.accepted {
        let state = P::wait_for_end(client, id_of(run)?).await?;
        let ended = P::run_in(&state);
        let is_fine = ended["status"] == P::COMPLETED || P::is_lost(&state);
        ensure!(is_fine, "the accepted run is {state}");
        ensure!(ended[P::CREATION] == run[P::CREATION], "{run} was asked, and is {state}");
        seen.accepted += 1;
    }
    Ok(())
}

/// Answers the runs that wait.
pub(crate) async fn resume<P: RunProtocol>(
    client: &Client,
    told: &RunRecord,
    seen: &mut RunCounts,
) -> Result<()> {
    for waiting in &told.waiting {
        let run = id_of(P::run_in(waiting))?;
        let state = P::answer(client, run, &mut Vec::new()).await;
        let state = state.with_context(|| format!("the answer to {run} got no response"))?;
        ensure!(P::run_in(&state)["status"] == P::COMPLETED, "the answered run is {state}");
        seen.answered += 1;
    }
    Ok(())
}

/// Checks that the events from before the kill, and the events after them, are the run's whole stream.
async fn check_stream<P: RunProtocol>(
    client: &Client,
    told: &[ServerSent],
    seen: &mut RunCounts,
) -> Result<()> {
    // A connection that broke before its first event has no run id.
    let Some(first) = told.first() else { return Ok(()) };
    let run = P::run_of_event(first).with_context(|| format!("no run in {first:?}"))?;
    P::wait_for_end(client, &run).await?;
    let path = format!("{}/{run}{}", P::RUNS, P::EVENTS);
    let cursor = told.last().and_then(|event| event.id.clone()).context("an event without id")?;
    let missed = rest(&mut client.stream(&path, Some(&cursor)).await?).await?;
    let all = rest(&mut client.stream(&path, P::START).await?).await?;
    let missed_count = missed.len();
    ensure_whole(told, &missed, &all)?;
    P::check_whole_stream(client, &run, &all).await?;
    seen.resumed += 1;
    seen.missed += missed_count;
    Ok(())
}
