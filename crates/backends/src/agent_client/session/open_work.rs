//! The work of a session's agent that a run logs: the turn of a prompt, or what the agent does while no prompt is open.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trilogue_domain::event::Original;
use trilogue_domain::{Body, Error, MessageId};
use trilogue_mapping::LoggedPosition;
use trilogue_mapping::agent_client::{
    is_about_line, is_about_size, oversize_notice, split_oversize, title_of,
};
use trilogue_runtime::{EmitError, RunContext};

use super::answer::TurnScope;
use super::background::{AgentState, OpenRequests};
use super::transcript::{TurnTranscript, UsedIds};
use crate::agent_client::routing::{TurnEnd, TurnSummary, WorkStop};
use crate::output_warning::OutputWarning;

/// After a cancellation, silence of this length ends the run.
const CANCEL_QUIET: Duration = Duration::from_millis(500);

pub(super) struct OpenWork {
    pub(super) context: RunContext,
    pub(super) transcript: TurnTranscript,
    pub(super) scope: TurnScope,
    /// Whether the agent has sent an update or a request in it.
    pub(super) has_worked: bool,
    /// Why the log refused an event. The run fails with this error.
    pub(super) refused: Option<Error>,
    pub(super) kind: WorkKind,
    /// How the agent reports that it ended.
    pub(super) stop: Option<WorkStop>,
    /// What the log has of it from a previous server. The agent's output comes again from the beginning of the turn.
    pub(super) logged: Option<Box<LoggedPosition>>,
    is_stopped: bool,
    warning: OutputWarning,
}

pub(super) enum WorkKind {
    Prompt {
        /// Whether the agent has answered: only late output follows.
        is_answered: bool,
        /// Cancelled when the agent reports that it is idle.
        idle: CancellationToken,
    },
    /// A run that the agent started.
    Background {
        done: oneshot::Sender<TurnSummary>,
        last_sign: Instant,
        /// When the run ends at the latest, if it was cancelled.
        ends_at: Option<Instant>,
    },
}

/// Whether an event follows from the agent's output, so that it comes again when the output is read again.
pub(in crate::agent_client) fn is_of_agent(body: &Body, original: Option<&Original>) -> bool {
    original.is_some() || matches!(body, Body::Message(_)) || is_about_line(body)
}

// === impl OpenWork ===

impl OpenWork {
    pub(super) fn new(context: RunContext, user: MessageId, assigns: bool, kind: WorkKind) -> Self {
        let (run, agent) = (context.run().clone(), context.agent().as_str());
        let transcript = TurnTranscript::new(run, agent, user, assigns);
        Self {
            context,
            transcript,
            scope: TurnScope::default(),
            has_worked: false,
            refused: None,
            kind,
            stop: None,
            logged: None,
            is_stopped: false,
            warning: OutputWarning::default(),
        }
    }

    pub(super) fn is_background(&self) -> bool {
        matches!(self.kind, WorkKind::Background { .. })
    }

    /// Whether the run has ended although the agent may continue: a later update belongs to another run.
    pub(super) fn is_over(&self) -> bool {
        let may_end = !matches!(self.kind, WorkKind::Prompt { is_answered: false, .. });
        may_end && (self.is_stopped || self.context.is_stopped())
    }

    /// Whether the agent has answered, so that a request ends the wait for late output and belongs to the agent's next run.
    pub(super) fn ends_with_request(&self) -> bool {
        let WorkKind::Prompt { is_answered: true, idle } = &self.kind else { return false };
        if self.scope.is_aborted() {
            return false;
        }
        idle.cancel();
        true
    }

    /// Whether an update was not logged because the run had ended.
    pub(super) fn has_missed(&self) -> bool {
        self.is_stopped && self.is_over()
    }

    /// Notes a sign of work.
    pub(super) fn record_sign(&mut self, state: Option<AgentState>) {
        match &mut self.kind {
            WorkKind::Prompt { idle, .. } if state == Some(AgentState::Idle) => idle.cancel(),
            WorkKind::Prompt { .. } => {}
            WorkKind::Background { last_sign, .. } => *last_sign = Instant::now(),
        }
    }

    /// Notes that the run is being cancelled.
    pub(super) fn record_cancel(&mut self, grace: Duration) {
        if let WorkKind::Background { ends_at, last_sign, .. } = &mut self.kind {
            // An agent that was quiet has its time to report too.
            *last_sign = Instant::now();
            *ends_at = Some(*last_sign + grace);
        }
    }

