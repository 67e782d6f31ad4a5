//! One turn: prompts the agent in its session, and logs its updates until it responds.

mod background;
mod config;
mod priming;
mod rejoin;

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use trilogue_domain::error::Code;
use trilogue_domain::event::Original;
use trilogue_domain::{Body, Error, Failure, Input, Json, Message, MessageId};
use trilogue_mapping::agent_client::{
    HISTORY_CUT, check_capabilities, extra_of_message, fit, is_about_size, logged_result,
    oversize_notice, prompt_of_input,
};
use trilogue_mapping::fidelity::{FidelityLoss, lost_by_prompt};
use trilogue_runtime::{EmitError, Ending, NewestMessages, RunContext, Turn};
use trilogue_sdk::agent_client::peer::{Call, CallFailure, RawJson};
use trilogue_wire::agent_client::{
    ContentBlock, PromptRequest, PromptResponse, Rules, StopReason, read_result,
};
use trilogue_wire::jsonrpc::DEFAULT_MAX_LINE_BYTES;

use super::failure::AgentFailure;
use super::launch::Launch;
use super::meta::with_extra;
use super::opening::{LostSession, ReadySession, SessionOpener, not_opened};
use super::routing::{AnsweredTurn, CallOrigin, TurnEnd};
use super::session::Session;
use crate::loss::LossLog;
use priming::newest_that_fit;
use rejoin::LastingTurn;

/// How long an agent has to read the cancellation of a dropped run.
const CANCEL_FLUSH_TIME: Duration = Duration::from_millis(250);

/// The largest prompt, in bytes: many agents do not accept a longer line than the one with this prompt.
pub(super) const MAX_PROMPT_BYTES: usize = DEFAULT_MAX_LINE_BYTES - ENVELOPE_BYTES;
/// The bytes of a prompt's line in addition to the prompt.
const ENVELOPE_BYTES: usize = 1024;

struct PromptFailure {
    failure: AgentFailure,
    progress: Progress,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    NotSent,
    /// The agent has sent only the response.
    Sent,
    /// The agent has begun to work on it, or may have.
    Started,
}

enum PromptEnd {
    Answered(RawJson),
    /// The run was stopped before the prompt was sent.
    NotSent,
    /// The run was stopped, and the agent has not answered in time.
    Abandoned,
}

pub(super) async fn run_turn(
    opener: &Arc<SessionOpener>,
    turn: Turn,
    context: RunContext,
) -> Result<Ending, Failure> {
    let input = match turn {
        Turn::Start { input } => input,
        Turn::Rejoin { saved } => return rejoin::rejoin(opener, &saved, context).await,
        Turn::Resume { .. } => {
            return Err(Failure::of(Code::Internal, "an agent of this kind does not suspend"));
        }
    };
    if context.is_started_by_agent() {
        return background::run_background(opener, context).await;
    }
    let mut ready = tokio::select! {
        biased;
        ready = opener.ready(&context, None) => ready,
        () = context.cancelled() => return Ok(Ending::Completed),
    };
    let mut losses = LossLog::default();
    // Send a prompt once more if the agent has not begun to work on it: in a new session if its session is lost, after
    // authentication if the agent requires it, in another process if its process has exited.
    for is_last in [false, true] {
        let ReadySession { session, missed } = ready.map_err(AgentFailure::into_failure)?;
        if let Some(config) = context.config() {
            let unattended = &opener.launch().unattended;
            let configured = config::configure(&context, &session, config, unattended).await;
            configured.map_err(AgentFailure::into_failure)?;
        }
        let launch = opener.launch();
        let written = session.process().host().captured().position();
        let PromptFailure { failure, progress } =
            match prompt(&launch, &session, &input, &missed, &context, &mut losses).await {
                Ok(ending) => return Ok(ending),
                Err(failed) => failed,
            };
        let may_repeat = !is_last && !context.is_cancelled() && progress != Progress::Started;
        ready = if may_repeat && failure.is_lost_session(session.remote()) {
            let (remote, why) = (session.remote().to_owned(), failure.text());
            // The lease ends first: it keeps the session from being opened again.
            drop(session);
            opener.ready(&context, Some(LostSession { remote, why })).await
        } else if may_repeat && failure.is_authentication_required() {
            let done = opener.authenticate_for_run(&context, session.process(), failure).await;
            done.map(|()| ReadySession { session, missed })
        } else if may_repeat
            && progress == Progress::NotSent
            && matches!(failure, AgentFailure::Exited(_))
        {
            // The lease ends first: it keeps the session from being opened again.
            drop(session);
            opener.ready(&context, None).await
        } else if context.is_cancelled() && failure.is_refusal() {
            return Ok(Ending::Completed);
        } else {
            let process = session.process();
            return Err(process.diagnose(failure, written).await.into_failure());
        };
    }
    Err(not_opened().into_failure())
}

