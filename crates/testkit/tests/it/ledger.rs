//! A record of what clients received, and a check that it is still true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::bail;
use serde_json::Value;
use trilogue_domain::lock;
use trilogue_testkit::{Client, until};

use crate::events;

const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// What clients received. Entries are never removed.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<ReceivedState>);

#[derive(Clone, Debug, Default)]
struct ReceivedState {
    events: BTreeMap<String, BTreeMap<u64, Value>>,
    /// The runs that clients requested, and whether the server acknowledged them.
    runs: BTreeMap<String, bool>,
    /// The runs that clients saw ended, with their status.
    ended: BTreeMap<String, String>,
    questions: BTreeMap<String, Question>,
    erased: BTreeSet<String>,
}

/// The state of a question, as a client knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Question {
    Asked,
    /// An answer was sent, and may have been accepted.
    Answering,
    Answered,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LedgerCounts {
    pub(crate) events: usize,
    pub(crate) runs: usize,
    pub(crate) answers: usize,
}

/// The differences between the server's state and what clients received, a sentence for each.
#[derive(Clone, Default, Debug)]
pub(crate) struct Differences {
    pub(crate) lost: Vec<String>,
    pub(crate) doubled: Vec<String>,
    pub(crate) reordered: Vec<String>,
    pub(crate) made_up: Vec<String>,
}

// === impl Ledger ===

