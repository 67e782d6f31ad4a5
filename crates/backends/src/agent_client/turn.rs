//! One turn: the session is there, the agent is prompted, and what it says is logged until it is done.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until, timeout};
use trilogue_domain::error::Code;
use trilogue_domain::{Error, Failure, Input, Json, Message, MessageId};
use trilogue_mapping::agent_client::{check_capabilities, extra_of_message, fit, prompt_of_input};
use trilogue_runtime::{Ending, RunContext, Turn};
use trilogue_sdk::agent_client::peer::{Call, CallFailure, RawJson};
use trilogue_wire::agent_client::{
    ContentBlock, PromptRequest, PromptResponse, Rules, StopReason, read_result, splice,
};
use trilogue_wire::jsonrpc::DEFAULT_MAX_LINE_BYTES;

use super::callers::Asked;
use super::inbox::Finish;
use super::meta::passed;
use super::priming::{LEFT_OUT, newest_that_fit};
use super::ready::{Lost, Ready, not_opened};
use super::session::Session;
use super::trouble::Trouble;
use super::{ClientMeta, Inner, original};

/// How long an agent whose run was dropped may take to read that.
const LAST_WORD: Duration = Duration::from_millis(250);

/// The largest prompt that an agent is told, in bytes: many agents take no longer line than one with this in it.
const MAX_PROMPT_BYTES: usize = DEFAULT_MAX_LINE_BYTES - ENVELOPE_BYTES;
/// What stands around a prompt in its line, in bytes.
const ENVELOPE_BYTES: usize = 1024;

/// Why a prompt did not end its run, and how far it came.
struct Stumble {
    trouble: Trouble,
    reach: Reach,
}

/// How far a prompt came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// It was not written.
    Unsaid,
    /// It was written, and nothing was heard but the answer.
    Said,
    /// The agent has begun to work, or may have.
    Worked,
}

/// How a prompt was answered.
enum Answer {
    Ended(RawJson),
    /// The run was stopped before it could be said.
    Unsaid,
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
        let mut ready = tokio::select! {
            biased;
            ready = self.ready(&context, None) => ready,
            () = context.cancelled() => return Ok(Ending::Completed),
        };
        // Once, and only while the agent has not begun to work on it, a prompt is said again: in another session where its own turns out to be lost, in another process where its own had ended, and when it has authenticated.
        for is_last in [false, true] {
            let Ready { session, missed } = ready.map_err(Trouble::into_failure)?;
            let Stumble { trouble, reach } =
                match self.prompt(&session, &input, &missed, &context).await {
                    Ok(ending) => return Ok(ending),
                    Err(stumble) => stumble,
                };
            let may_repeat = !is_last && !context.is_cancelled() && reach != Reach::Worked;
            ready = if may_repeat && trouble.is_lost_session(session.remote()) {
                let (remote, why) = (session.remote().to_owned(), trouble.text());
                drop(session);
                self.ready(&context, Some(Lost { remote, why })).await
            } else if may_repeat && trouble.wants_authentication() {
                let done = self.authenticate(&context, session.process(), trouble).await;
                done.map(|()| Ready { session, missed })
            } else if may_repeat && reach == Reach::Unsaid && matches!(trouble, Trouble::Lost(_)) {
                drop(session);
                self.ready(&context, None).await
            } else if context.is_cancelled() && trouble.is_refusal() {
                return Ok(Ending::Completed);
            } else {
                return Err(trouble.into_failure());
            };
        }
        Err(not_opened().into_failure())
    }

    async fn prompt(
        &self,
        session: &Arc<Session>,
        input: &Input,
        missed: &[Message],
        context: &RunContext,
    ) -> Result<Ending, Stumble> {
        let capabilities = session.process().capabilities().prompt.clone().unwrap_or_default();
        let (user, extra) = user_message(input);
        let launch = self.launch();
        let request = |missed: &[Message], is_cut: bool| {
            let mut blocks = fit(prompt_of_input(input, missed), &capabilities);
            if is_cut {
                blocks.insert(0, ContentBlock::text(LEFT_OUT));
            }
            check_capabilities(&blocks, &capabilities)?;
            let mut request = PromptRequest::new(session.remote(), blocks);
            if launch.send_message_id {
                request.message_id = Some(user.as_str().to_owned());
            }
            Ok(with_members(RawJson::of(&request), extra.as_ref(), launch.client_meta))
        };
        let request = newest_that_fit(missed, MAX_PROMPT_BYTES, request).map_err(Trouble::from)?;
        check_size(request.as_bytes().len()).map_err(Trouble::from)?;
        if session.may_tell() {
            let is_expected = !context.is_first().await.unwrap_or(false);
            tokio::select! {
                () = session.history_told(is_expected) => {}
                () = context.cancelled() => {}
            }
        }
        let mut guard = Guard::new(session);
        session.begin(context.clone(), user.clone()).await;
        let (answer, reach) = self.say(session, &request, context).await;
        guard.is_armed = false;
        self.conclude(session, answer, context, &user).await.map_err(|stumble| match reach {
            Reach::Unsaid => Stumble { reach, ..stumble },
            _ => stumble,
        })
    }

    /// Says the prompt, and waits for its answer. What the agent asks about it meanwhile is asked in its session.
    async fn say(
        &self,
        session: &Session,
        request: &RawJson,
        context: &RunContext,
    ) -> (Result<Answer, CallFailure>, Reach) {
        let process = session.process();
        let beginning = process.router().callers().begin();
        let begun = tokio::select! {
            biased;
            () = context.cancelled() => None,
            // An agent that takes nothing makes this wait.
            begun = process.peer().begin("session/prompt", request) => Some(begun),
        };
        match begun {
            None => (Ok(Answer::Unsaid), Reach::Unsaid),
            Some(Err(failed)) => (Err(failed), Reach::Unsaid),
            Some(Ok(call)) => {
                let by = Asked::Session(session.remote().to_owned());
                let _known = beginning.known(call.id(), by);
                (self.wait(session, call, context).await, Reach::Said)
            }
        }
    }

    /// Waits for the answer, and asks the agent to stop when the run is to.
    async fn wait(
        &self,
        session: &Session,
        call: Call,
        context: &RunContext,
    ) -> Result<Answer, CallFailure> {
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
            // It is said once more at half-time: an agent may have been too busy to hear it. Where it cannot be said, the answer tells.
            drop(peer.notify_now("session/cancel", &cancel));
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
        answer: Result<Answer, CallFailure>,
        context: &RunContext,
        user: &MessageId,
    ) -> Result<Ending, Stumble> {
        let answer = match answer {
            Ok(Answer::Ended(answer)) => {
                session.was_told();
                answer
            }
            Ok(Answer::Unsaid) => {
                session.finish(Finish::Broken).await;
                return Ok(Ending::Completed);
            }
            Ok(Answer::Abandoned) => {
                tracing::warn!(run = %context.run(), "an agent did not stop when it was asked to and is ended");
                abandon(session).await;
                session.finish(Finish::Broken).await;
                return Ok(Ending::Completed);
            }
            Err(failed) => {
                let finished = session.finish(Finish::Broken).await;
                let reach = if finished.was_at_work { Reach::Worked } else { Reach::Said };
                let (process, method) = (session.process(), "session/prompt");
                let trouble = process.trouble(failed).await.of(process.agent(), method);
                return Err(Stumble { trouble, reach });
            }
        };
        let read = read(&answer);
        let is_well = matches!(&read, Ok(read) if read.stop_reason != StopReason::Cancelled);
        let finished = session.finish(if is_well { Finish::Well } else { Finish::Broken }).await;
        if let Some(refused) = finished.refused {
            return Err(Trouble::from(refused).into());
        }
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
        process.kill().await;
    }
}