async fn prompt(
    launch: &Launch,
    session: &Arc<Session>,
    input: &Input,
    missed: &NewestMessages,
    context: &RunContext,
    losses: &mut LossLog,
) -> Result<Ending, PromptFailure> {
    let (user, extra) = user_message(input);
    let (request, is_cut) = prompt_request(launch, session, input, missed, &user, extra.as_ref())
        .map_err(AgentFailure::from)?;
    losses.log(lost_by_prompt(input, &missed.messages), context).await;
    losses.log(is_cut.then_some(FidelityLoss::HISTORY), context).await;
    if session.may_replay() {
        let is_expected = !context.is_first().await.unwrap_or(false);
        tokio::select! {
            () = session.wait_for_replay_end(is_expected) => {}
            () = context.cancelled() => {}
        }
    }
    session
        .check_workspace()
        .await
        .map_err(|error| PromptFailure { failure: error.into(), progress: Progress::NotSent })?;
    let mut guard = AbandonOnDrop::new(session, context);
    let lasting = rejoin::begin(session, context, &user).await;
    let (end, progress) = send(launch, session, &request, (context, lasting)).await;
    guard.is_armed = false;
    let concluded = conclude((launch.answer_settle, false), session, end, context, &user).await;
    // The output stays with the holder until the next turn: only then it is certain that the log has it.
    session.set_outlives(false);
    concluded.map_err(|failed| match progress {
        Progress::NotSent => PromptFailure { progress, ..failed },
        _ => failed,
    })
}

/// The prompt, and whether earlier messages were left out because they did not fit.
fn prompt_request(
    launch: &Launch,
    session: &Session,
    input: &Input,
    missed: &NewestMessages,
    user: &MessageId,
    extra: Option<&Json>,
) -> Result<(RawJson, bool), Error> {
    let has_cut = Cell::new(false);
    let capabilities = session.process().capabilities().prompt.clone().unwrap_or_default();
    let request = |missed: &[Message], is_cut: bool| {
        has_cut.set(is_cut);
        let prompt = prompt_of_input(input, missed, launch.citations());
        let mut blocks = fit(prompt, &capabilities);
        if is_cut {
            blocks.insert(0, ContentBlock::text(HISTORY_CUT));
        }
        check_capabilities(&blocks, &capabilities)?;
        let mut request = PromptRequest::new(session.remote(), blocks);
        if launch.send_message_id {
            request.message_id = Some(user.as_str().to_owned());
        }
        Ok(with_extra(RawJson::of(&request), extra, launch.client_meta))
    };
    let request = newest_that_fit(missed, MAX_PROMPT_BYTES, request)?;
    check_size(request.as_bytes().len())?;
    Ok((request, has_cut.get()))
}

