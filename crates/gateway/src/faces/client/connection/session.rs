//! A session that a client has open.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::lock;
use trilogue_domain::{Interrupt, Json, MessageId, Outcome, RunId, RunKey, Scope, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::{ActivePresence, AttachGuard};
use trilogue_store::Read;
use trilogue_store::rows::ThreadRow;
use trilogue_wire::jsonrpc::Id;

use super::super::ask_registry::AskTicket;
use super::super::open_sessions::OpenSessionGuard;
use super::super::wire::lines::MethodResult;
use super::cancels::CancelMark;
use super::command::PumpCommand;
use crate::core::connected_clients::ListedSessionGuard;
use crate::core::log_ref::LogRef;
use crate::stream::feed::run_id;

/// A session that a client has open: a thread whose log a pump renders for the client.
#[derive(Debug)]
pub(crate) struct ClientSession {
    pub(crate) thread: ThreadRow,
    state: Mutex<SessionState>,
    commands: mpsc::Sender<PumpCommand>,
    /// Stops the pump.
    pub(crate) stop: CancellationToken,
    /// Absent in the session of a sub-agent: its agent's calls go to the client of the parent's session. Also absent for a client that only observes.
    attached: Option<AttachGuard>,
    /// The session in which its questions are asked: its own, or that of an ancestor if the client shows no sub-agents.
    pub(crate) asks_in: ThreadId,
    /// Notified when prompts were answered.
    pub(crate) settled: Notify,
    /// Whether the pump knows where to begin.
    has_begun: AtomicBool,
    presence: SessionPresence,
}

/// What a client counts for while it has a session open.
#[derive(Debug)]
pub(crate) struct SessionPresence {
    /// Present if it can answer questions.
    answering: Option<ActivePresence>,
    /// Present if it can prompt.
    _open: Option<OpenSessionGuard>,
    /// Its entry in the list of the client's sessions.
    _listed: Option<ListedSessionGuard>,
}

#[derive(Debug, Default)]
pub(crate) struct SessionState {
    /// The prompts that wait for the end of a run.
    pub(crate) prompts: Vec<OpenPrompt>,
    /// How many prompts are between lookup and [`Self::prompts`]. While there are any, the session remembers run ends for them.
    pub(crate) accepting: usize,
    pub(crate) ended: HashMap<RunKey, RunEnd>,
    pub(crate) removed: HashSet<RunId>,
    /// Whether the pump has stopped, so that it answers no further prompts.
    pub(crate) is_over: bool,
    /// Messages that this client sent: it does not receive them again.
    pub(crate) own_messages: HashSet<MessageId>,
    /// The question with which the last turn ended: the next prompt answers it.
    pub(crate) question: Option<Interrupt>,
    /// Whether the client has received the questions that were open when it opened the session.
    pub(crate) knows_questions: bool,
    /// Counts this client among those that may answer `question`.
    pub(crate) ticket: Option<AskTicket>,
    /// Settings that this client changed and whose log events have not arrived: only other clients receive them.
    pub(crate) own_settings: Vec<serde_json::Value>,
    /// The parameters for opening the agent's session before its next use.
    pub(crate) open_params: Option<Json>,
    /// How many calls of this sub-agent its parent's pump has seen. A pump that ends without the latest of them would lose its updates.
    pub(crate) calls: u64,
}

/// A prompt that waits for the end of its run.
#[derive(Clone, Debug)]
pub(crate) struct OpenPrompt {
    pub(crate) request: Id<'static>,
    pub(crate) run: RunKey,
    pub(crate) run_id: RunId,
    /// The message id for the response.
    pub(crate) user_message_id: Option<String>,
    pub(crate) message: Option<MessageId>,
    /// For a run that has already ended: the event that the client must have read first, and the end.
    pub(crate) ended_at: Option<(u64, RunEnd)>,
    pub(crate) mark: CancelMark,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(crate) struct RunEnd {
    pub(crate) outcome: Outcome,
    /// The prompt response of an agent that speaks this protocol.
    pub(crate) result: Option<String>,
}

// === impl ClientSession ===

impl ClientSession {
    pub(crate) fn new(
        thread: ThreadRow,
        commands: mpsc::Sender<PumpCommand>,
        attached: Option<AttachGuard>,
        presence: SessionPresence,
    ) -> Self {
        Self {
            asks_in: thread.id.clone(),
            thread,
            state: Mutex::default(),
            commands,
            stop: CancellationToken::new(),
            attached,
            settled: Notify::new(),
            has_begun: AtomicBool::new(false),
            presence,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, SessionState> {
        lock(&self.state)
    }

    /// Marks the client as active: it can still answer.
    pub(crate) fn touch(&self) {
        if let Some(answering) = &self.presence.answering {
            answering.touch();
        }
    }

    pub(crate) fn id(&self) -> &str {
        self.thread.id.as_str()
    }

    /// Returns the scope for rows of a thread that a lookup found: the whole tenant.
    pub(crate) fn scope(&self) -> Scope {
        scope_of(&self.thread)
    }

    /// Returns the id of one of its runs, or `None` if the run was removed.
    pub(crate) async fn run_id(&self, read: &Arc<dyn Read>, key: RunKey) -> Result<Option<RunId>> {
        run_id(read, &LogRef::from(&self.thread), key).await
    }

    /// Returns `true` on the first call: that caller gives the pump its start.
    pub(crate) fn begin(&self) -> bool {
        !self.has_begun.swap(true, Ordering::AcqRel)
    }

    /// Routes the agent's calls to this client.
    pub(crate) fn take_control(&self) {
        if let Some(attached) = &self.attached {
            attached.take_control();
        }
    }

    /// Sends the pump a command. Returns `false` if the pump has ended.
    pub(crate) async fn command(&self, command: PumpCommand) -> bool {
        self.commands.send(command).await.is_ok()
    }
}

/// Returns the scope for rows of a thread that a lookup found: the whole tenant.
pub(crate) fn scope_of(thread: &ThreadRow) -> Scope {
    Scope::of_tenant(&thread.tenant)
}

// === impl SessionPresence ===

impl SessionPresence {
    pub(crate) fn new(
        answering: Option<ActivePresence>,
        open: Option<OpenSessionGuard>,
        listed: Option<ListedSessionGuard>,
    ) -> Self {
        Self { answering, _open: open, _listed: listed }
    }
}

// === impl OpenPrompt ===

impl OpenPrompt {
    /// Returns the response. A client that cancelled the turn gets `cancelled`, even if the run failed.
    pub(crate) fn result(&self, end: &RunEnd, user_message_id: Option<&str>) -> MethodResult {
        match &end.outcome {
            Outcome::Failed(_) if self.mark.is_cancelled() => {
                let cancelled = Outcome::Cancelled { reason: None };
                mapping::prompt_result(&cancelled, None, user_message_id)
            }
            outcome => mapping::prompt_result(outcome, end.result.as_deref(), user_message_id),
        }
    }
}

// === impl RunEnd ===

impl RunEnd {
    /// Returns the end of a run that was removed together with its outcome.
    pub(crate) const fn of_removed_run() -> Self {
        Self { outcome: Outcome::Cancelled { reason: None }, result: None }
    }

    /// Returns the end of a turn whose agent asks a question as text.
    pub(crate) const fn of_text_question() -> Self {
        Self { outcome: Outcome::Completed, result: None }
    }
}

// === impl SessionState ===

impl SessionState {
    /// Removes a setting of this client. Returns whether it existed.
    pub(crate) fn take_own_setting(&mut self, setting: &serde_json::Value) -> bool {
        let index = self.own_settings.iter().position(|own| own == setting);
        index.map(|index| self.own_settings.remove(index)).is_some()
    }

    /// Removes and returns the prompts that wait for this run.
    pub(crate) fn take_prompts(&mut self, run: RunKey) -> Vec<OpenPrompt> {
        self.prompts.extract_if(.., |prompt| prompt.run == run).collect()
    }

    /// Removes and returns the prompts that wait for a run that has ended. If no prompt waits, remembers the end for prompts that are being accepted.
    pub(crate) fn end_run(&mut self, run: RunKey, end: &RunEnd) -> Vec<OpenPrompt> {
        let prompts = self.take_prompts(run);
        if prompts.is_empty() && self.accepting > 0 {
            self.ended.insert(run, end.clone());
        }
        prompts
    }

    /// Like [`Self::end_run`] for a run that was removed. Its messages were removed too, so the response acknowledges no ids.
    pub(crate) fn remove_run(&mut self, run: &RunId) -> Vec<OpenPrompt> {
        let mut prompts: Vec<_> =
            self.prompts.extract_if(.., |prompt| prompt.run_id == *run).collect();
        if prompts.is_empty() && self.accepting > 0 {
            self.removed.insert(run.clone());
        }
        prompts.iter_mut().for_each(|prompt| prompt.user_message_id = None);
        prompts
    }

    /// Returns the end of the run of a prompt that is being accepted, if the run has ended.
    pub(crate) fn run_end(&self, prompt: &OpenPrompt) -> Option<RunEnd> {
        let known = self.ended.get(&prompt.run).cloned();
        let is_removed = self.is_over || self.removed.contains(&prompt.run_id);
        known.or_else(|| is_removed.then(RunEnd::of_removed_run))
    }

    /// Removes and returns the prompts whose runs ended at or before event `number`.
    pub(crate) fn take_ended(&mut self, number: u64) -> Vec<(OpenPrompt, RunEnd)> {
        let mut taken = Vec::new();
        self.prompts.retain(|prompt| match &prompt.ended_at {
            Some((at, end)) if *at <= number => {
                taken.push((prompt.clone(), end.clone()));
                false
            }
            _ => true,
        });
        taken
    }
}
