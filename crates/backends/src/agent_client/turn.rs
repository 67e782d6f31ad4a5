//! One turn: the session is there, the agent is prompted, and what it says is logged until it is done.

use std::pin::pin;
use std::sync::Arc;

use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};
use trilogue_domain::error::Code;
use trilogue_domain::event::StateEvent;
use trilogue_domain::{Body, Failure, Input, Json, Message, MessageId};
use trilogue_mapping::agent_client::{check_capabilities, fit, prompt_of_input};
use trilogue_runtime::{Ending, RunContext, Standing, Turn};
use trilogue_sdk::agent_client::peer::{Call, Failed, Text};
use trilogue_wire::agent_client::{PromptRequest, PromptResponse, Rules, StopReason, read_result};

use super::inbox::Finish;
use super::open::{Authenticates, Reopened};
use super::process::Use;
use super::session::Session;
use super::threads::{Agreed, State};
use super::trouble::Trouble;
use super::{Inner, original};

/// A session that is ready for a prompt, and what its agent has to be told first.
struct Ready {
    session: Arc<Session>,
    missed: Vec<Message>,
    _used: Use,
}

/// How a prompt was answered.
enum Answer {
    Ended(Text),
    /// The run was stopped, and the agent has not answered in time.
    Abandoned,
}

// === impl Inner ===

impl Inner {
    /// Executes a turn.
    pub(super) async fn run(
        self: Arc<Self>,
        turn: Turn,
        context: RunContext,
    ) -> Result<Ending, Failure> {
        let Turn::Start { input } = turn else {
            return Err(Failure::of(Code::Internal, "an agent of this kind does not suspend"));
        };
        // Opening goes on when the run is stopped meanwhile: the next one finds it done.
        let opening = tokio::spawn({
            let (inner, context) = (Arc::clone(&self), context.clone());
            async move { inner.ready(&context, None).await }
        });
        let mut ready = tokio::select! {
            biased;
            ready = opening => ready.unwrap_or_else(|_| Err(interrupted())),
            () = context.cancelled() => return Ok(Ending::Completed),
        };
        // A session that turns out to be lost is opened again once, and one that wants authentication is prompted again.
        for is_last in [false, true] {
            let Ready { session, missed, _used } = ready.map_err(Trouble::into_failure)?;
            let trouble = match self.prompt(&session, &input, &missed, &context).await {
                Ok(ending) => return Ok(ending),
                Err(trouble) => trouble,
            };
            let is_over = is_last || context.is_cancelled();
            ready = if !is_over && trouble.is_lost_session() {
                self.ready(&context, Some((session.remote().to_owned(), trouble.text()))).await
            } else if !is_over && trouble.wants_authentication() {
                let done =
                    self.authenticate(session.process(), trouble, Authenticates::Always).await;
                done.map(|()| Ready { session, missed, _used })
            } else if context.is_cancelled() && matches!(trouble, Trouble::Refused(_)) {
                return Ok(Ending::Completed);
            } else {
                return Err(trouble.into_failure());
            };
        }
        Err(interrupted().into_failure())
    }

