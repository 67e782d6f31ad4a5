//! Prompts: each becomes a run, and is answered when the client has been told the run's last event.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, MessageEvent};
use trilogue_domain::{
    Code, Input, Interrupt, Json, MessageId, Outcome, Role, RunKey, Strategy, ThreadId,
};
use trilogue_mapping::agent_client as mapping;
use trilogue_mapping::native::hex;
use trilogue_runtime::{AnswerTo, NewRun, Submitted, ThreadChoice, WhenHolding, WhenWaiting};
use trilogue_store::Range;
use trilogue_store::rows::RunRow;
use trilogue_wire::agent_client::{PromptRequest, check_prompt};
use trilogue_wire::jsonrpc::{self, ErrorObject, Id};
use uuid::Uuid;

use super::connection::answering;
use super::lane::Lane;
use super::link::{Answer, InFlight, Link, Met};
use super::options::{MessageIdFormat, UserMessageId, WhenBusy};
use super::pump::Order;
use super::request::{Asked, invalid_params, read, session_error};
use super::session::{CLIENT, DIGEST, Ended, OpenPrompt, Session, config_of, scope_of};
use super::{cancel, open, option};
use crate::stream::feed::run_id;

/// How much of a run's log is read at once, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// How long a session that is closed waits for its turns to end.
const SETTLE_WITHIN: Duration = Duration::from_secs(60);

/// A prompt on its way to a run.
struct Prompt<'a> {
    link: &'a Arc<Link>,
    lane: &'a Arc<Lane>,
    session: Arc<Session>,
    asked: &'a Asked,
    request: PromptRequest,
    /// What makes it the same when it comes again.
    digest: [u8; 32],
    /// How often the session's work had been cancelled when the prompt came.
    cancels: u64,
}

/// What becomes of a message's id.
struct Chosen {
    message: MessageId,
    /// What the client is told.
    told: Option<String>,
}

/// Takes a prompt behind everything that was asked of its session before.
pub(super) fn enqueue(
    link: &Arc<Link>,
    met: Arc<Met>,
    asked: Asked,
    params: String,
    session: &ThreadId,
) {
    let worker = Arc::clone(link);
    link.in_order(session, |lane| {
        worker.rebind(&asked.id, InFlight::Prompt(Arc::clone(lane)));
        let (lane, cancels) = (Arc::clone(lane), lane.cancels());
        async move {
            let id = asked.id.clone();
            let work = prompt(&worker, &met, &lane, &asked, &params, cancels);
            answering(&worker, id, CancellationToken::new(), work).await;
        }
    });
}

async fn prompt(
    link: &Arc<Link>,
    met: &Met,
    lane: &Arc<Lane>,
    asked: &Asked,
    params: &str,
    cancels: u64,
) -> Option<Answer> {
    let request: PromptRequest = match read(link, params) {
        Ok(request) => request,
        Err(error) => return Some(Err(error)),
    };
    if let Err(violation) = check_prompt(&request.prompt, Some(&met.prompt)) {
        return Some(Err(violation.error()));
    }
    let session = match open::open(link, met, lane, None).await {
        Ok(session) => session,
        Err(error) => return Some(Err(error)),
    };
    option::start(link, &session).await;
    session.take_control();
    let opened = tokio::select! {
        opened = open::open_when_needed(link, &session) => opened,
        () = lane.cancelled_since(cancels) => return Some(cancelled()),
    };
    if let Err(error) = opened {
        return Some(Err(error));
    }
    let digest = Sha256::digest(params).into();
    let prompt = Prompt { link, lane, session, asked, request, digest, cancels };
    match prompt.take().await {
        Ok(answer) => answer,
        Err(error) => Some(Err(prompt.error(&error))),
    }
}

/// The answer to a prompt whose turn was ended before it began.
fn cancelled() -> Answer {
    mapping::prompt_result(&Outcome::Cancelled { reason: None }, None, None)
}

// === impl Prompt ===

