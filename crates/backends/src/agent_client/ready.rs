//! The session of a run: open, bound, and kept from being closed until the turn is over.

use std::sync::Arc;

use serde_json::json;
use trilogue_domain::error::Code;
use trilogue_domain::event::StateEvent;
use trilogue_domain::{Body, Json, Message};
use trilogue_runtime::{MemoryState, RunContext};

use super::Inner;
use super::open::{Authenticates, Reopened, Whom};
use super::threads::{Agreed, State};
use super::trouble::Trouble;
use super::working::Working;

/// A session that is ready for a prompt, and what its agent has to be told first.
pub(super) struct Ready {
    pub(super) session: Working,
    pub(super) missed: Vec<Message>,
}

/// A session that the agent does not know any more.
pub(super) struct Lost {
    /// The id by which it knew it.
    pub(super) remote: String,
    pub(super) why: String,
}

// === impl Inner ===

impl Inner {
    /// The session of the run's thread, open and bound.
    ///
    /// When the run is stopped meanwhile, opening goes on for as long as an agent may take for that: the next run finds it done. When
    /// the thread is erased, it is given up.
    pub(super) async fn ready(
        self: &Arc<Self>,
        context: &RunContext,
        lost: Option<Lost>,
    ) -> Result<Ready, Trouble> {
        if lost.is_none()
            && let Some(ready) = self.ready_already(context).await?
        {
            return Ok(ready);
        }
        let (inner, context) = (Arc::clone(self), context.clone());
        let opening = tokio::spawn(async move {
            let thread = inner.threads.get(context.key());
            let longest = inner.launch().open_timeout;
            let too_late = async {
                context.cancelled().await;
                tokio::time::sleep(longest).await;
            };
            tokio::select! {
                biased;
                ready = inner.ready_here(&context, lost) => ready,
                () = thread.gone.cancelled() => Err(not_opened()),
                () = too_late => Err(not_opened()),
            }
        });
        opening.await.unwrap_or_else(|_| Err(not_opened()))
    }

    /// The session that the run's thread is bound to, where it is open as it is to be: nothing is opened that would have to go on.
    async fn ready_already(&self, context: &RunContext) -> Result<Option<Ready>, Trouble> {
        let thread = self.threads.get(context.key());
        let Ok(mut state) = thread.state.try_lock() else { return Ok(None) };
        if state.session.is_none() || state.opening != state.opened_with {
            return Ok(None);
        }
        let MemoryState::Bound { binding, missed } = context.memory_state().await? else {
            return Ok(None);
        };
        let Some(session) = state.working(&binding.remote) else { return Ok(None) };
        drop(state);
        all_missed(context, session, missed).await.map(Some)
    }

    async fn ready_here(
        self: &Arc<Self>,
        context: &RunContext,
        lost: Option<Lost>,
    ) -> Result<Ready, Trouble> {
        let thread = self.threads.get(context.key());
        let mut state = thread.state.lock().await;
        if let Some(Lost { remote, .. }) = &lost
            && let Some(session) = state.session.take_if(|session| session.remote() == remote)
        {
            session.close();
        }
        let mut was_agreed = None;
        let (reopened, missed) = match context.memory_state().await? {
            MemoryState::Unbound => (self.anew(context, &mut state, None, None).await?, None),
            MemoryState::Rewound { binding } => {
                let agreed = Agreed::read(&binding.capabilities);
                was_agreed = Some(agreed.clone());
                (self.anew(context, &mut state, Some(agreed), None).await?, None)
            }
            MemoryState::Bound { binding, missed } => {
                let agreed = Agreed::read(&binding.capabilities);
                was_agreed = Some(agreed.clone());
                let (thread, bound) = (context.thread_context(), (&*binding.remote, &agreed));
                if let Some(session) = self.as_it_is(&thread, &mut state, bound).await? {
                    return all_missed(context, session, missed).await;
                }
                match lost {
                    Some(Lost { why, .. }) => {
                        (self.anew(context, &mut state, Some(agreed), Some(why)).await?, None)
                    }
                    None => {
                        let client = context.client();
                        let bound = (&*binding.remote, agreed);
                        let how = Authenticates::Always;
                        let whom = Whom::run(client.as_ref());
                        let reopened = self.reopen(&thread, whom, &mut state, bound, how).await?;
                        (reopened, Some(missed))
                    }
                }
            }
        };
        let Reopened { session, forgot } = reopened;
        // What it was told of before stays where it is the session that it was.
        let remembered = was_agreed.as_ref().and_then(|agreed| agreed.auth_method.as_deref());
        let agreed = self.agreed(&session, remembered);
        if forgot.is_some() || missed.is_none() || was_agreed.as_ref() != Some(&agreed) {
            self.bind_for(context, &session, &agreed, &mut state).await?;
        }
        drop(state);
        if let Some(why) = forgot {
            say_restarted(context, &why).await;
        }
        all_missed(context, session, missed.unwrap_or_default()).await
    }

    /// A new session.
    async fn anew(
        &self,
        context: &RunContext,
        state: &mut State,
        agreed: Option<Agreed>,
        forgot: Option<String>,
    ) -> Result<Reopened, Trouble> {
        let (client, thread) = (context.client(), context.thread_context());
        let how = Authenticates::Always;
        let whom = Whom::run(client.as_ref());
        let session = self.begin(&thread, whom, state, agreed, how).await?;
        Ok(Reopened { session, forgot })
    }

    /// Binds the thread to a session. A run that was stopped binds nothing any more; the thread does, so that the next run has the session.
    async fn bind_for(
        self: &Arc<Self>,
        context: &RunContext,
        session: &Working,
        agreed: &Agreed,
        state: &mut State,
    ) -> Result<(), Trouble> {
        let (agreed, thread) = (agreed.to_json(), context.thread_context());
        if context.bind(session.remote(), agreed.clone()).await.is_ok() {
            return Ok(());
        }
        if context.is_cancelled() && thread.bind(session.remote(), agreed).await.is_ok() {
            return Ok(());
        }
        if let Some(session) = state.session.take() {
            session.close();
        }
        Err(self.not_bound(thread))
    }
}

/// A session that was told nothing yet is told all of it.
async fn all_missed(
    context: &RunContext,
    session: Working,
    missed: Vec<Message>,
) -> Result<Ready, Trouble> {
    let missed = if session.is_blank() { context.history().await? } else { missed };
    Ok(Ready { session, missed })
}

/// Says in the log that the agent does not remember what was said before.
async fn say_restarted(context: &RunContext, why: &str) {
    let data = Json::from_value(&json!({ "reason": why }));
    let kind = "session_restarted".to_owned();
    // A run that was stopped hears nothing any more.
    drop(context.emit(Body::State(StateEvent::Custom { kind, data }), None).await);
}

pub(super) fn not_opened() -> Trouble {
    Trouble::ours(Code::Internal, "the agent's session could not be opened")
}
