//! Stops a runtime: runs end, or are kept.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::oneshot;
use trilogue_domain::{RunId, RunStatus, Scope, ThreadKey};
use trilogue_store::rows::RunRow;

use crate::handle::{MAX_OWNERS_AT_ONCE, Runtime};
use crate::owner::Envelope;
use crate::request::DrainReport;
use crate::step::Command;

/// How long a drain waits for answers to questions that do not survive a restart.
const DRAIN_ANSWER_WAIT: Duration = Duration::from_secs(2);
/// How long a drain waits after its deadline until all owners have stored the rest.
const DRAIN_END_LIMIT: Duration = Duration::from_secs(10);

// === impl Runtime ===

impl Runtime {
    /// Accepts no new runs, lets active ones end until the deadline, ends the rest as `agent_lost`, and keeps those that wait.
    ///
    /// A run whose question does not survive a restart gets two seconds for the answer, and one that its agent has started as long, or until all others have ended. After the deadline the drain takes at most ten more seconds to store the rest.
    pub async fn drain(&self, deadline: Duration) -> DrainReport {
        let services = self.services();
        services.draining.store(true, Ordering::Release);
        self.closing().cancel();
        let (mut report, mut lost) = (DrainReport::default(), Vec::new());
        let ending = async {
            stream::iter(services.owned())
                .for_each_concurrent(MAX_OWNERS_AT_ONCE, |thread| async move {
                    // An owner that has already left has nothing to drain.
                    drop(self.change(thread, Command::Drain).await);
                })
                .await;
            if tokio::time::timeout(DRAIN_ANSWER_WAIT, services.all_ended()).await.is_err() {
                let reply = |reply| Envelope::EndAsking { reply };
                self.end_owners(reply, &mut lost).await;
                // The agents' own work has had its time: it need not have an end.
                services.requested_ended().await;
            }
        };
        // The report below names the runs that remain at the deadline.
        drop(tokio::time::timeout(deadline, ending).await);
        let leaving = async {
            let reply = |reply| Envelope::Shutdown { reply };
            self.end_owners(reply, &mut lost).await;
            self.record_lost_subagents(&lost).await;
            report.waiting = self.waiting_runs().await;
        };
        if tokio::time::timeout(DRAIN_END_LIMIT, leaving).await.is_err() {
            let owners = services.owner_count();
            tracing::error!(
                owners,
                "threads could not be stored at the stop; the next start recovers them"
            );
        }
        report.abandoned = lost.into_iter().map(|row| row.id).collect();
        report
    }

    /// Says in the logs of the parents that the states of sub-agents are not known whose runs were ended.
    async fn record_lost_subagents(&self, lost: &[RunRow]) {
        let of_agents = lost.iter().filter(|row| row.started_by.is_some());
        stream::iter(of_agents)
            .for_each_concurrent(MAX_OWNERS_AT_ONCE, |row| async move {
                if let Err(error) = self.record_lost_subagent(row.thread).await {
                    tracing::warn!(thread = %row.thread_id, %error, "a parent's log still shows its sub-agent at work");
                }
            })
            .await;
    }

    /// Makes every owner end tasks, and adds their runs.
    async fn end_owners(
        &self,
        request: impl Fn(oneshot::Sender<Vec<RunRow>>) -> Envelope,
        ended: &mut Vec<RunRow>,
    ) {
        let services = self.services();
        let request = &request;
        let mut rows = stream::iter(services.owned())
            .map(|thread| async move {
                let (reply, done) = oneshot::channel();
                match services.send(thread, request(reply)).await {
                    Ok(()) => done.await.unwrap_or_default(),
                    Err(_) => Vec::new(),
                }
            })
            .buffer_unordered(MAX_OWNERS_AT_ONCE);
        while let Some(rows) = rows.next().await {
            ended.extend(rows);
        }
    }

    /// Returns the runs that wait for an answer, for the report of a drain.
    async fn waiting_runs(&self) -> Vec<RunId> {
        let threads = self.services().store.open_threads().await.unwrap_or_default();
        let mut found = stream::iter(threads)
            .map(|thread| self.waiting_runs_in(thread))
            .buffered(MAX_OWNERS_AT_ONCE);
        let mut waiting = Vec::new();
        while let Some(runs) = found.next().await {
            waiting.extend(runs);
        }
        waiting
    }

    async fn waiting_runs_in(&self, thread: ThreadKey) -> Vec<RunId> {
        let store = &self.services().store;
        let Ok(Some(row)) = store.thread_by_key(thread).await else { return Vec::new() };
        let scope = Scope { tenant: row.tenant.clone(), owner: None };
        let filter = trilogue_store::rows::RunFilter {
            thread: Some(row.id),
            statuses: vec![RunStatus::Interrupted],
            ..Default::default()
        };
        let listing = store.runs(&scope, &filter, &trilogue_store::rows::Page::default()).await;
        listing
            .map(|listing| listing.rows)
            .unwrap_or_default()
            .into_iter()
            .map(|row| row.id)
            .collect()
    }
}
