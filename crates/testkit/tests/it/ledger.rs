//! What clients were told, and whether it is still true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::bail;
use serde_json::Value;
use trilogue_domain::lock;
use trilogue_testkit::{Client, until};

use crate::events;

const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// What clients were told. Nothing is ever taken out of it.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    events: BTreeMap<String, BTreeMap<u64, Value>>,
    /// Runs that clients asked for, and whether the server acknowledged them.
    runs: BTreeMap<String, bool>,
    /// Runs whose end was told, with their status.
    ended: BTreeMap<String, String>,
    answered: BTreeSet<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) events: usize,
    pub(crate) runs: usize,
    pub(crate) answers: usize,
}

// === impl Ledger ===

impl Ledger {
    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        lock(&self.0)
    }

    /// A client received an event. The same number again must be the same event.
    pub(crate) fn event(&self, thread: &str, event: &Value) {
        let Some(number) = event["number"].as_u64() else { return };
        let mut told = self.told();
        let thread_events = told.events.entry(thread.to_owned()).or_default();
        let first = thread_events.entry(number).or_insert_with(|| event.clone());
        assert_eq!(first, event, "event {number} of {thread} was told in two forms");
    }

    /// A client is about to ask for a run.
    pub(crate) fn asked(&self, run: &str) {
        self.told().runs.entry(run.to_owned()).or_insert(false);
    }

    /// The server showed a run: it was acknowledged, and perhaps ended.
    pub(crate) fn run(&self, run: &Value) {
        let (Some(id), Some(status)) = (run["id"].as_str(), run["status"].as_str()) else { return };
        let mut told = self.told();
        told.runs.insert(id.to_owned(), true);
        if is_terminal(status) {
            let first = told.ended.entry(id.to_owned()).or_insert_with(|| status.to_owned());
            assert_eq!(first, status, "run {id} ended in two ways");
        }
    }

    pub(crate) fn answered(&self, interrupt: &str) {
        self.told().answered.insert(interrupt.to_owned());
    }

    /// Compares everything that was told with what the server says now.
    pub(crate) async fn check(&self, client: &Client) -> anyhow::Result<Seen> {
        let (threads, runs, answered) = {
            let told = self.told();
            let threads: Vec<String> = told.events.keys().cloned().collect();
            (threads, told.runs.clone(), told.answered.clone())
        };
        let mut seen = Seen { runs: runs.len(), answers: answered.len(), ..Seen::default() };
        for (run, acknowledged) in runs {
            self.check_run(client, &run, acknowledged).await?;
        }
        for interrupt in answered {
            let row = client.get(&format!("/api/v1/interrupts/{interrupt}")).await?.ok()?;
            assert_eq!(
                row["resolution"]["kind"], "answered",
                "an acknowledged answer is lost: {row}"
            );
        }
        for thread in threads {
            seen.events += self.check_thread(client, &thread).await?;
        }
        Ok(seen)
    }

    /// A run that was acknowledged exists, and every run that exists ends or waits.
    async fn check_run(&self, client: &Client, id: &str, acknowledged: bool) -> anyhow::Result<()> {
        let path = format!("/api/v1/runs/{id}");
        let reply = client.get(&path).await?;
        if reply.status == 404 {
            assert!(!acknowledged, "the acknowledged run {id} is lost");
            return Ok(());
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
        Ok(())
    }

    /// What was told of a thread is there once, in order, as it was told.
    async fn check_thread(&self, client: &Client, thread: &str) -> anyhow::Result<usize> {
        let now = events(client, thread).await?;
        let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
        let mut run_numbers: BTreeMap<&str, u64> = BTreeMap::new();
        for (index, event) in now.iter().enumerate() {
            assert_eq!(
                event["number"],
                index as u64 + 1,
                "{thread} has a gap or a double: {event}"
            );
            let Some(run) = event["run_id"].as_str() else { continue };
            let last = run_numbers.entry(run).or_default();
            *last += 1;
            assert_eq!(event["run_number"], *last, "run {run} has a gap or a double: {event}");
            if event["type"] == "run.ended" {
                *ends.entry(run).or_default() += 1;
            } else {
                assert!(!ends.contains_key(run), "run {run} goes on after its end: {event}");
            }
        }
        assert!(ends.values().all(|count| *count == 1), "a run of {thread} ended twice: {ends:?}");
        let told = self.told().events.get(thread).cloned().unwrap_or_default();
        for (number, event) in &told {
            let index = usize::try_from(*number)? - 1;
            assert_eq!(
                now.get(index),
                Some(event),
                "event {number} of {thread} is not as it was told"
            );
        }
        Ok(told.len())
    }
}

fn is_terminal(status: &str) -> bool {
    matches!(status, "completed" | "failed" | "cancelled" | "timed_out")
}