    /// The session of the run's thread, open and bound. `lost` is one that the agent does not know any more, and why.
    async fn ready(
        &self,
        context: &RunContext,
        lost: Option<(String, String)>,
    ) -> Result<Ready, Trouble> {
        let thread = self.threads.get(context.thread());
        let mut state = thread.state.lock().await;
        if let Some((remote, _)) = &lost
            && let Some(session) = state.session.take_if(|session| session.remote() == remote)
        {
            session.close();
        }
        let (reopened, missed) = match context.standing().await? {
            Standing::Unbound => {
                (self.anew(context, &mut state, Agreed::default(), None).await?, None)
            }
            Standing::Rewound { binding } => {
                let agreed = Agreed::read(&binding.capabilities);
                (self.anew(context, &mut state, agreed, None).await?, None)
            }
            Standing::Bound { binding, missed } => {
                if let Some(session) =
                    state.open_session().filter(|it| it.remote() == binding.remote)
                {
                    return self.all_missed(context, session, missed).await;
                }
                let agreed = Agreed::read(&binding.capabilities);
                match lost {
                    Some((_, why)) => {
                        (self.anew(context, &mut state, agreed, Some(why)).await?, None)
                    }
                    None => {
                        let (client, thread) = (context.client(), context.thread_context());
                        let bound = (&*binding.remote, agreed);
                        let how = Authenticates::Always;
                        let reopened =
                            self.reopen(&thread, client.as_ref(), &mut state, bound, how).await?;
                        (reopened, Some(missed))
                    }
                }
            }
        };
        let Reopened { session, forgot } = reopened;
        let knows = forgot.is_none() && missed.is_some();
        if !knows {
            let agreed = self.agreed(context.thread(), &state).await;
            let bound = context.bind(session.remote(), agreed.to_json()).await;
            bound.map_err(|_| {
                Trouble::ours(Code::Internal, "the agent's session could not be stored")
            })?;
        }
        drop(state);
        if let Some(why) = forgot {
            say_restarted(context, &why).await;
        }
        self.all_missed(context, session, missed.unwrap_or_default()).await
    }

    /// A session that was told nothing yet is told all of it.
    async fn all_missed(
        &self,
        context: &RunContext,
        session: Arc<Session>,
        missed: Vec<Message>,
    ) -> Result<Ready, Trouble> {
        let missed = if session.is_blank() { context.history().await? } else { missed };
        let used = session.process().hold();
        Ok(Ready { session, missed, _used: used })
    }

    /// A new session.
    async fn anew(
        &self,
        context: &RunContext,
        state: &mut State,
        agreed: Agreed,
        forgot: Option<String>,
    ) -> Result<Reopened, Trouble> {
        let (client, thread) = (context.client(), context.thread_context());
        let how = Authenticates::Always;
        let session = self.begin(&thread, client.as_ref(), state, agreed, how).await?;
        Ok(Reopened { session, forgot })
    }

    async fn prompt(
        &self,
        session: &Arc<Session>,
        input: &Input,
        missed: &[Message],
        context: &RunContext,
    ) -> Result<Ending, Trouble> {
        let capabilities = session.process().capabilities().prompt.clone().unwrap_or_default();
        let blocks = fit(prompt_of_input(input, missed), &capabilities);
        check_capabilities(&blocks, &capabilities)?;
        let user = user_message(input);
        let mut request = PromptRequest::new(session.remote(), blocks);
        if self.launch().send_message_id {
            request.message_id = Some(user.as_str().to_owned());
        }
        let mut guard = Guard::new(session);
        session.begin(context.clone(), user.clone()).await;
        let answer = match session.process().peer().begin("session/prompt", &request).await {
            Ok(call) => self.wait(session, call, context).await,
            Err(failed) => Err(failed),
        };
        guard.is_armed = false;
        self.conclude(session, answer, context, &user).await
    }

    /// Waits for the answer, and asks the agent to stop when the run is to.
    async fn wait(
        &self,
        session: &Session,
        call: Call,
        context: &RunContext,
    ) -> Result<Answer, Failed> {
        let peer = session.process().peer();
        let cancel = json!({ "sessionId": session.remote() });
        let mut call = pin!(call);
        tokio::select! {
            biased;
            answer = &mut call => return answer.map(Answer::Ended),
            () = context.cancelled() => {}
        }
        let grace = self.launch().cancel_grace;
        let began = Instant::now();
        for until in [began + grace / 2, began + grace] {
            // It is said once more at half-time: an agent may have been too busy to hear it.
            peer.notify("session/cancel", &cancel).await?;
            tokio::select! {
                biased;
                answer = &mut call => return answer.map(Answer::Ended),
                () = sleep_until(until) => {}
            }
        }
        Ok(Answer::Abandoned)
    }

