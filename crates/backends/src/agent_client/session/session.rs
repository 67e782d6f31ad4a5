use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::time::Instant;
use trilogue_domain::error::Result;
use trilogue_domain::{Json, MessageId, lock};
use trilogue_mapping::LoggedPosition;
use trilogue_runtime::RunContext;

use super::answer::WorkRun;
use super::binding::SessionParams;
use super::family::Subagents;
use super::modes::SessionModes;
use crate::agent_client::process::{Process, SERVER_CALL_TIMEOUT};
use crate::agent_client::routing::{AnsweredTurn, SessionInbox, SessionItem, TurnEnd, TurnSummary};
use crate::child::Child;
use crate::workspace::Workspace;
use crate::workspace::lease::{WorkspaceLease, taken_over_error};

/// The longest that a prompt waits for the end of a replay.
const MAX_REPLAY_WAIT: Duration = Duration::from_secs(20);
/// Counts the uses of all sessions, to find the one that was used last.
static USES: AtomicU64 = AtomicU64::new(0);

/// What the next server needs to continue with a session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeptSession {
    /// The agent's id of the session.
    pub(crate) session: String,
    /// The agent's answer to `initialize`.
    pub(crate) initialize: Value,
    /// The answer that opened the session, with the current mode and options.
    pub(crate) opened: Value,
}

#[derive(Debug)]
pub(crate) struct Session {
    remote: String,
    process: Arc<Process>,
    inbox: SessionInbox,
    workspace: Option<Workspace>,
    params: SessionParams,
    modes: SessionModes,
    /// Whether a turn could not be ended, so that no other turn may begin.
    is_broken: AtomicBool,
    /// Whether the agent still needs the earlier conversation of the thread.
    is_blank: AtomicBool,
    /// Whether the agent may still replay the history.
    may_replay: AtomicBool,
    is_closed: AtomicBool,
    leases: AtomicUsize,
    /// The number of its last use among the uses of all sessions.
    last_used: AtomicU64,
    /// Its slot in a process that is shared, until it is closed.
    slot: Mutex<Option<Arc<OwnedSemaphorePermit>>>,
    /// The lease of its folder, if several servers share the store.
    workspace_lease: Option<Arc<WorkspaceLease>>,
    /// Itself, for its actor, once it is open.
    own: Arc<OnceLock<Weak<Session>>>,
    subagents: Arc<Subagents>,
    /// What the next server has of it: the answer that opened it, as it was last.
    kept: Mutex<Option<Json>>,
    /// Whether its work can be cancelled alone, if it is a sub-agent's.
    can_cancel: Option<AtomicBool>,
    /// The session that has announced this one, if it is a sub-agent's.
    parent: Option<ParentSession>,
}

/// The parent of a sub-agent's session.
#[derive(Clone, Debug)]
pub(super) struct ParentSession {
    /// The agent's id of it.
    pub(super) remote: Arc<str>,
    /// The run in which it works now.
    pub(super) work: watch::Receiver<Option<WorkRun>>,
}

pub(super) struct Parts {
    pub(super) remote: String,
    pub(super) process: Arc<Process>,
    pub(super) inbox: SessionInbox,
    pub(super) workspace: Option<Workspace>,
    pub(super) params: SessionParams,
    pub(super) modes: SessionModes,
    pub(super) slot: Option<Arc<OwnedSemaphorePermit>>,
    pub(super) workspace_lease: Option<Arc<WorkspaceLease>>,
    pub(super) own: Arc<OnceLock<Weak<Session>>>,
    pub(super) subagents: Arc<Subagents>,
    /// Whether its work can be cancelled alone, if it is a sub-agent's.
    pub(super) can_cancel: Option<bool>,
    pub(super) parent: Option<ParentSession>,
}

// === impl Session ===

