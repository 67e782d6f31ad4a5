//! What the actor of a session does for its sub-agents, and what it does if its session is a sub-agent's itself.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::watch;
use tokio::time::Instant;
use trilogue_domain::error::Result;
use trilogue_domain::event::SubagentState;
use trilogue_domain::{Code, Error, Json, RunId};
use trilogue_mapping::agent_client::{
    MAX_IGNORED_BYTES, SUBAGENT_UPDATE, SubagentDescription, WorkReport, body_of_update,
    ignored_line, update_original, with_thread_ids,
};
use trilogue_runtime::{NewSubagent, SubagentThread, ThreadContext};
use trilogue_sdk::agent_client::peer::Notification;
use trilogue_wire::agent_client::splice;
use uuid::Uuid;

use super::actor::{ActorParts, MAX_LOGGED_LINES, SessionActor};
use super::answer::{RequestAnswerer, WorkRun};
use super::background::StartingSessions;
use super::binding::{SessionBinding, SessionParams};
use super::family::{Family, FamilyParts, OpenSubagent, Subagents, TOO_LARGE};
use super::modes::SessionModes;
use super::replay::Replay;
use super::session::{ParentSession, Parts, Session};
use crate::agent_client::launch::Launch;
use crate::agent_client::routing::{NewSubagentSession, TurnEnd, WorkStop};

/// The reasons for which a sub-agent is not served.
const TOO_MANY: &str = "too_many_subagents";
const TOO_DEEP: &str = "subagents_too_deep";
const NOT_STORED: &str = "subagent_not_stored";

/// What the actor of a parent gives to the session of its sub-agent.
struct SubagentStart<'a> {
    family: &'a Family,
    launch: &'a Arc<Launch>,
    answerer: &'a RequestAnswerer,
    starting: &'a Arc<StartingSessions>,
    thread: &'a ThreadContext,
    work: watch::Receiver<Option<WorkRun>>,
    run: Option<RunId>,
    /// The parent's replay: the sub-agent's history is replayed too.
    replay: Option<Replay>,
    /// The announcing update.
    params: &'a str,
}

// === impl SessionActor ===