impl Prompt<'_> {
    async fn take(&self) -> Result<Option<Answer>> {
        let question = self.session.state().asked.clone();
        if let Some(question) = question
            && let Some(answer) = self.answer_in_words(&question).await?
        {
            return Ok(answer);
        }
        let mut new = self.new_run().await?;
        let _accepting = Accepting::begin(&self.session);
        if let Some(known) = self.link.runtime().known(&self.link.principal, &new).await? {
            return self.join(known.run).await.map(|()| None);
        }
        if let Some(run) = self.same_before().await? {
            return self.join(run).await.map(|()| None);
        }
        if self.lane.cancels() != self.cancels {
            return Ok(Some(cancelled()));
        }
        let chosen = self.choose_id().await?;
        let message = mapping::message_of_prompt(&self.request.prompt, chosen.message.clone());
        new.input = Input::Messages(vec![message]);
        self.session.state().mine.insert(chosen.message.clone());
        match self.link.runtime().submit(&self.link.principal, new).await {
            Ok(submitted) => {
                self.accepted(&submitted, chosen).await;
                Ok(None)
            }
            Err(error) => {
                self.session.state().mine.remove(&chosen.message);
                Err(error)
            }
        }
    }

    async fn new_run(&self) -> Result<NewRun> {
        let (link, options) = (self.link, self.link.options());
        let row = self.session.row(link).await?;
        let mut metadata = serde_json::Map::new();
        if let Some(client) = &link.client {
            metadata.insert(CLIENT.to_owned(), client.as_str().into());
        }
        if options.dedupe && self.request.given_message_id().is_some() {
            metadata.insert(DIGEST.to_owned(), self.content_digest().into());
        }
        let metadata =
            (!metadata.is_empty()).then(|| Json::from_value(&serde_json::Value::Object(metadata)));
        Ok(NewRun {
            agent: link.agent.clone(),
            thread: ThreadChoice::Existing(row.id.clone()),
            id: None,
            input: Input::Messages(Vec::new()),
            config: config_of(&row),
            metadata,
            strategy: match options.when_busy {
                WhenBusy::Queue => Strategy::Enqueue,
                WhenBusy::Reject => Strategy::Reject,
                WhenBusy::Interrupt => Strategy::Interrupt,
            },
            when_waiting: WhenWaiting::Start,
            when_holding: WhenHolding::Strategy,
            idempotency: self.asked.extras.key.clone().map(|key| (key, self.digest)),
            not_before: None,
            rules: None,
            callback: None,
            request: None,
            synchronous: false,
        })
    }

    /// What makes this prompt the same as one before.
    fn content_digest(&self) -> String {
        hex(&Sha256::digest(serde_json::to_vec(&self.request.prompt).unwrap_or_default()))
    }

    /// Which id the message gets, and what the client is told of it.
    async fn choose_id(&self) -> Result<Chosen> {
        let options = self.link.options();
        let given = self.request.given_message_id();
        let is_told = match options.user_message_id {
            UserMessageId::Seed => true,
            UserMessageId::Echo => given.is_some(),
            UserMessageId::Off => false,
        };
        let Some(given) = given else {
            let message = MessageId::generate();
            let told = is_told.then(|| message.as_str().to_owned());
            return Ok(Chosen { message, told });
        };
        let fits = match options.message_id_format {
            MessageIdFormat::Any => true,
            MessageIdFormat::Uuid => given.len() == 36 && Uuid::try_parse(given).is_ok(),
        };
        match MessageId::parse(given) {
            Ok(message) if fits && !self.is_used(&message).await? => {
                let told = is_told.then(|| given.to_owned());
                Ok(Chosen { message, told })
            }
            // An id that cannot be kept is not acknowledged.
            _ => Ok(Chosen { message: MessageId::generate(), told: None }),
        }
    }

    async fn is_used(&self, message: &MessageId) -> Result<bool> {
        let read = self.link.shared.read();
        Ok(read.message_in(&self.session.thread, message).await?.is_some())
    }

    /// The run of a prompt with the same id and content, where the client may send one again.
    async fn same_before(&self) -> Result<Option<RunRow>> {
        let given = self.request.given_message_id().filter(|_| self.link.options().dedupe);
        let Some(message) = given.and_then(|given| MessageId::parse(given).ok()) else {
            return Ok(None);
        };
        let (read, thread) = (self.link.shared.read(), &self.session.thread);
        let found = read.message_in(thread, &message).await?;
        let Some(row) = found.filter(|row| row.role == Role::User) else { return Ok(None) };
        let Some(id) = run_id(read, thread, row.run).await? else { return Ok(None) };
        let run = read.run(&scope_of(thread), &id).await?;
        let digest = self.content_digest();
        Ok(run.filter(|run| {
            run.metadata.to_value().get(DIGEST).is_some_and(|known| known == digest.as_str())
        }))
    }

    /// The run is there: its end answers the prompt.
    async fn accepted(&self, submitted: &Submitted, chosen: Chosen) {
        let run = &submitted.run;
        tracing::debug!(
            run = %run.id, thread = %run.thread_id, message_id = %chosen.message,
            "a turn of an agent's client begins"
        );
        let open = OpenPrompt {
            request: self.asked.id.clone(),
            run: run.key,
            run_id: run.id.clone(),
            user_message_id: chosen.told,
            message: Some(chosen.message),
            ended_at: None,
        };
        self.wait_for_end(open).await;
        if self.lane.cancels() != self.cancels {
            cancel::run(self.link, run).await;
        }
    }

    /// A prompt that came again is answered with the turn that it began.
    async fn join(&self, run: RunRow) -> Result<()> {
        let (thread, options) = (&self.session.thread, self.link.options());
        let message = first_message(self.link, &self.session, run.key).await?;
        let given = self.request.given_message_id();
        let told = message.as_ref().map(|id| id.as_str().to_owned()).filter(|id| {
            match options.user_message_id {
                UserMessageId::Seed => given.is_none_or(|given| given == id),
                UserMessageId::Echo => given == Some(id.as_str()),
                UserMessageId::Off => false,
            }
        });
        let scope = scope_of(thread);
        let now = self.link.shared.read().run(&scope, &run.id).await?.unwrap_or(run);
        let ended = match &now.outcome {
            Some(outcome) if now.status.is_terminal() => {
                let result = agents_result(self.link, &self.session, &now).await?;
                let last = *self.link.shared.read().tail(thread.key).committed.borrow();
                Some((last, Ended { outcome: outcome.clone(), result }))
            }
            _ => None,
        };
        let open = OpenPrompt {
            request: self.asked.id.clone(),
            run: now.key,
            run_id: now.id.clone(),
            user_message_id: told,
            message,
            ended_at: ended,
        };
        self.wait_for_end(open).await;
        self.session.order(Order::Look).await;
        Ok(())
    }

    /// Has the pump answer when the run has ended. Where it has passed that already, the answer is given here.
    async fn wait_for_end(&self, open: OpenPrompt) {
        let ended = {
            let mut state = self.session.state();
            let ended = state.ended.get(&open.run).cloned();
            if ended.is_none() {
                state.prompts.push(open.clone());
            }
            ended
        };
        if let Some(ended) = ended {
            let told = open.user_message_id.as_deref();
            let answer = mapping::prompt_result(&ended.outcome, ended.result.as_deref(), told);
            self.link.answer(&open.request, answer).await;
        }
    }

    /// Takes the prompt as the answer to the question that the last turn ended with. `None` where nobody waits for it any more.
    async fn answer_in_words(&self, question: &Interrupt) -> Result<Option<Option<Answer>>> {
        let link = self.link;
        let scope = scope_of(&self.session.thread);
        let row = link.shared.read().interrupt(&scope, &question.id).await?;
        let Some(row) = row.filter(|row| row.resolution.is_none()) else {
            self.session.state().asked = None;
            return Ok(None);
        };
        let message = mapping::message_of_prompt(&self.request.prompt, MessageId::generate());
        let Some(answer) = mapping::answer_of_prompt(question, &message) else {
            let error = invalid_params("/prompt", "does not answer what the agent asks");
            return Ok(Some(Some(Err(error))));
        };
        let _accepting = Accepting::begin(&self.session);
        self.session.state().answered.insert(question.id.clone());
        let to = AnswerTo::Interrupt(question.id.clone());
        match link.runtime().answer(&link.principal, to, answer).await {
            Ok(_) => {
                self.session.state().asked.take_if(|asked| asked.id == question.id);
                let open = OpenPrompt {
                    request: self.asked.id.clone(),
                    run: row.run,
                    run_id: row.run_id,
                    user_message_id: None,
                    message: None,
                    ended_at: None,
                };
                self.wait_for_end(open).await;
                Ok(Some(None))
            }
            Err(error) => {
                self.session.state().answered.remove(&question.id);
                match error.code() {
                    Code::InterruptResolved | Code::InterruptNotFound => Ok(None),
                    _ => Err(error),
                }
            }
        }
    }

    fn error(&self, error: &trilogue_domain::Error) -> ErrorObject {
        let mut object = session_error(error, &self.lane.id);
        if matches!(error.code(), Code::ThreadBusy | Code::ThreadWaiting) {
            object.code = jsonrpc::Code::INVALID_REQUEST;
        }
        object
    }
}

