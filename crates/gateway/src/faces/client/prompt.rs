//! Prompts: each becomes a run, and is answered when the client has been told the run's last event.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, MessageEvent};
use trilogue_domain::{
    Code, Input, Json, Message, MessageId, Outcome, Role, RunKey, Strategy, ThreadId,
};
use trilogue_mapping::agent_client as mapping;
use trilogue_mapping::native::hex;
use trilogue_runtime::{NewRun, Submitted, ThreadChoice, WhenHolding, WhenWaiting};
use trilogue_store::Range;
use trilogue_store::rows::RunRow;
use trilogue_wire::agent_client::{PromptRequest, check_prompt};
use trilogue_wire::jsonrpc::{self, ErrorObject, Id};
use uuid::Uuid;

use super::connection::answering;
use super::heard::Heard;
use super::in_words::InWords;
use super::lane::Lane;
use super::link::{Answer, InFlight, Link, Met};
use super::options::{MessageIdFormat, UserMessageId, WhenBusy};
use super::pump::Order;
use super::request::{Asked, read, session_error};
use super::session::{CLIENT, Cancelled, DIGEST, Ended, OpenPrompt, Session, config_of, scope_of};
use super::{cancel, open, option};
use crate::stream::feed::run_id;

/// How much of a run's log is read at once, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// How long a session that is closed waits for its turns to end.
const SETTLE_WITHIN: Duration = Duration::from_secs(60);

/// A prompt on its way to a run.
pub(super) struct Prompt<'a> {
    pub(super) link: &'a Arc<Link>,
    lane: &'a Lane,
    pub(super) session: Arc<Session>,
    pub(super) asked: &'a Asked,
    pub(super) request: PromptRequest,
    /// What makes it the same when it comes again.
    pub(super) digest: [u8; 32],
    /// What the prompt carries beyond its message, where its agent speaks the protocol too.
    extra: Option<Json>,
    /// Whether the client has ended it since it came.
    pub(super) since: Cancelled,
    /// What the client was asked when the prompt came.
    pub(super) heard: Heard,
}

/// What becomes of a message's id.
pub(super) struct Chosen {
    pub(super) message: MessageId,
    /// What the client is told.
    pub(super) told: Option<String>,
}

/// Takes a prompt behind everything that was asked of its session before.
pub(super) fn enqueue(
    link: &Arc<Link>,
    met: Arc<Met>,
    asked: Asked,
    params: String,
    session: &ThreadId,
    cancelled: CancellationToken,
) {
    let worker = Arc::clone(link);
    link.in_order(session, |lane| {
        let in_flight = InFlight::Prompt { lane: Arc::clone(lane), cancelled: cancelled.clone() };
        worker.rebind(&asked.id, in_flight);
        let heard = asked.heard.clone().unwrap_or_else(|| Heard::in_lane(&worker, lane));
        let since = Since { cancels: lane.cancels(), cancelled, heard };
        let lane = Arc::clone(lane);
        async move {
            let id = asked.id.clone();
            let work = prompt(&worker, &met, &lane, &asked, &params, since);
            answering(&worker, id, CancellationToken::new(), work).await;
        }
    });
}

/// What tells whether a prompt was cancelled since it came, or its client asked something.
struct Since {
    cancels: u64,
    cancelled: CancellationToken,
    heard: Heard,
}