// === impl Stumble ===

impl From<Trouble> for Stumble {
    fn from(trouble: Trouble) -> Self {
        Self { trouble, reach: Reach::Worked }
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
        let cancel = json!({ "sessionId": session.remote() });
        // Whether it listens does not matter: it is ended.
        drop(session.process().peer().notify_now("session/cancel", &cancel));
        // Without a runtime the server goes down, and all processes with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let used = session.process().hold();
            drop(timeout(LAST_WORD, session.process().peer().flushed()).await);
            abandon(&session).await;
            session.finish(Finish::Broken).await;
            drop(used);
        });
    }
}

fn read(answer: &RawJson) -> Result<PromptResponse, Trouble> {
    let wrong = |why: String| {
        let message = format!("the agent's answer to the prompt does not fit: {why}");
        Trouble::ours(Code::AgentFailed, message)
    };
    let raw: &RawValue =
        serde_json::from_slice(answer.as_bytes()).map_err(|error| wrong(error.to_string()))?;
    read_result(raw, Rules::Lenient).map_err(|error| wrong(error.to_string()))
}

/// The message that the prompt is made of, and what its client's prompt carried beyond it.
fn user_message(input: &Input) -> (MessageId, Option<Json>) {
    let messages = match input {
        Input::Messages(messages) => messages.as_slice(),
        Input::Value(_) => &[],
    };
    let last = messages.iter().rev().find(|message| message.role.is_user());
    match last.or(messages.last()) {
        Some(message) => (message.id.clone(), extra_of_message(message)),
        None => (MessageId::generate(), None),
    }
}

/// Passes where an agent can take a prompt of so many bytes.
fn check_size(bytes: usize) -> Result<(), Error> {
    if bytes <= MAX_PROMPT_BYTES {
        return Ok(());
    }
    let message = format!(
        "the prompt has {bytes} bytes as the agent would be told it; it has at most {MAX_PROMPT_BYTES}"
    );
    Err(Error::new(Code::BodyTooLarge, message).hint(
        "say less at once, or give the address of what is large instead of its content; in base64 content is larger by a third",
    ))
}

/// The request with these members at its root too. What clients attach goes only to agents that get it.
pub(super) fn with_members(request: RawJson, extra: Option<&Json>, meta: ClientMeta) -> RawJson {
    let Some(extra) = extra else { return passed(request, meta) };
    let mut all = request.as_str().to_owned();
    for member in splice::members(extra.as_str()) {
        if let Some(more) = splice::set(&all, &[&member.key], member.value) {
            all = more;
        }
    }
    passed(RawJson::parse(all).unwrap_or(request), meta)
}