/// Has what ends be remembered while a prompt is being accepted.
struct Accepting(Arc<Session>);

// === impl Accepting ===

impl Accepting {
    fn begin(session: &Arc<Session>) -> Self {
        session.state().accepting += 1;
        Self(Arc::clone(session))
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.accepting -= 1;
        if state.accepting == 0 {
            state.ended.clear();
        }
    }
}

/// The id of the message that a run of this thread was prompted with.
async fn first_message(link: &Link, session: &Session, run: RunKey) -> Result<Option<MessageId>> {
    let range = Range { run: Some(run), after: 0, max_bytes: READ_BYTES };
    for frame in link.shared.read().frames(&session.thread, range).await? {
        for event in frame.events()? {
            if let Body::Message(MessageEvent::Started { message, role: Role::User, .. }) =
                &event.body
            {
                return Ok(Some(message.clone()));
            }
        }
    }
    Ok(None)
}

/// What a hosted agent answered to the prompt of a run that has ended.
async fn agents_result(link: &Link, session: &Session, run: &RunRow) -> Result<Option<String>> {
    /// It stands among this many events at the end of a run.
    const LAST: u64 = 16;
    let after = run.last_run_number.saturating_sub(LAST);
    let range = Range { run: Some(run.key), after, max_bytes: READ_BYTES };
    for frame in link.shared.read().frames(&session.thread, range).await? {
        for event in frame.events()? {
            if let Some(original) = &event.original
                && &*original.dialect == mapping::RESULT
            {
                return Ok(std::str::from_utf8(&original.bytes).ok().map(str::to_owned));
            }
        }
    }
    Ok(None)
}

/// Waits until every prompt of the session is answered, and the answers are on their way.
pub(super) async fn settled(session: &Session) {
    let waiting = async {
        loop {
            let settled = session.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if session.state().prompts.is_empty() {
                return;
            }
            settled.await;
        }
    };
    // What does not end in time is answered when it does, as far as the session is shown.
    drop(tokio::time::timeout(SETTLE_WITHIN, waiting).await);
    let (sender, passed) = oneshot::channel();
    session.order(Order::Pass(sender)).await;
    drop(passed.await);
}

/// The session is gone: its prompts are answered as cancelled.
pub(super) async fn gone(link: &Link, session: &Session) {
    let prompts = std::mem::take(&mut session.state().prompts);
    for prompt in prompts {
        let outcome = Outcome::Cancelled { reason: None };
        let told = prompt.user_message_id.as_deref();
        let request: Id<'static> = prompt.request;
        link.answer(&request, mapping::prompt_result(&outcome, None, told)).await;
    }
}