/// Sends the prompt and waits for the response. The agent's questions about it belong to its session.
async fn send(
    launch: &Launch,
    session: &Session,
    request: &RawJson,
    (context, lasting): (&RunContext, Option<LastingTurn>),
) -> (Result<PromptEnd, CallFailure>, Progress) {
    let process = session.process();
    let unsent = process.router().calls().prepare();
    let begun = tokio::select! {
        biased;
        () = context.cancelled() => None,
        // This waits while the agent reads nothing.
        begun = process.peer().begin("session/prompt", request) => Some(begun),
    };
    match begun {
        None => (Ok(PromptEnd::NotSent), Progress::NotSent),
        Some(Err(failed)) => (Err(failed), Progress::NotSent),
        Some(Ok(call)) => {
            let origin = CallOrigin::Session(session.remote().to_owned());
            let _in_flight = unsent.register(call.id(), origin);
            if let Some(lasting) = lasting {
                lasting.keep(&call, (session, context));
            }
            let grace = launch.cancel_grace.unwrap_or(context.cancel_grace());
            let answered = tokio::select! {
                biased;
                answered = wait(grace, session, call, context) => answered,
                never = rejoin::store_kept(context) => match never {},
            };
            (answered, Progress::Sent)
        }
    }
}

/// Waits for the response, and cancels the prompt if the run is stopped.
async fn wait(
    grace: Duration,
    session: &Session,
    call: Call,
    context: &RunContext,
) -> Result<PromptEnd, CallFailure> {
    let peer = session.process().peer();
    let cancel = json!({ "sessionId": session.remote() });
    let mut call = pin!(call);
    tokio::select! {
        biased;
        answer = &mut call => return answer.map(PromptEnd::Answered),
        () = context.cancelled() => {}
    }
    let began = Instant::now();
    for until in [began + grace / 2, began + grace] {
        // Send it again at half-time: the agent may have been too busy to read it. If it cannot be sent, the call fails too.
        drop(peer.notify_now("session/cancel", &cancel));
        tokio::select! {
            biased;
            answer = &mut call => return answer.map(PromptEnd::Answered),
            () = sleep_until(until) => {}
        }
    }
    Ok(PromptEnd::Abandoned)
}

async fn conclude(
    (settle, has_result): (Duration, bool),
    session: &Arc<Session>,
    end: Result<PromptEnd, CallFailure>,
    context: &RunContext,
    user: &MessageId,
) -> Result<Ending, PromptFailure> {
    let answer = match end {
        Ok(PromptEnd::Answered(answer)) => {
            session.record_answered_prompt();
            answer
        }
        Ok(PromptEnd::NotSent) => {
            session.finish(TurnEnd::Broken).await;
            return Ok(Ending::Completed);
        }
        Ok(PromptEnd::Abandoned) => {
            tracing::warn!(run = %context.run(), "an agent did not stop in time and is killed");
            abandon(session).await;
            session.finish(TurnEnd::Broken).await;
            return Ok(Ending::Completed);
        }
        Err(failed) => {
            let summary = session.finish(TurnEnd::Broken).await;
            let progress = if summary.has_worked { Progress::Started } else { Progress::Sent };
            let (process, method) = (session.process(), "session/prompt");
            let failure = process.failure(failed).await.for_method(process.agent(), method);
            return Err(PromptFailure { failure, progress });
        }
    };
    let response = read_response(&answer);
    // Some agents answer a cancelled prompt as any other.
    let is_complete = !context.is_cancelled()
        && matches!(&response, Ok(response) if response.stop_reason != StopReason::Cancelled);
    let end = if is_complete { TurnEnd::Completed } else { TurnEnd::Broken };
    let AnsweredTurn { summary, idle } = session.record_answer(end).await;
    if summary.refused.is_some() || response.is_err() {
        let summary = session.finish(end).await;
        if let Some(refused) = summary.refused {
            return Err(AgentFailure::from(refused).into());
        }
    }
    if let Some(theirs) =
        response?.user_message_id.as_deref().and_then(|id| MessageId::parse(id).ok())
        && theirs != *user
    {
        context.alias(user, &theirs);
    }
    let logged = logged_result(answer.as_bytes());
    let is_logged = logged.is_some();
    if let Some((body, original)) = logged.filter(|_| !has_result) {
        log_result(context, body, original).await?;
    }
    if is_complete && is_logged && !settle.is_zero() {
        // From here on, the next run completes this one: then the rest of this function is not reached.
        context.set_answered();
        tokio::select! {
            biased;
            () = idle.cancelled() => {}
            () = context.late_output_over() => {}
            () = context.cancelled() => {}
            () = sleep(settle) => {}
        }
    }
    match session.finish(end).await.refused {
        Some(refused) => Err(AgentFailure::from(refused).into()),
        None => Ok(Ending::Completed),
    }
}