impl Session {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { remote, process, inbox, workspace, params, modes, .. } = parts;
        let Parts { slot, workspace_lease, own, subagents, can_cancel, parent, .. } = parts;
        process.router().add(&remote, &inbox);
        let no = || AtomicBool::new(false);
        let (is_broken, is_blank, may_replay, is_closed) = (no(), no(), no(), no());
        let (leases, last_used) = (AtomicUsize::new(0), AtomicU64::new(next_use()));
        Self {
            remote,
            process,
            inbox,
            workspace,
            params,
            modes,
            is_broken,
            is_blank,
            may_replay,
            is_closed,
            leases,
            last_used,
            slot: Mutex::new(slot),
            workspace_lease,
            own,
            subagents,
            kept: Mutex::default(),
            can_cancel: can_cancel.map(AtomicBool::new),
            parent,
        }
    }

    pub(crate) fn remote(&self) -> &str {
        &self.remote
    }

    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.process
    }

    pub(crate) fn inbox(&self) -> &SessionInbox {
        &self.inbox
    }

    pub(crate) fn params(&self) -> &SessionParams {
        &self.params
    }

    pub(crate) fn modes(&self) -> &SessionModes {
        &self.modes
    }

    /// The agent's id of the session whose cancellation ends the work of this one. `None` if that is the parent's, which works itself.
    pub(crate) fn cancelled_session(&self) -> Option<&str> {
        let can_cancel = self.can_cancel.as_ref().is_none_or(|it| it.load(Ordering::Acquire));
        if can_cancel {
            return Some(&self.remote);
        }
        let parent = self.parent.as_ref()?;
        parent.work.borrow().is_none().then_some(&*parent.remote)
    }

    /// Whether a sub-agent below it works.
    pub(super) fn has_working_subagents(&self) -> bool {
        self.subagents.are_at_work()
    }

    pub(super) fn set_can_cancel(&self, can_cancel: bool) {
        self.can_cancel.iter().for_each(|it| it.store(can_cancel, Ordering::Release));
    }

    /// Waits until all messages that the agent has sent so far are handled.
    pub(crate) async fn wait_until_caught_up(&self) {
        let (ends, reached) = oneshot::channel();
        self.inbox.put(SessionItem::ReplayEnd { is_expected: false, ends }).await;
        // A closed session has nothing to handle.
        drop(reached.await);
    }

    /// Whether a turn can begin in it.
    pub(crate) fn is_open(&self) -> bool {
        self.process.is_alive() && !self.is_broken.load(Ordering::Acquire)
    }

    /// Fails if another server has taken over the thread and its folder.
    pub(crate) async fn check_workspace(&self) -> Result<()> {
        match &self.workspace_lease {
            Some(lease) if !lease.is_held().await => Err(taken_over_error()),
            _ => Ok(()),
        }
    }

    pub(super) fn enter(&self) {
        self.leases.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn leave(&self) {
        self.last_used.store(next_use(), Ordering::Release);
        self.leases.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether there are more leases than `known`.
    pub(crate) fn has_leases_beyond(&self, known: usize) -> bool {
        self.leases.load(Ordering::Acquire) > known
    }

    pub(crate) fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Acquire)
    }

    pub(crate) fn slot(&self) -> Option<Arc<OwnedSemaphorePermit>> {
        lock(&self.slot).clone()
    }

    /// Marks that a turn could not be ended: no other turn begins in this session.
    pub(crate) fn set_broken(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    pub(crate) fn is_blank(&self) -> bool {
        self.is_blank.load(Ordering::Acquire)
    }

    pub(super) fn set_blank(&self) {
        self.is_blank.store(true, Ordering::Release);
    }

    /// Notes that the agent has answered a prompt that included the earlier conversation.
    pub(crate) fn record_answered_prompt(&self) {
        self.process.record_completed_turn();
        self.is_blank.store(false, Ordering::Release);
    }

    /// Notes that the session is open: its agent can start runs.
    pub(crate) async fn record_opened(self: &Arc<Self>) {
        // A session is opened once.
        drop(self.own.set(Arc::downgrade(self)));
        self.inbox.put(SessionItem::Opened).await;
    }

    /// Assigns the agent's work outside of prompts to this run. The receiver gets the end of the work.
    pub(crate) async fn begin_background(
        &self,
        context: RunContext,
    ) -> oneshot::Receiver<TurnSummary> {
        let (done, quiet) = oneshot::channel();
        self.inbox.put(SessionItem::BeginBackground { context, done }).await;
        quiet
    }

    /// Notes that the agent was asked to cancel its work outside of prompts.
    pub(crate) async fn cancel_background(&self, grace: Duration) {
        self.inbox.put(SessionItem::CancelBackground { grace }).await;
    }

    /// Notes that the agent has answered the prompt. Waits until all updates before that are logged.
    pub(crate) async fn record_answer(&self, end: TurnEnd) -> AnsweredTurn {
        let (done, answered) = oneshot::channel();
        self.inbox.put(SessionItem::Answered { end, done }).await;
        answered.await.unwrap_or_default()
    }

    /// Assigns the agent's next updates to this run. Returns the position in the agent's output from which on they belong to it.
    ///
    /// `logged` is what the log has of the turn, if a previous server began it.
    pub(crate) async fn begin(
        &self,
        context: RunContext,
        user: MessageId,
        logged: Option<Box<LoggedPosition>>,
    ) -> u64 {
        self.may_replay.store(false, Ordering::Release);
        self.subagents.end_replay().await;
        let begin = SessionItem::Begin { context, user, logged };
        self.process.router().begin(&self.inbox, begin).await
    }

    /// The child in which its agent can outlive this server, if it can.
    pub(crate) fn lasting_child(&self) -> Option<&Child> {
        let child = self.process.host().child().filter(|child| child.can_outlive());
        child.filter(|_| !self.process.router().has_subagents())
    }

    /// Says whether its agent works on when this server exits.
    pub(crate) fn set_outlives(&self, outlives: bool) {
        self.lasting_child().inspect(|child| child.set_outlives(outlives));
    }

    /// Whether the turn of a run continues when this server has stopped.
    pub(crate) fn is_left_to_next_server(&self, context: &RunContext) -> bool {
        context.is_draining() && self.lasting_child().is_some_and(Child::outlives)
    }

    /// Keeps what the next server needs to continue with the session, if its agent can outlive this server.
    pub(crate) async fn keep_for_next_server(&self) {
        let opened = self.modes.current();
        // It is seldom another one.
        let is_kept = lock(&self.kept).replace(opened.clone()).is_some_and(|kept| kept == opened);
        if let Some(child) = self.lasting_child().filter(|_| !is_kept) {
            let kept = KeptSession {
                session: self.remote.clone(),
                initialize: self.process.greeting().to_value(),
                opened: opened.to_value(),
            };
            child.keep_for_owner(json!(kept)).await;
        }
    }

    /// Ends the run. Waits until all its updates are logged.
    pub(crate) async fn finish(&self, end: TurnEnd) -> TurnSummary {
        let (done, finished) = oneshot::channel();
        self.inbox.put(SessionItem::Finish { end, done }).await;
        finished.await.unwrap_or_default()
    }

    /// Removes it from its process, so that later updates in it are dropped. Its terminals are closed in a task.
    pub(crate) fn close(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.process.router().remove(&self.remote, &self.inbox);
        lock(&self.slot).take();
        self.subagents.close();
        let Some(workspace) = self.workspace.clone() else { return };
        // Without a runtime, the server is exiting, and all commands exit with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move { workspace.close().await });
    }

    pub(crate) async fn close_workspace(&self) {
        if let Some(workspace) = &self.workspace {
            workspace.close().await;
        }
    }

    /// Ends the session at the agent, with the method that the agent has for that.
    pub(crate) async fn end_remote(&self, for_good: bool) {
        let Some(can) = &self.process.capabilities().session else { return };
        let params = json!({ "sessionId": self.remote });
        let method = match (for_good && can.delete.is_some(), can.close.is_some()) {
            (true, _) => "session/delete",
            (false, true) => "session/close",
            (false, false) => return,
        };
        // The session counts as ended even if the agent refuses.
        if let Err(failure) = self.process.call(method, &params, SERVER_CALL_TIMEOUT).await
            && for_good
        {
            tracing::warn!(
                session = self.remote,
                failure = failure.text(),
                "the agent may keep the conversation of an erased thread"
            );
        }
    }

    pub(crate) fn may_replay(&self) -> bool {
        self.may_replay.load(Ordering::Acquire)
    }

    pub(super) fn set_may_replay(&self, may_replay: bool) {
        self.may_replay.store(may_replay, Ordering::Release);
    }

    /// Waits for the end of the replay. `is_expected` says whether there is a history to replay.
    pub(crate) async fn wait_for_replay_end(&self, is_expected: bool) {
        let give_up_at = Instant::now() + MAX_REPLAY_WAIT;
        loop {
            let (ends, told) = oneshot::channel();
            self.inbox.put(SessionItem::ReplayEnd { is_expected, ends }).await;
            let Ok(Some(until)) = told.await else { return };
            let now = Instant::now();
            if until <= now || give_up_at <= now {
                return;
            }
            tokio::time::sleep_until(until.min(give_up_at)).await;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

fn next_use() -> u64 {
    USES.fetch_add(1, Ordering::Relaxed)
}