impl SessionActor {
    /// Opens the session of a sub-agent that the agent has announced. Without it, the update and the sub-agent's messages are ignored.
    pub(super) async fn open_subagent(
        &mut self,
        new: NewSubagentSession,
        announced: &Notification,
    ) {
        let start = SubagentStart {
            family: &self.family,
            launch: &self.launch,
            answerer: &self.answerer,
            starting: &self.starting,
            thread: &self.outside.thread,
            work: self.current.subscribe(),
            run: self.work.as_ref().map(|work| work.context.run().clone()),
            replay: self.replay.clone(),
            params: announced.params.as_str(),
        };
        if let Err(reason) = start.open(new).await {
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
        is_of_work(&report.state) && self.work.is_none() && self.gets_runs()
    }

    /// Whether the agent reported last that this sub-agent works.
    pub(super) fn is_reported_at_work(&self) -> bool {
        self.reported.as_ref().is_some_and(is_of_work)
    }

    /// Says in the parent's log that the state of this sub-agent is not known, if the agent reported last that it works: the agent reports nothing more about that work.
    pub(super) async fn clear_state(&mut self) {
        self.reported = None;
        let thread = &self.outside.thread;
        let (Some(parent), Some(params)) =
            (thread.parent(), self.family.clear_own_state(thread.thread()))
        else {
            return;
        };
        if matches!(parent.is_subagent_state_cleared(thread.thread()).await, Ok(true)) {
            // By a server that stops, or because the thread was erased.
            return;
        }
        let body = body_of_update(&params);
        if let Err(error) = parent.append_event(body, Some(update_original(params))).await {
            // The parent's thread may have been erased.
            tracing::debug!(thread = %thread.thread(), %error, "the end of a sub-agent's work was not logged");
        }
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

/// Whether a state says that the sub-agent works, or waits for a person.
fn is_of_work(state: &SubagentState) -> bool {
    matches!(state, SubagentState::Running | SubagentState::RequiresAction)
}

// === impl SubagentStart ===

impl SubagentStart<'_> {
    /// Opens the session of a sub-agent on its thread. Fails with the reason why the sub-agent is not served.
    async fn open(self, new: NewSubagentSession) -> Result<(), &'static str> {
        let start = self;
        let (family, parts) = (start.family, start.family.parts());
        let NewSubagentSession { remote, inbox, items } = new;
        let refuse = |reason: &'static str| {
            if let Some(process) = family.process() {
                process.router().remove(&remote, &inbox);
            }
            Err(reason)
        };
        if start.thread.depth() + 1 >= start.thread.max_depth() {
            return refuse(TOO_DEEP);
        }
        let mut first = SubagentDescription::default();
        let update = splice::get(start.params, &["update"]).unwrap_or_default();
        if first.apply(update).is_err() {
            return refuse(TOO_LARGE);
        }
        // Room first: the one that is closed gives back its place in the tree.
        let has_room = family.subagents().make_room();
        let place = Arc::clone(&parts.places).try_acquire_owned();
        let (true, Ok(place)) = (has_room, place) else {
            return refuse(TOO_MANY);
        };
        let opened = start.open_thread(&remote).await;
        let (Ok((thread, description, is_logged)), Some(process)) = (opened, family.process())
        else {
            return refuse(NOT_STORED);
        };
        let cwd = description.cwd().map(Path::new).filter(|cwd| cwd.is_absolute());
        let cwd: PathBuf = cwd.unwrap_or(&start.answerer.root).to_owned();
        let subagents = Arc::<Subagents>::default();
        let own_remote = Arc::<str>::from(&*remote);
        let parent = ParentSession { remote: Arc::clone(&parts.remote), work: start.work };
        let can_cancel = Some(description.can_cancel());
        let description = Arc::new(Mutex::new(description));
        let own_parts = FamilyParts {
            subagents: Arc::clone(&subagents),
            remote: own_remote,
            parent: Some(parent.clone()),
            description: Some(Arc::clone(&description)),
            ..parts.clone()
        };
        let own = Arc::<OnceLock<_>>::default();
        // What it offers is not what the agent offers to clients.
        let modes = SessionModes::new(Arc::default());
        let actor = SessionActor::new(ActorParts {
            launch: Arc::clone(start.launch),
            thread: thread.clone(),
            answerer: start.answerer.for_subagent(cwd.clone(), parts.root.clone()),
            modes: modes.clone(),
            starting: Arc::clone(start.starting),
            session: Arc::clone(&own),
            family: own_parts,
            replay: start.replay,
            is_open: true,
        });
        parts.threads.insert(&remote, thread.thread());
        let session = Arc::new(Session::new(Parts {
            remote: remote.clone(),
            process,
            inbox,
            workspace: None,
            params: SessionParams::of_folder(cwd),
            modes,
            slot: None,
            workspace_lease: start.answerer.workspace_lease.clone(),
            own: Arc::clone(&own),
            subagents,
            can_cancel,
            parent: Some(parent),
        }));
        // A session is opened once.
        drop(own.set(Arc::downgrade(&session)));
        parts.open.insert(thread.key(), &session);
        let one = OpenSubagent { session, thread, description, is_logged, _place: place };
        family.subagents().insert(remote, one);
        actor.spawn(items);
        Ok(())
    }

    /// The thread of a sub-agent, what is known of it, and whether its parent's log has it.
    async fn open_thread(
        &self,
        remote: &str,
    ) -> Result<(ThreadContext, SubagentDescription, bool)> {
        let title = splice::get_text(self.params, &["update", "title"]).map(|it| it.into_owned());
        let new = NewSubagent { key: self.key_of(remote), title, run: self.run.clone() };
        let SubagentThread { context, is_new } = self.thread.subagent(new).await?;
        let bound = context.binding().await?.filter(|bound| !is_new && bound.remote == remote);
        let known = bound.and_then(|bound| SessionBinding::read(&bound.capabilities).subagent);
        if let Some(known) = known {
            return Ok((context, SubagentDescription::read(&known), true));
        }
        let binding = SessionBinding::of_subagent(Json::empty_object()).to_json();
        context
            .bind(remote, binding)
            .await
            .map_err(|stopped| Error::new(Code::Internal, stopped.to_string()))?;
        Ok((context, SubagentDescription::default(), false))
    }

    /// The key of a sub-agent: the same whenever the agent opens the same session again.
    fn key_of(&self, remote: &str) -> Uuid {
        let (parent, of_parent) = (self.thread, &self.family.parts().remote);
        let name = format!("{}\n{of_parent}\n{remote}", parent.thread());
        let space = Uuid::new_v5(&Uuid::NAMESPACE_OID, parent.tenant().as_str().as_bytes());
        Uuid::new_v5(&space, name.as_bytes())
    }
}