impl Ledger {
    fn lock_state(&self) -> std::sync::MutexGuard<'_, ReceivedState> {
        lock(&self.0)
    }

    /// A copy of the record.
    pub(crate) fn snapshot(&self) -> Self {
        Self(Mutex::new(self.lock_state().clone()))
    }

    /// Records an event that a client received. Two events with the same number must be equal.
    pub(crate) fn event(&self, thread: &str, event: &Value) {
        let Some(number) = event["number"].as_u64() else { return };
        let mut told = self.lock_state();
        let thread_events = told.events.entry(thread.to_owned()).or_default();
        let first = thread_events.entry(number).or_insert_with(|| event.clone());
        assert_eq!(first, event, "event {number} of {thread} was told in two forms");
    }

    /// Records that a client is about to request a run.
    pub(crate) fn record_request(&self, run: &str) {
        self.lock_state().runs.entry(run.to_owned()).or_insert(false);
    }

    /// Records a run that the server showed: it was acknowledged, and may have ended.
    pub(crate) fn run(&self, run: &Value) {
        let (Some(id), Some(status)) = (run["id"].as_str(), run["status"].as_str()) else { return };
        let mut told = self.lock_state();
        told.runs.insert(id.to_owned(), true);
        if is_terminal(status) {
            let first = told.ended.entry(id.to_owned()).or_insert_with(|| status.to_owned());
            assert_eq!(first, status, "run {id} ended in two ways");
        }
    }

    /// Records a question that a client received.
    pub(crate) fn question(&self, interrupt: &str) {
        self.record_progress(interrupt, Question::Asked);
    }

    /// Records that a client is about to answer.
    pub(crate) fn answering(&self, interrupt: &str) {
        self.record_progress(interrupt, Question::Answering);
    }

    pub(crate) fn record_answer(&self, interrupt: &str) {
        self.record_progress(interrupt, Question::Answered);
    }

    fn record_progress(&self, interrupt: &str, how_far: Question) {
        let mut told = self.lock_state();
        let question = told.questions.entry(interrupt.to_owned()).or_insert(how_far);
        *question = how_far.max(*question);
    }

    /// Records that the server erased a thread. The ledger must have no events of it.
    pub(crate) fn record_erasure(&self, thread: &str) {
        self.lock_state().erased.insert(thread.to_owned());
    }

    /// Fails unless the server still shows everything that clients received.
    pub(crate) async fn check(&self, client: &Client) -> anyhow::Result<LedgerCounts> {
        let (seen, differences) = self.compare(client).await?;
        assert!(differences.is_empty(), "{differences:#?}");
        Ok(seen)
    }

    /// Compares everything that clients received with the server's state now.
    pub(crate) async fn compare(
        &self,
        client: &Client,
    ) -> anyhow::Result<(LedgerCounts, Differences)> {
        let told = self.lock_state().clone();
        let mut differences = Differences::default();
        let seen = told.seen();
        for (run, acknowledged) in told.runs {
            if !self.find_run(client, &run).await? && acknowledged {
                differences.lost.push(format!("the acknowledged run {run}"));
            }
        }
        for (interrupt, how_far) in told.questions {
            let row = client.get(&format!("/api/v1/interrupts/{interrupt}")).await?;
            if row.status == 404 {
                differences.lost.push(format!("the question {interrupt}"));
                continue;
            }
            let row = row.ok()?;
            let is_answered = row["resolution"]["kind"] == "answered";
            if is_answered && let Some(outcome) = lost_answer(client, &interrupt, &row).await? {
                differences.lost.push(format!("the answer to {interrupt}: {outcome}"));
            }
            match how_far {
                Question::Answered if !is_answered => {
                    differences.lost.push(format!("the acknowledged answer to {interrupt}"));
                }
                Question::Asked if is_answered => {
                    differences.made_up.push(format!("the answer to {interrupt}"));
                }
                _ => {}
            }
        }
        for (thread, told) in told.events {
            compare_thread(client, &thread, &told, &mut differences).await?;
        }
        for thread in told.erased {
            if client.get(&format!("/api/v1/threads/{thread}")).await?.status != 404 {
                differences.lost.push(format!("the acknowledged erasure of {thread}"));
            }
        }
        Ok((seen, differences))
    }

    /// Fails unless every thread of the server is complete, including threads that no client knows.
    pub(crate) async fn check_threads(client: &Client) -> anyhow::Result<usize> {
        let (mut count, mut after) = (0, String::new());
        let mut differences = Differences::default();
        loop {
            let page = client.get(&format!("/api/v1/threads?limit=1000{after}")).await?.ok()?;
            for thread in page["items"].as_array().into_iter().flatten() {
                let id = thread["id"].as_str().unwrap_or_default();
                compare_thread(client, id, &BTreeMap::new(), &mut differences).await?;
                count += 1;
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert!(differences.is_empty(), "{differences:#?}");
        Ok(count)
    }

    /// Whether a run exists. An existing run must have ended or wait, as the clients saw it.
    async fn find_run(&self, client: &Client, id: &str) -> anyhow::Result<bool> {
        let path = format!("/api/v1/runs/{id}");
        let reply = client.get(&path).await?;
        if reply.status == 404 {
            return Ok(false);
        }
        let settled = until("the run to be accounted for", SETTLE_LIMIT, || async {
            let run = client.get(&path).await.ok()?.json();
            let status = run["status"].as_str()?;
            (is_terminal(status) || status == "interrupted").then_some(run)
        });
        let run = match settled.await {
            Ok(run) => run,
            Err(error) => bail!("{error}, but it stands as {}", client.get(&path).await?.json()),
        };
        self.run(&run);
        Ok(true)
    }
}

/// Prints only the size: the whole ledger would fill a screen in every round.
impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.lock_state().seen())
    }
}

// === impl ReceivedState ===

impl ReceivedState {
    fn seen(&self) -> LedgerCounts {
        let answers = self.questions.values().filter(|how_far| **how_far == Question::Answered);
        let events = self.events.values().map(BTreeMap::len);
        LedgerCounts { events: events.sum(), runs: self.runs.len(), answers: answers.count() }
    }
}

// === impl Differences ===

impl Differences {
    pub(crate) fn is_empty(&self) -> bool {
        [&self.lost, &self.doubled, &self.reordered, &self.made_up].iter().all(|all| all.is_empty())
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.lost.extend(other.lost);
        self.doubled.extend(other.doubled);
        self.reordered.extend(other.reordered);
        self.made_up.extend(other.made_up);
    }
}

