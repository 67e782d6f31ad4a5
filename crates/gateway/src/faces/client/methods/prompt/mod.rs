//! Prompts: each creates a run, or answers the question with which the last turn ended. The response follows the run's last event.
//!
//! If a client sends a prompt again, it joins the run of the first one: the idempotency row of its key names the run and the message, whether the message created the run or answered its question.

mod text_answer;

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::{
    Code, Input, Json, Message, MessageId, Outcome, Role, RunId, RunKey, Strategy, ThreadId,
};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::{RunRequest, Submitted, ThreadChoice, WhenHolding};
use trilogue_store::rows::RunRow;
use trilogue_wire::agent_client::{PromptRequest, check_prompt};
use trilogue_wire::jsonrpc::{self, ErrorObject};
use uuid::Uuid;

use self::text_answer::TextAnswer;
use super::super::asking::snapshot::QuestionSnapshot;
use super::super::connection::cancels::CancelMark;
use super::super::connection::command::PumpCommand;
use super::super::connection::queue::SessionQueue;
use super::super::connection::requests::CancelTarget;
use super::super::connection::session::{ClientSession, OpenPrompt, RunEnd};
use super::super::connection::{ClientConnection, Handshake};
use super::super::options::{MessageIdFormat, UserMessageId, WhenBusy};
use super::super::session::own_key;
use super::super::thread_metadata::{CLIENT, config_of};
use super::super::wire::lines::{DeferredResult, MethodResult};
use super::request::{IncomingRequest, read, respond_when_done, session_error};
use super::{cancel, open};
use crate::stream::log_reader::LogReader;

/// How often a prompt moves its thread to this node before it fails.
const MAX_TRIES: usize = 4;

/// A prompt that becomes a run or an answer.
struct Prompt<'a> {
    connection: &'a Arc<ClientConnection>,
    queue: &'a SessionQueue,
    session: Arc<ClientSession>,
    incoming: &'a IncomingRequest,
    request: PromptRequest,
    /// The key of the idempotency row.
    key: Option<String>,
    /// SHA-256 of the session and the content: a repeated prompt must have the same.
    digest: [u8; 32],
    /// Members beyond the message, for agents that speak this protocol.
    extra: Option<Json>,
    mark: CancelMark,
    /// The question that the client knew when it sent the prompt.
    snapshot: QuestionSnapshot,
}

/// The id of a prompt's message.
struct ChosenMessageId {
    message: MessageId,
    /// The id for the response.
    acknowledged: Option<String>,
}

/// Processes a prompt after everything that arrived for its session before.
pub(super) fn enqueue(
    connection: &Arc<ClientConnection>,
    handshake: Arc<Handshake>,
    incoming: IncomingRequest,
    session: &ThreadId,
    token: CancellationToken,
) {
    let worker = Arc::clone(connection);
    connection.queues.enqueue(session, |queue| {
        let target = CancelTarget::Prompt { queue: Arc::clone(queue), token: token.clone() };
        worker.requests.set_cancel_target(&incoming.id, target);
        let snapshot = incoming.snapshot.clone();
        let snapshot = snapshot.unwrap_or_else(|| QuestionSnapshot::of_queue(&worker, queue));
        let (mark, queue) = (queue.mark(token), Arc::clone(queue));
        async move {
            let id = incoming.id.clone();
            let work = prompt(&worker, &handshake, &queue, &incoming, mark, snapshot);
            let work = async { work.await.transpose() };
            respond_when_done(&worker, id, CancellationToken::new(), work).await;
        }
    });
}

async fn prompt(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    queue: &Arc<SessionQueue>,
    incoming: &IncomingRequest,
    mark: CancelMark,
    snapshot: QuestionSnapshot,
) -> DeferredResult {
    let params = incoming.params.as_str();
    let request: PromptRequest = read(connection, params)?;
    let checked = check_prompt(&request.prompt, Some(&handshake.prompt));
    checked.map_err(|violation| violation.error())?;
    let session = open::open(connection, handshake, queue).await?;
    open::begin_live(connection, &session).await;
    session.take_control();
    let opening = async {
        // An answer goes to the node of its question, so only a new turn moves the thread here.
        if session.state().question.is_none() {
            let brought = connection.take_over_thread(&session.thread).await;
            brought.map_err(|error| session_error(&error, &queue.id))?;
        }
        open::open_agent_session_if_needed(connection, handshake, &session).await
    };
    let opened = tokio::select! {
        opened = Box::pin(opening) => Some(opened),
        () = mark.cancels.requested_after(mark.count) => None,
        () = mark.token.cancelled() => None,
    };
    // Its turn may still exist from an earlier connection.
    let was_cancelled = opened.is_none();
    // Let earlier cancellations finish first, so that they cannot cancel this prompt's run.
    mark.cancels.finished(mark.count).await;
    opened.transpose()?;
    let prompt = Prompt {
        key: key_of(connection, incoming, &request),
        digest: digest_of(&queue.id, &request),
        extra: connection.is_hosted().then(|| mapping::extra_of_prompt(params)).flatten(),
        connection,
        queue,
        session,
        incoming,
        request,
        mark,
        snapshot,
    };
    match prompt.process().await {
        Ok(result) => result.transpose(),
        Err(_) if was_cancelled => cancelled_result().map(Some),
        Err(error) => Err(prompt.error(&error)),
    }
}

