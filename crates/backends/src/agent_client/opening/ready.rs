//! The session of a run: open, bound, and kept open until the turn is over.

use std::sync::Arc;

use trilogue_domain::error::Code;
use trilogue_runtime::{MemoryState, NewestMessages, RunContext};

use super::{ReopenedSession, Requester, SessionOpener, folder, session_restarted};
use crate::agent_client::failure::AgentFailure;
use crate::agent_client::session::{SessionBinding, SessionLease, ThreadState};
use crate::agent_client::turns::MAX_PROMPT_BYTES;

/// A session in which the run can prompt, and the messages that its agent has not seen.
pub(in crate::agent_client) struct ReadySession {
    pub(in crate::agent_client) session: SessionLease,
    pub(in crate::agent_client) missed: NewestMessages,
}

/// A session that the agent no longer knows.
pub(in crate::agent_client) struct LostSession {
    pub(in crate::agent_client) remote: String,
    pub(in crate::agent_client) why: String,
}

// === impl SessionOpener ===

impl SessionOpener {
    /// Opens and binds the session of the run's thread.
    ///
    /// If the run is stopped meanwhile, the opening continues within its time limit, and the next run finds the session open.
    /// If the thread is erased, the opening ends.
    pub(in crate::agent_client) async fn ready(
        self: &Arc<Self>,
        context: &RunContext,
        lost: Option<LostSession>,
    ) -> Result<ReadySession, AgentFailure> {
        if lost.is_none()
            && let Some(ready) = self.already_open(context).await?
        {
            return Ok(ready);
        }
        let (opener, context) = (Arc::clone(self), context.clone());
        let opening = tokio::spawn(async move {
            let thread = opener.threads.get_or_insert(context.key());
            let time_limit = opener.launch().open_timeout;
            let too_late = async {
                context.cancelled().await;
                tokio::time::sleep(time_limit).await;
            };
            tokio::select! {
                biased;
                ready = opener.open_for_run(&context, lost) => ready,
                () = thread.erased.cancelled() => Err(not_opened()),
                () = too_late => Err(not_opened()),
            }
        });
        opening.await.unwrap_or_else(|_| Err(not_opened()))
    }

    /// The session of the thread's binding, if it is open with the right params. This needs no separate task.
    async fn already_open(
        &self,
        context: &RunContext,
    ) -> Result<Option<ReadySession>, AgentFailure> {
        let thread = self.threads.get_or_insert(context.key());
        let Ok(mut state) = thread.state.try_lock() else { return Ok(None) };
        if state.session.is_none() || state.wanted != state.opened_with {
            return Ok(None);
        }
        let memory = context.memory_state(MAX_PROMPT_BYTES).await?;
        let MemoryState::Bound { binding, missed } = memory else { return Ok(None) };
        if folder::params_of_run(context, &state)?.is_some() {
            return Ok(None);
        }
        let Some(session) = state.lease(&binding.remote) else { return Ok(None) };
        drop(state);
        with_missed(context, session, missed).await.map(Some)
    }

    async fn open_for_run(
        self: &Arc<Self>,
        context: &RunContext,
        lost: Option<LostSession>,
    ) -> Result<ReadySession, AgentFailure> {
        let thread = self.threads.get_or_insert(context.key());
        let mut state = thread.state.lock().await;
        if let Some(LostSession { remote, .. }) = &lost
            && let Some(session) = state.session.take_if(|session| session.remote() == remote)
        {
            session.close();
        }
        if let Some(params) = folder::params_of_run(context, &state)? {
            folder::check_at_start(context, &self.launch(), &self.accepted_folders, &params)
                .await?;
            state.wanted = Some(params);
        }
        let mut before = None;
        let (reopened, missed) = match context.memory_state(MAX_PROMPT_BYTES).await? {
            MemoryState::Unbound => {
                (self.begin_for_run(context, &mut state, None, None).await?, None)
            }
            MemoryState::Rewound { binding } => {
                let binding = SessionBinding::read(&binding.capabilities);
                before = Some(binding.clone());
                (self.begin_for_run(context, &mut state, Some(binding), None).await?, None)
            }
            MemoryState::Bound { binding: row, missed } => {
                let binding = SessionBinding::read(&row.capabilities);
                before = Some(binding.clone());
                let thread = context.thread_context();
                let client = context.client();
                let requester = Requester::run(context, client.as_ref());
                let bound = (&*row.remote, &binding);
                if let Some(session) =
                    self.open_session(&thread, &requester, &mut state, bound).await?
                {
                    return with_missed(context, session, missed).await;
                }
                match lost {
                    Some(LostSession { why, .. }) => {
                        let binding = Some(binding);
                        (self.begin_for_run(context, &mut state, binding, Some(why)).await?, None)
                    }
                    None => {
                        let bound = (&*row.remote, binding);
                        let reopened = self.reopen(&thread, &requester, &mut state, bound).await?;
                        (reopened, Some(missed))
                    }
                }
            }
        };
        let ReopenedSession { session, forgotten } = reopened;
        let remembered = before.as_ref().and_then(|binding| binding.auth_method.as_deref());
        let binding = self.binding(&session, remembered);
        // An unchanged session keeps its binding.
        if forgotten.is_some() || missed.is_none() || before.as_ref() != Some(&binding) {
            self.bind_for_run(context, &session, &binding, &mut state).await?;
        }
        drop(state);
        if let Some(why) = forgotten {
            // This fails only if the run was stopped.
            drop(context.emit(session_restarted(&why), None).await);
        }
        with_missed(context, session, missed.unwrap_or_default()).await
    }

    async fn begin_for_run(
        &self,
        context: &RunContext,
        state: &mut ThreadState,
        binding: Option<SessionBinding>,
        forgotten: Option<String>,
    ) -> Result<ReopenedSession, AgentFailure> {
        let (client, thread) = (context.client(), context.thread_context());
        let requester = Requester::run(context, client.as_ref());
        let session = self.begin(&thread, &requester, state, binding).await?;
        Ok(ReopenedSession { session, forgotten })
    }
}

/// A new session has missed the whole history.
async fn with_missed(
    context: &RunContext,
    session: SessionLease,
    missed: NewestMessages,
) -> Result<ReadySession, AgentFailure> {
    let missed = match session.is_blank() {
        true => context.newest_history(MAX_PROMPT_BYTES).await?,
        false => missed,
    };
    Ok(ReadySession { session, missed })
}

pub(in crate::agent_client) fn not_opened() -> AgentFailure {
    AgentFailure::local(Code::Internal, "the agent's session could not be opened")
}