/// How a run failed whose question was answered, but whose agent never got the answer.
async fn lost_answer(
    client: &Client,
    interrupt: &str,
    row: &Value,
) -> anyhow::Result<Option<String>> {
    let path = format!("/api/v1/runs/{}", row["run_id"].as_str().unwrap_or_default());
    let run = client.get(&path).await?.json();
    if run["status"] != "failed" {
        return Ok(None);
    }
    let page = client.get(&format!("{path}/events?limit=1000")).await?.ok()?;
    let mut events = page["items"].as_array().into_iter().flatten();
    events.find(|it| it["type"] == "interrupt.resolved" && it["interrupt_id"] == interrupt);
    let has_answer = events.any(|event| event["type"] == "run.resumed");
    Ok((!has_answer).then(|| run["outcome"].to_string()))
}

/// Compares a thread with what clients received of it: each event must exist once, in order, and unchanged.
async fn compare_thread(
    client: &Client,
    thread: &str,
    told: &BTreeMap<u64, Value>,
    differences: &mut Differences,
) -> anyhow::Result<()> {
    let now = match client.get(&format!("/api/v1/threads/{thread}")).await?.status {
        404 => Vec::new(),
        _ => events(client, thread).await?,
    };
    let mut ended: BTreeSet<&str> = BTreeSet::new();
    let mut run_numbers: BTreeMap<&str, u64> = BTreeMap::new();
    // Events that happen once in a run, however many nodes take it over: its begin, and the message of an echo.
    let mut once: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut echoes: BTreeSet<&str> = BTreeSet::new();
    let mut last = 0;
    for event in &now {
        let next = event["number"].as_u64().unwrap_or_default();
        compare_number(thread, last, next, differences);
        last = next;
        let Some(run) = event["run_id"].as_str() else { continue };
        let in_run = run_numbers.entry(run).or_default();
        let next = event["run_number"].as_u64().unwrap_or_default();
        compare_number(run, *in_run, next, differences);
        *in_run = next;
        if ended.contains(run) {
            differences.doubled.push(format!("run {run} goes on after its end: {event}"));
        }
        let kind = event["type"].as_str().unwrap_or_default();
        if kind == "run.created" && event["agent"] == "echo" {
            echoes.insert(run);
        }
        let is_word = kind == "message.started" && event["role"] != "user" && echoes.contains(run);
        if (kind == "run.started" || is_word) && !once.insert((run, kind)) {
            differences.doubled.push(format!("run {run} was executed twice: {event}"));
        }
        if kind == "run.ended" {
            ended.insert(run);
        }
    }
    for (number, event) in told {
        match now.iter().find(|other| other["number"] == *number) {
            Some(other) if other == event => {}
            // Another event has its number: the number was reused.
            Some(_) if now.iter().any(|other| same_but_number(other, event)) => {
                differences.reordered.push(format!("event {number} of {thread}: {event}"));
            }
            _ => differences.lost.push(format!("event {number} of {thread}: {event}")),
        }
    }
    Ok(())
}

/// Checks that numbers have no gaps.
fn compare_number(of: &str, last: u64, next: u64, differences: &mut Differences) {
    if next > last + 1 {
        differences.lost.push(format!("the events of {of} between {last} and {next}"));
    } else if next == last {
        differences.doubled.push(format!("event {next} of {of}"));
    } else if next < last {
        differences.reordered.push(format!("event {next} of {of} follows {last}"));
    }
}

fn same_but_number(one: &Value, other: &Value) -> bool {
    ["type", "run_id", "time", "data"].iter().all(|name| one[*name] == other[*name])
}

fn is_terminal(status: &str) -> bool {
    matches!(status, "completed" | "failed" | "cancelled" | "timed_out")
}