async fn prompt(
    link: &Arc<Link>,
    met: &Met,
    lane: &Arc<Lane>,
    asked: &Asked,
    params: &str,
    Since { cancels, cancelled, heard }: Since,
) -> Option<Answer> {
    let request: PromptRequest = match read(link, params) {
        Ok(request) => request,
        Err(error) => return Some(Err(error)),
    };
    if let Err(violation) = check_prompt(&request.prompt, Some(&met.prompt)) {
        return Some(Err(violation.error()));
    }
    let session = match open::open(link, met, lane).await {
        Ok(session) => session,
        Err(error) => return Some(Err(error)),
    };
    option::start(link, &session).await;
    session.take_control();
    let opened = tokio::select! {
        opened = Box::pin(open::open_when_needed(link, met, &session)) => Some(opened),
        () = lane.cancelled_since(cancels) => None,
        () = cancelled.cancelled() => None,
    };
    // Its turn may have begun all the same, on a connection that has broken since.
    let was_cancelled = opened.is_none();
    // What was cancelled before it came has ended, so that the cancelling cannot mean this one.
    lane.when_cancelled(cancels).await;
    if let Some(Err(error)) = opened {
        return Some(Err(error));
    }
    let digest = Sha256::digest(params).into();
    let is_hosted = link.backend().is_ok_and(|backend| backend.sessions().is_some());
    let extra = if is_hosted { mapping::extra_of_prompt(params) } else { None };
    let since = Cancelled { lane: Arc::downgrade(lane), cancels, cancelled };
    let prompt = Prompt { link, lane, session, asked, request, digest, extra, since, heard };
    match prompt.take().await {
        Ok(answer) => answer,
        Err(_) if was_cancelled => Some(not_begun()),
        Err(error) => Some(Err(prompt.error(&error))),
    }
}

/// The answer to a prompt whose turn was ended before it began: nothing of it is recorded, its message's id neither.
pub(super) fn not_begun() -> Answer {
    mapping::prompt_result(&Outcome::Cancelled { reason: None }, None, None)
}

// === impl Prompt ===