/// Returns the response to a prompt that was cancelled before its run was created. Nothing of it is stored.
pub(super) fn cancelled_result() -> MethodResult {
    mapping::prompt_result(&Outcome::Cancelled { reason: None }, None, None)
}

/// Returns the key of a prompt's idempotency row. Without a key from the client, a prompt that can be recognised by its message id gets a random one.
fn key_of(
    connection: &ClientConnection,
    incoming: &IncomingRequest,
    request: &PromptRequest,
) -> Option<String> {
    let is_recognised = connection.options().dedupe && request.message_id.is_some();
    let random = || is_recognised.then(|| Uuid::new_v4().to_string());
    let key = incoming.extras.key.clone().or_else(random)?;
    Some(own_key(connection.client.as_deref(), &key))
}

fn digest_of(session: &ThreadId, request: &PromptRequest) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(session.as_str());
    digest.update([0]);
    digest.update(serde_json::to_vec(&request.prompt).unwrap_or_default());
    digest.finalize().into()
}

// === impl Prompt ===

impl Prompt<'_> {
    async fn process(&self) -> Result<Option<MethodResult>> {
        let mut new = self.new_run().await?;
        // Begin before the run exists: it can end before `accept` registers the prompt.
        let _guard = AcceptGuard::begin(&self.session);
        // A repeated prompt joins its run, even if another question is open now.
        if let Some((run, message)) = self.repeated(&new).await? {
            return Box::pin(self.join(run, message)).await.map(|()| None);
        }
        if self.mark.is_cancelled() {
            return Ok(Some(cancelled_result()));
        }
        let question = self.session.state().question.clone();
        let mut is_late = false;
        if let Some(question) = question {
            match Box::pin(self.answer_question(&question, &new)).await? {
                TextAnswer::Done(result) => return Ok(result),
                TextAnswer::TooLate => is_late = true,
                TextAnswer::NotAsked => {}
            }
        }
        let chosen = match is_late {
            // The id was chosen for the answer, so the new message gets another one.
            true => ChosenMessageId { message: MessageId::generate(), acknowledged: None },
            false => self.choose_id().await?,
        };
        if self.mark.is_cancelled() {
            return Ok(Some(cancelled_result()));
        }
        let message = self.message(chosen.message.clone());
        new.input = Input::Messages(vec![message]);
        // Before the submission: the pump can reach the message before `submit` returns.
        self.session.state().own_messages.insert(chosen.message.clone());
        let submitted = self.submit(new).await;
        if !submitted.as_ref().is_ok_and(|submitted| submitted.created) {
            self.session.state().own_messages.remove(&chosen.message);
        }
        match submitted? {
            submitted if submitted.created => {
                self.accept(submitted.run.key, &submitted.run.id, chosen).await;
                Ok(None)
            }
            // The same prompt arrived on another connection meanwhile.
            known => Box::pin(self.join(known.run, known.message)).await.map(|()| None),
        }
    }

    /// Submits the run. Retries because another node may have requested the thread since it moved here.
    async fn submit(&self, new: RunRequest) -> Result<Submitted> {
        let (connection, mut tries) = (self.connection, 0);
        loop {
            tries += 1;
            let submitted = connection
                .runtime()
                .submit_skipping_key_lookup(&connection.principal, new.clone())
                .await;
            match submitted {
                Err(error) if error.other_node().is_some() && tries < MAX_TRIES => {
                    connection.take_over_thread(&self.session.thread).await?;
                }
                submitted => return submitted,
            }
        }
    }

    fn message(&self, id: MessageId) -> Message {
        let mut message = mapping::message_of_prompt(&self.request.prompt, id);
        if let Some(extra) = &self.extra {
            mapping::keep_extra(&mut message, extra);
        }
        message
    }

    async fn new_run(&self) -> Result<RunRequest> {
        let row = self.connection.thread(self.session.id()).await?;
        let metadata = self
            .connection
            .client
            .as_ref()
            .map(|client| Json::from_value(&serde_json::json!({ CLIENT: client })));
        Ok(RunRequest {
            config: config_of(&row),
            metadata,
            strategy: match self.connection.options().when_busy {
                WhenBusy::Queue => Strategy::Enqueue,
                WhenBusy::Reject => Strategy::Reject,
                WhenBusy::Interrupt => Strategy::Interrupt,
            },
            when_holding: WhenHolding::Strategy,
            idempotency: self.key.clone().map(|key| (key, self.digest)),
            provenance: self.request.meta.as_ref().and_then(|meta| {
                trilogue_mapping::provenance::provenance(meta.traceparent().as_deref(), None)
            }),
            token: self.connection.origin.token().cloned(),
            source: self.connection.origin.source(),
            folders: self.connection.opened_folders(),
            ..RunRequest::new(
                self.connection.agent.clone(),
                ThreadChoice::Existing(row.id.clone()),
                Input::Messages(Vec::new()),
            )
        })
    }

    /// Returns the run and the message of the same prompt, if the client has sent it before.
    async fn repeated(&self, new: &RunRequest) -> Result<Option<(RunRow, Option<MessageId>)>> {
        let (connection, thread) = (self.connection, &self.session.thread);
        if self.incoming.extras.key.is_some()
            && let Some(known) =
                connection.runtime().find_by_idempotency_key(&connection.principal, new).await?
        {
            let Submitted { run, message, .. } = known;
            return Ok(Some((run, message)));
        }
        let given = self.request.message_id.as_deref().filter(|_| connection.options().dedupe);
        let Some(given) = given.and_then(|given| MessageId::parse(given).ok()) else {
            return Ok(None);
        };
        let found = connection.read().message_in(thread.key, &given).await?;
        let Some(row) = found.filter(|row| row.role == Role::User) else { return Ok(None) };
        let Some(run) = self.session.run_id(connection.read(), row.run).await? else {
            return Ok(None);
        };
        let keys = connection.runtime().keys_of(thread.key, &run).await?;
        let is_same = keys
            .iter()
            .any(|key| key.message.as_ref() == Some(&row.id) && key.request == self.digest);
        if !is_same {
            return Ok(None);
        }
        let run = connection.read().run(&self.session.scope(), &run).await?;
        Ok(run.map(|run| (run, Some(row.id))))
    }

    /// Chooses the message's id, and whether the response acknowledges it.
    async fn choose_id(&self) -> Result<ChosenMessageId> {
        let options = self.connection.options();
        let given = self.request.message_id.as_deref();
        let is_acknowledged = match options.user_message_id {
            UserMessageId::Seed => true,
            UserMessageId::Echo => given.is_some(),
            UserMessageId::Off => false,
        };
        let Some(given) = given else {
            let message = MessageId::generate();
            let acknowledged = is_acknowledged.then(|| message.as_str().to_owned());
            return Ok(ChosenMessageId { message, acknowledged });
        };
        let has_format = match options.message_id_format {
            MessageIdFormat::Any => true,
            MessageIdFormat::Uuid => given.len() == 36 && Uuid::try_parse(given).is_ok(),
        };
        match MessageId::parse(given) {
            Ok(message) if has_format && !self.is_used(&message).await? => {
                let acknowledged = is_acknowledged.then(|| given.to_owned());
                Ok(ChosenMessageId { message, acknowledged })
            }
            // An id that cannot be stored is not acknowledged.
            _ => Ok(ChosenMessageId { message: MessageId::generate(), acknowledged: None }),
        }
    }

    async fn is_used(&self, message: &MessageId) -> Result<bool> {
        let found = self.connection.read().message_in(self.session.thread.key, message).await?;
        Ok(found.is_some())
    }

    /// Registers a stored prompt: the end of its run answers it.
    async fn accept(&self, key: RunKey, run: &RunId, chosen: ChosenMessageId) {
        tracing::debug!(
            %run,
            thread = %self.session.thread.id,
            message_id = %chosen.message,
            client_message_id = ?self.request.message_id,
            "prompt accepted"
        );
        let open = OpenPrompt {
            request: self.incoming.id.clone(),
            run: key,
            run_id: run.clone(),
            user_message_id: chosen.acknowledged,
            message: Some(chosen.message),
            ended_at: None,
            mark: self.mark.clone(),
        };
        self.wait_for_end(open).await;
        // After the registration: a concurrent cancellation finds the prompt, or `confirm` sees the cancellation.
        self.confirm(run).await;
    }

    /// Joins the run of the same prompt: its end answers this prompt too.
    async fn join(&self, run: RunRow, message: Option<MessageId>) -> Result<()> {
        let (thread, options) = (&self.session.thread, self.connection.options());
        let given = self.request.message_id.as_deref();
        let acknowledged = message.as_ref().map(|id| id.as_str().to_owned()).filter(|id| {
            match options.user_message_id {
                UserMessageId::Seed => given.is_none_or(|given| given == id),
                UserMessageId::Echo => given == Some(id.as_str()),
                UserMessageId::Off => false,
            }
        });
        let scope = self.session.scope();
        let now = self.connection.read().run(&scope, &run.id).await?.unwrap_or(run);
        let end = match &now.outcome {
            Some(outcome) if now.status.is_terminal() => {
                let result = self.agent_result(&now).await?;
                Some(RunEnd { outcome: outcome.clone(), result })
            }
            _ if self.waits_for_text(&now).await? => Some(RunEnd::of_text_question()),
            _ => None,
        };
        let ended_at = match end {
            Some(end) => Some((self.connection.last_event(thread).await?, end)),
            None => None,
        };
        let open = OpenPrompt {
            request: self.incoming.id.clone(),
            run: now.key,
            run_id: now.id.clone(),
            user_message_id: acknowledged,
            message,
            ended_at,
            mark: self.mark.clone(),
        };
        self.wait_for_end(open).await;
        // The pump may have passed the end already, and wakes only for a new event or a command.
        self.session.command(PumpCommand::AnswerEnded).await;
        self.confirm(&now.id).await;
        Ok(())
    }

    /// Cancels the run if the client has cancelled the prompt meanwhile. Tells the proxy that the prompt is stored.
    async fn confirm(&self, run: &RunId) {
        if self.mark.is_cancelled() {
            let _was_open: bool = cancel::cancel_run(self.connection, run).await;
        }
        self.connection.confirm_prompt(&self.incoming.id).await;
    }

    /// Leaves the response to the pump. Responds here if the pump has already passed the end.
    async fn wait_for_end(&self, open: OpenPrompt) {
        let ended = {
            let mut state = self.session.state();
            // One lock for check and registration, so that the pump cannot pass the end in between.
            let ended = state.run_end(&open);
            if ended.is_none() {
                state.prompts.push(open.clone());
            }
            ended.map(|ended| (ended, state.is_over))
        };
        if let Some((ended, is_over)) = ended {
            // Do not acknowledge the id of a message whose thread was removed.
            let id = open.user_message_id.as_deref().filter(|_| !is_over);
            self.connection.respond(&open.request, open.result(&ended, id)).await;
        }
    }

    /// Returns a hosted agent's own response to the prompt of a run that has ended.
    async fn agent_result(&self, run: &RunRow) -> Result<Option<String>> {
        /// The response is one of this many events at the end of a run.
        const LAST_EVENTS: u64 = 16;
        let after = run.last_run_number.saturating_sub(LAST_EVENTS);
        let read = self.connection.read().as_ref();
        let mut log = LogReader::new(read, run.thread, Some(run.key)).after(after);
        while let Some(page) = log.next().await? {
            for event in page.events()? {
                if let Some(original) = &event.original
                    && &*original.dialect == mapping::RESULT
                {
                    return Ok(std::str::from_utf8(&original.bytes).ok().map(str::to_owned));
                }
            }
        }
        Ok(None)
    }

    fn error(&self, error: &trilogue_domain::Error) -> ErrorObject {
        let mut object = session_error(error, &self.queue.id);
        if matches!(error.code(), Code::ThreadBusy | Code::ThreadWaiting) {
            object.code = jsonrpc::Code::INVALID_REQUEST;
        }
        object
    }
}

/// While it exists, the session remembers run ends for the prompt that is being accepted.
struct AcceptGuard(Arc<ClientSession>);

// === impl AcceptGuard ===

impl AcceptGuard {
    fn begin(session: &Arc<ClientSession>) -> Self {
        session.state().accepting += 1;
        Self(Arc::clone(session))
    }
}

impl Drop for AcceptGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.accepting -= 1;
        if state.accepting == 0 {
            state.ended.clear();
            state.removed.clear();
        }
    }
}