    async fn conclude(
        &self,
        session: &Arc<Session>,
        answer: Result<Answer, Failed>,
        context: &RunContext,
        user: &MessageId,
    ) -> Result<Ending, Trouble> {
        let answer = match answer {
            Ok(Answer::Ended(answer)) => {
                session.was_told();
                answer
            }
            Ok(Answer::Abandoned) => {
                tracing::warn!(run = %context.run(), "an agent did not stop when it was asked to and is ended");
                abandon(session).await;
                drop(session.finish(Finish::Broken).await);
                return Ok(Ending::Completed);
            }
            Err(failed) => {
                drop(session.finish(Finish::Broken).await);
                return Err(session.process().trouble(failed).await);
            }
        };
        let read = read(&answer);
        let is_well = matches!(&read, Ok(read) if read.stop_reason != StopReason::Cancelled);
        let finished = session.finish(if is_well { Finish::Well } else { Finish::Broken }).await;
        finished?;
        let response = read?;
        if let Some(theirs) =
            response.user_message_id.as_deref().and_then(|id| MessageId::parse(id).ok())
            && theirs != *user
        {
            context.alias(user, &theirs);
        }
        if let Some((body, original)) = original::of_result(answer.as_bytes()) {
            // A run that was stopped hears nothing any more.
            drop(context.emit(body, Some(original)).await);
        }
        Ok(Ending::Completed)
    }
}

/// Ends the process of a session whose turn does not end. Where others work in it, only the session is given up.
async fn abandon(session: &Arc<Session>) {
    session.spoil();
    session.close();
    let process = Arc::clone(session.process());
    // The turn itself is one.
    if process.is_idle_but_for(1) {
        process.child().kill().await;
    }
}

/// Ends a turn whose run was dropped.
struct Guard {
    session: Arc<Session>,
    is_armed: bool,
}

// === impl Guard ===

impl Guard {
    fn new(session: &Arc<Session>) -> Self {
        Self { session: Arc::clone(session), is_armed: true }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_armed {
            return;
        }
        let session = Arc::clone(&self.session);
        session.spoil();
        // Without a runtime the server goes down, and all processes with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let used = session.process().hold();
            let cancel = json!({ "sessionId": session.remote() });
            // Whether it listens does not matter: it is ended.
            drop(session.process().peer().notify("session/cancel", &cancel).await);
            abandon(&session).await;
            drop(session.finish(Finish::Broken).await);
            drop(used);
        });
    }
}

fn read(answer: &Text) -> Result<PromptResponse, Trouble> {
    let wrong = |why: String| {
        let message = format!("the agent's answer to the prompt does not fit: {why}");
        Trouble::ours(Code::AgentFailed, message)
    };
    let raw: &RawValue =
        serde_json::from_slice(answer.as_bytes()).map_err(|error| wrong(error.to_string()))?;
    read_result(raw, Rules::Lenient).map_err(|error| wrong(error.to_string()))
}

/// The message that the prompt is made of.
fn user_message(input: &Input) -> MessageId {
    let messages = match input {
        Input::Messages(messages) => messages.as_slice(),
        Input::Value(_) => &[],
    };
    let last = messages.iter().rev().find(|message| message.role.is_user());
    last.or(messages.last()).map_or_else(MessageId::generate, |message| message.id.clone())
}

/// Says in the log that the agent does not remember what was said before.
async fn say_restarted(context: &RunContext, why: &str) {
    let data = Json::from_value(&json!({ "reason": why }));
    let kind = "session_restarted".to_owned();
    // A run that was stopped hears nothing any more.
    drop(context.emit(Body::State(StateEvent::Custom { kind, data }), None).await);
}

fn interrupted() -> Trouble {
    Trouble::ours(Code::Internal, "the agent's session could not be opened")
}