impl Prompt<'_> {
    async fn take(&self) -> Result<Option<Answer>> {
        let mut new = self.new_run().await?;
        let _accepting = Accepting::begin(&self.session);
        // What was taken before is taken as that, whatever is asked by now.
        if let Some(known) = self.link.runtime().known(&self.link.principal, &new).await? {
            let message = first_message(self.link, &self.session, known.run.key).await?;
            return Box::pin(self.join(known.run, message)).await.map(|()| None);
        }
        let before = self.said_before().await?;
        if let Some(said) = &before
            && let Some(run) = self.answered_run(said).await?
        {
            return Box::pin(self.join(run, Some(said.message.clone()))).await.map(|()| None);
        }
        if let Some((run, message)) = self.same_before().await? {
            return Box::pin(self.join(run, Some(message))).await.map(|()| None);
        }
        if self.is_cancelled() {
            return Ok(Some(not_begun()));
        }
        let question = self.session.state().asked.clone();
        let mut is_late = false;
        if let Some(question) = question {
            match Box::pin(self.answer_in_words(&question, before)).await? {
                InWords::Taken(answer) => return Ok(answer),
                InWords::TooLate => is_late = true,
                InWords::Unasked => {}
            }
        }
        let chosen = match is_late {
            // Its own stands where it was to be the answer.
            true => Chosen { message: MessageId::generate(), told: None },
            false => self.choose_id().await?,
        };
        if self.is_cancelled() {
            return Ok(Some(not_begun()));
        }
        let message = self.message(chosen.message.clone());
        new.input = Input::Messages(vec![message]);
        self.session.state().mine.insert(chosen.message.clone());
        match self.link.runtime().submit_unknown(&self.link.principal, new).await {
            Ok(submitted) if submitted.created => {
                self.accepted(&submitted, chosen).await;
                Ok(None)
            }
            Ok(known) => {
                // It came on another connection in between.
                self.session.state().mine.remove(&chosen.message);
                let message = first_message(self.link, &self.session, known.run.key).await?;
                Box::pin(self.join(known.run, message)).await.map(|()| None)
            }
            Err(error) => {
                self.session.state().mine.remove(&chosen.message);
                Err(error)
            }
        }
    }

    /// Whether the client has ended the turn.
    pub(super) fn is_cancelled(&self) -> bool {
        self.since.is_so()
    }

    fn message(&self, id: MessageId) -> Message {
        let mut message = mapping::message_of_prompt(&self.request.prompt, id);
        if let Some(extra) = &self.extra {
            mapping::keep_extra(&mut message, extra);
        }
        message
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
    pub(super) async fn choose_id(&self) -> Result<Chosen> {
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
        let read = self.link.read();
        Ok(read.message_in(&self.session.thread, message).await?.is_some())
    }

    /// The run of a prompt with the same id and content, and its message, where the client may send one again.
    async fn same_before(&self) -> Result<Option<(RunRow, MessageId)>> {
        let given = self.request.given_message_id().filter(|_| self.link.options().dedupe);
        let Some(message) = given.and_then(|given| MessageId::parse(given).ok()) else {
            return Ok(None);
        };
        let (read, thread) = (self.link.read(), &self.session.thread);
        let found = read.message_in(thread, &message).await?;
        let Some(row) = found.filter(|row| row.role == Role::User) else { return Ok(None) };
        let Some(id) = run_id(read, thread, row.run).await? else { return Ok(None) };
        let Some(run) = read.run(&scope_of(thread), &id).await? else { return Ok(None) };
        let first = first_message(self.link, &self.session, run.key).await?;
        let is_same = if first.as_ref() == Some(&row.id) {
            let known = run.metadata.to_value().get(DIGEST).cloned();
            known.is_some_and(|known| known == self.content_digest().as_str())
        } else {
            self.is_answer(&row).await?
        };
        Ok(is_same.then_some((run, row.id)))
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
            since: self.since.clone(),
        };
        self.wait_for_end(open).await;
        if self.is_cancelled() {
            cancel::run(self.link, &run.id).await;
        }
        self.link.confirm(&self.asked.id).await;
    }

    /// A prompt that came again is answered with the turn that it began.
    async fn join(&self, run: RunRow, message: Option<MessageId>) -> Result<()> {
        let (thread, options) = (&self.session.thread, self.link.options());
        let given = self.request.given_message_id();
        let told = message.as_ref().map(|id| id.as_str().to_owned()).filter(|id| {
            match options.user_message_id {
                UserMessageId::Seed => given.is_none_or(|given| given == id),
                UserMessageId::Echo => given == Some(id.as_str()),
                UserMessageId::Off => false,
            }
        });
        let scope = scope_of(thread);
        let now = self.link.read().run(&scope, &run.id).await?.unwrap_or(run);
        let ended = match &now.outcome {
            Some(outcome) if now.status.is_terminal() => {
                let result = agents_result(self.link, &self.session, &now).await?;
                let last = *self.link.read().tail(thread.key).committed.borrow();
                Some((last, Ended { outcome: outcome.clone(), result }))
            }
            // The turn has ended with a question.
            _ if self.asks(&now).await? => {
                let last = *self.link.read().tail(thread.key).committed.borrow();
                Some((last, Ended { outcome: Outcome::Completed, result: None }))
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
            since: self.since.clone(),
        };
        self.wait_for_end(open).await;
        self.session.order(Order::Look).await;
        if self.is_cancelled() {
            cancel::run(self.link, &now.id).await;
        }
        self.link.confirm(&self.asked.id).await;
        Ok(())
    }

    /// Has the pump answer when the run has ended. Where it has passed that already, the answer is given here.
    pub(super) async fn wait_for_end(&self, open: OpenPrompt) {
        let ended = {
            let mut state = self.session.state();
            let ended = state.how_ended(&open);
            if ended.is_none() {
                state.prompts.push(open.clone());
            }
            ended.map(|ended| (ended, state.is_over))
        };
        if let Some((ended, is_over)) = ended {
            // What went with its thread is known nowhere.
            let told = open.user_message_id.as_deref().filter(|_| !is_over);
            let answer = open.answer(&ended, told);
            self.link.answer(&open.request, answer).await;
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
            state.removed.clear();
        }
    }
}

/// The id of the message that a run of this thread was prompted with.
async fn first_message(link: &Link, session: &Session, run: RunKey) -> Result<Option<MessageId>> {
    let range = Range { run: Some(run), after: 0, max_bytes: READ_BYTES };
    for frame in link.read().frames(&session.thread, range).await? {
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
    for frame in link.read().frames(&session.thread, range).await? {
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