    /// Whether the run of the agent's own work is being cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        matches!(self.kind, WorkKind::Background { ends_at: Some(_), .. })
    }

    /// When the run ends if nothing happens until then; `None` for a prompt, which the agent ends.
    pub(super) fn quiet_at(&self, requests: &OpenRequests, quiet: Duration) -> Option<Instant> {
        let WorkKind::Background { last_sign, ends_at, .. } = &self.kind else { return None };
        let last = requests.last_ended().map_or(*last_sign, |ended| ended.max(*last_sign));
        if let Some(ends_at) = ends_at {
            return Some((last + CANCEL_QUIET).min(*ends_at));
        }
        let is_busy = self.transcript.has_open_calls() || requests.are_any();
        let now = Instant::now();
        // Checked again later: the queue has no item for the end of a request.
        Some(if is_busy { now.max(last) + quiet } else { last + quiet })
    }

    /// Ends the open messages, and the calls of work that broke off.
    pub(super) async fn finish(mut self, end: TurnEnd, used: &mut UsedIds) -> TurnSummary {
        // End the open requests first: a client must not answer for a turn that is over.
        // The next prompt does not end what the agent's own work waits for.
        if end == TurnEnd::Broken || !self.is_background() {
            self.scope.end(end);
        }
        let last = self.transcript.finish(end == TurnEnd::Broken, used);
        // A stopped run accepts no further events.
        for body in last.into_iter().filter(|_| !self.is_stopped) {
            match self.context.emit(body, None).await {
                Ok(()) => {}
                Err(EmitError::Stopped) => break,
                Err(EmitError::Refused(error)) => {
                    self.refused.get_or_insert(error);
                }
            }
        }
        let Self { has_worked, refused, stop, .. } = self;
        let summary = TurnSummary { has_worked, refused, stop };
        match self.kind {
            WorkKind::Prompt { .. } => summary,
            WorkKind::Background { done, .. } => {
                let refused = summary.refused.clone();
                // The run may have been completed for the next one.
                drop(done.send(summary));
                TurnSummary { has_worked, refused, stop: None }
            }
        }
    }

    /// Whether an id belongs to a message that is not one of this work. If the store cannot answer, the id counts as taken.
    pub(super) async fn is_taken(&self, id: &MessageId) -> bool {
        let taken = match self.logged {
            Some(_) => self.context.is_taken(id).await,
            None => self.context.has_message(id).await,
        };
        taken.unwrap_or(true)
    }

    pub(super) async fn log(&mut self, mut body: Body, original: Option<Original>) {
        let is_of_agent = is_of_agent(&body, original.as_ref());
        if let Some(logged) = self.logged.as_mut().filter(|_| is_of_agent)
            && !logged.passes(&mut body)
        {
            return;
        }
        // After a refused event, no later one is logged: the run fails with the first error.
        if self.is_stopped || self.refused.is_some() {
            return;
        }
        if let Some(title) = title_of(&body) {
            self.context.title(title.as_deref());
        }
        self.warning.note(&body, &self.context);
        // The first try needs no copies and does not wait; it succeeds if there is space.
        let emitted = match self.context.try_emit(&body, original.as_ref()) {
            Ok(true) => return,
            Ok(false) => self.context.emit(body.clone(), original.clone()).await,
            Err(error) => Err(error),
        };
        let emitted = match emitted {
            Err(EmitError::Refused(error)) if is_about_size(&error) => {
                self.emit_smaller(body, original.as_ref()).await
            }
            emitted => emitted,
        };
        match emitted {
            Ok(()) => {}
            Err(EmitError::Stopped) => self.is_stopped = true,
            Err(EmitError::Refused(error)) => self.refused = Some(error),
        }
    }

    /// Logs a smaller event instead of one that is too large: size alone never ends a run.
    async fn emit_smaller(&self, body: Body, original: Option<&Original>) -> Result<(), EmitError> {
        for body in split_oversize(body, original) {
            match self.context.emit(body, None).await {
                Err(EmitError::Refused(error)) if is_about_size(&error) => {
                    self.context.emit(oversize_notice(original), None).await?;
                }
                emitted => emitted?,
            }
        }
        Ok(())
    }
}