/// Logs the result of a prompt. A result that is too large leaves a gap; one that the run's rules or the store refuse fails the run.
async fn log_result(
    context: &RunContext,
    body: Body,
    original: Original,
) -> Result<(), AgentFailure> {
    let emitted = match context.emit(body, Some(original.clone())).await {
        Err(EmitError::Refused(error)) if is_about_size(&error) => {
            context.emit(oversize_notice(Some(&original)), None).await
        }
        emitted => emitted,
    };
    match emitted {
        Ok(()) | Err(EmitError::Stopped) => Ok(()),
        Err(EmitError::Refused(error)) => Err(error.into()),
    }
}

/// Kills the process of a session whose turn does not end. If others use the process, only the session is closed.
async fn abandon(session: &Arc<Session>) {
    session.set_broken();
    session.close();
    let process = Arc::clone(session.process());
    // The turn has one lease itself.
    if !process.has_leases_beyond(1) {
        process.kill().await;
    }
}

// === impl PromptFailure ===

impl From<AgentFailure> for PromptFailure {
    fn from(failure: AgentFailure) -> Self {
        Self { failure, progress: Progress::Started }
    }
}

/// Cancels and abandons the turn of a run that was dropped.
struct AbandonOnDrop {
    session: Arc<Session>,
    context: RunContext,
    is_armed: bool,
}

impl AbandonOnDrop {
    fn new(session: &Arc<Session>, context: &RunContext) -> Self {
        Self { session: Arc::clone(session), context: context.clone(), is_armed: true }
    }
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        let is_left = self.session.is_left_to_next_server(&self.context);
        if !self.is_armed || is_left {
            return;
        }
        let session = Arc::clone(&self.session);
        session.set_broken();
        let cancel = json!({ "sessionId": session.remote() });
        // Abandon it even if the agent does not read this.
        drop(session.process().peer().notify_now("session/cancel", &cancel));
        // Without a runtime, the server is exiting, and all processes exit with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let lease = session.process().lease();
            // An agent that does not read is abandoned all the same.
            drop(timeout(CANCEL_FLUSH_TIME, session.process().peer().wait_for_flush()).await);
            abandon(&session).await;
            session.finish(TurnEnd::Broken).await;
            // Held until here, so that the process does not count as idle before the session is finished.
            drop(lease);
        });
    }
}

fn read_response(answer: &RawJson) -> Result<PromptResponse, AgentFailure> {
    let invalid = |why: String| {
        let message = format!("the agent's answer to the prompt is invalid: {why}");
        AgentFailure::local(Code::AgentFailed, message)
    };
    let raw: &RawValue =
        serde_json::from_slice(answer.as_bytes()).map_err(|error| invalid(error.to_string()))?;
    read_result(raw, Rules::Lenient).map_err(|error| invalid(error.to_string()))
}

/// The id of the user's message, and the additional members of its client's prompt.
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

fn check_size(bytes: usize) -> Result<(), Error> {
    if bytes <= MAX_PROMPT_BYTES {
        return Ok(());
    }
    let message = format!(
        "the prompt for the agent has {bytes} bytes; at most {MAX_PROMPT_BYTES} are allowed"
    );
    Err(Error::new(Code::BodyTooLarge, message).hint(
        "send less at once, or send the address of large content instead; base64 makes content a third larger",
    ))
}
