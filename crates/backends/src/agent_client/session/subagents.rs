//! What the actor of a session does for its sub-agents, and what it does if its session is a sub-agent's itself.

use tokio::time::Instant;
use trilogue_domain::event::SubagentState;
use trilogue_mapping::agent_client::{
    MAX_IGNORED_BYTES, SUBAGENT_UPDATE, WorkReport, ignored_line, with_thread_ids,
};
use trilogue_sdk::agent_client::peer::Notification;

use super::actor::{MAX_LOGGED_LINES, SessionActor};
use super::family::SubagentStart;
use crate::agent_client::routing::{NewSubagentSession, TurnEnd, WorkStop};

// === impl SessionActor ===

impl SessionActor {
    /// Opens the session of a sub-agent that the agent has announced. Without it, the update and the sub-agent's messages are ignored.
    pub(super) async fn open_subagent(
        &mut self,
        new: NewSubagentSession,
        announced: &Notification,
    ) {
        let start = SubagentStart {
            launch: &self.launch,
            answerer: &self.answerer,
            starting: &self.starting,
            thread: &self.outside.thread,
            work: self.current.subscribe(),
            run: self.work.as_ref().map(|work| work.context.run().clone()),
            replay: self.replay.clone(),
            params: announced.params.as_str(),
        };
        if let Err(reason) = self.family.open(new, start).await {
            self.count_ignored(reason);
            self.log_ignored(reason, announced.params.as_str()).await;
        }
    }

    /// Replaces the agent's ids in an update. `None` if the update is ignored.
    pub(super) async fn with_thread_ids(&mut self, kind: &str, params: String) -> Option<String> {
        if kind != SUBAGENT_UPDATE {
            let family = &self.family;
            return Some(with_thread_ids(kind, params, |remote| family.thread_of(remote)));
        }
        match self.family.describe(&params).await {
            Ok(described) => Some(described),
            Err(reason) => {
                self.count_ignored(reason);
                self.log_ignored(reason, &params).await;
                None
            }
        }
    }

    fn count_ignored(&self, reason: &'static str) {
        if let Some(process) = self.family.process() {
            process.router().ignored().count(process.agent(), reason);
        }
    }

    async fn log_ignored(&mut self, reason: &str, params: &str) {
        self.logged_lines += 1;
        if self.logged_lines <= MAX_LOGGED_LINES {
            let bytes = params.as_bytes();
            let shown = bytes.get(..MAX_IGNORED_BYTES).unwrap_or(bytes);
            self.log(ignored_line(reason, shown, bytes.len()), None).await;
        }
    }

    /// Whether a report repeats an earlier one, because the history is replayed.
    pub(super) fn is_replayed(&mut self) -> bool {
        self.replay.as_mut().is_some_and(|replay| replay.takes(SUBAGENT_UPDATE, Instant::now()))
    }

    /// Whether a report shows work that no run logs yet.
    pub(super) fn starts_work(&self, report: &WorkReport) -> bool {
        report.state == SubagentState::Running && self.work.is_none() && self.gets_runs()
    }

    /// Notes what the agent reports about the work of this session. Idle ends its run.
    pub(super) async fn record_report(&mut self, report: WorkReport) {
        let WorkReport { state, error } = report;
        self.reported = Some(state.clone());
        let Some(work) = self.work.as_mut().filter(|work| work.is_background()) else { return };
        work.record_sign(None);
        let SubagentState::Idle { stop_reason } = state else { return };
        let (end, stop) = match stop_reason.as_deref() {
            None | Some("end_turn") => (TurnEnd::Completed, None),
            Some("cancelled") => (TurnEnd::Broken, Some(WorkStop::Cancelled)),
            Some("error") => (TurnEnd::Broken, Some(WorkStop::Failed(error))),
            Some(other) => (TurnEnd::Completed, Some(WorkStop::Other(other.to_owned()))),
        };
        self.finish_as(end, stop).await;
    }
}
