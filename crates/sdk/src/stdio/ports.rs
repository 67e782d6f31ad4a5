//! The ports of a run over the connection to an editor.

use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use trilogue_domain::event::{RunEvent, StateEvent};
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::run::Outcome as RunOutcome;
use trilogue_domain::{
    Answer, Body, Event, Interrupt, Json, Message, MessageId, PrincipalId, Resolution, RunId,
    RunKey, SystemPrompt, Transcript, lock,
};
use trilogue_mapping::agent_client::{self as mapping, ClientQuestion, Gate, Updates};
use trilogue_wire::agent_client::{
    CreateElicitationResponse, ElicitationCancel, Read, RequestPermissionResponse, Rules,
    UpdateGate, read_checked, splice,
};
use trilogue_wire::jsonrpc::Code;

use super::connection::ClientInfo;
use super::session::StdioSession;
use crate::agent_client::peer::{CallFailure, RawJson};
use crate::error::AgentError;
use crate::port::{
    CallRefusal, CallTarget, Cancellation, ChildRuns, ClientCalls, Interrupts, Memory, Output,
    PortFuture,
};

/// The principal that answers the agent's questions.
const EDITOR: &str = "editor";
/// The key of the run in a log that is not stored.
const RUN: RunKey = RunKey(1);

#[derive(Debug)]
pub(super) struct StdioPorts {
    session: Arc<StdioSession>,
    client: Arc<ClientInfo>,
    /// The number of the run in its session.
    number: u64,
    run: RunId,
    cancelled: CancellationToken,
    output: Mutex<RunOutput>,
}

/// The output of the run, and the state of its conversion to session updates.
#[derive(Debug)]
struct RunOutput {
    /// The number of the last event.
    last: u64,
    updates: Updates,
    transcript: Transcript,
    /// The thread's state as the run set it last.
    values: Option<Json>,
    /// Whether the run has ended. It then takes no more events.
    is_over: bool,
}

pub(super) fn answer_resolution(answer: Answer, digest: String) -> Resolution {
    match PrincipalId::parse(EDITOR) {
        Ok(by) => Resolution::Answered { by, answer, digest, extra: None },
        Err(_) => Resolution::Cancelled,
    }
}

// === impl StdioPorts ===

impl StdioPorts {
    pub(super) fn new(
        session: Arc<StdioSession>,
        number: u64,
        run: RunId,
        cancelled: CancellationToken,
    ) -> Self {
        let client = session.connection.client();
        let output = RunOutput {
            last: 0,
            updates: Updates::new(&session.thread),
            transcript: Transcript::default(),
            values: None,
            is_over: false,
        };
        Self { session, client, number, run, cancelled, output: Mutex::new(output) }
    }

    /// Asks the editor's user, with the best method that the editor supports.
    pub(super) async fn resolve(&self, interrupt: &Interrupt) -> Resolution {
        let asking =
            mapping::client_question(interrupt, self.session.id(), &self.client.capabilities);
        let answer = async {
            match asking {
                ClientQuestion::Permission(params) => {
                    let response = self.request("session/request_permission", params).await;
                    let response = response.unwrap_or_else(RequestPermissionResponse::cancelled);
                    mapping::answer_of_permission(interrupt, &response)
                        .map(|answer| answer_resolution(answer, interrupt.payload.digest()))
                }
                ClientQuestion::Elicitation(params) => {
                    let response = self.request("elicitation/create", params).await;
                    let response = response.unwrap_or_else(|| {
                        CreateElicitationResponse::Cancel(ElicitationCancel::new())
                    });
                    mapping::answer_of_elicitation(interrupt, &response)
                        .map(|answer| answer_resolution(answer, interrupt.payload.digest()))
                }
                ClientQuestion::Text(text) => {
                    self.say(&text).await.ok()?;
                    self.session.ask_in_text(self.number, interrupt.clone()).await.ok()
                }
            }
        };
        let resolution = tokio::select! {
            biased;
            () = self.cancelled.cancelled() => None,
            resolution = answer => resolution,
        };
        resolution.unwrap_or_else(|| {
            // The user gave no answer, and the protocol has no other response for that, so the turn ends.
            self.cancelled.cancel();
            Resolution::Cancelled
        })
    }

    /// Shows how the run ended. Returns its messages and the state that it left.
    pub(super) fn finish(&self, outcome: &RunOutcome) -> (Vec<Message>, Option<Json>) {
        let ended = Body::Run(RunEvent::Ended(outcome.clone()));
        // If the editor has gone, the event is lost; nothing needs it.
        let _: Result<(), CallFailure> = self.show(&ended);
        let mut output = self.output();
        output.is_over = true;
        (std::mem::take(&mut output.transcript).into_messages(), output.values.take())
    }

    async fn request<T: Read>(&self, method: &str, params: Vec<u8>) -> Option<T> {
        let params = RawJson::parse(params).ok()?;
        let answer = self.session.peer.call(method, &params).await.ok()?;
        read_checked(answer.as_str(), Rules::Lenient).ok()
    }

    /// Sends the text of a question as an agent message.
    async fn say(&self, text: &str) -> Result<(), CallFailure> {
        self.session.peer.room().await?;
        let update = serde_json::json!({
            "sessionId": self.session.id(),
            "update": {
                "sessionUpdate": "agent_message_chunk",
                "content": { "type": "text", "text": text },
                "messageId": MessageId::generate().as_str(),
            },
        });
        self.session.peer.notify("session/update", &update).await
    }

    /// Converts an event to updates and sends them in order.
    fn show(&self, body: &Body) -> Result<(), CallFailure> {
        // The lock is held until all updates are pushed, so that events keep their order.
        let mut output = self.output();
        output.last += 1;
        let event = Event {
            number: output.last,
            run: Some(RUN),
            run_number: output.last,
            at: SystemClock.now(),
            body: body.clone(),
            original: None,
        };
        output.transcript.push(&event);
        let mut updates = Vec::new();
        output.updates.push(&event, Some(self.run.as_str()), &mut updates);
        for update in updates {
            let params = match update.gate {
                Gate::Plan | Gate::PlanById
                    if !UpdateGate::Plan.is_open(&self.client.capabilities) =>
                {
                    output.updates.merged_plan()
                }
                gate if self.shows(gate) => update.params,
                gate => match gate.reduction() {
                    Some(reduce) => reduce(&update.params),
                    None => continue,
                },
            };
            let Ok(params) = serde_json::from_slice::<&RawValue>(&params) else { continue };
            self.session.peer.push(&update.method, params)?;
        }
        Ok(())
    }

    /// Returns `true` if the editor can show updates with this gate.
    fn shows(&self, gate: Gate) -> bool {
        let client = &self.client.capabilities;
        let session = client.session.as_ref();
        match gate {
            Gate::Always | Gate::Opaque | Gate::Plan | Gate::Title => true,
            Gate::UserMessage | Gate::Visited | Gate::AgentCursors => false,
            Gate::Notices => UpdateGate::Notices.is_open(client),
            Gate::NoNotices => !UpdateGate::Notices.is_open(client),
            Gate::Compaction => UpdateGate::Compaction.is_open(client),
            Gate::PlanById => UpdateGate::Plan.is_open(client),
            Gate::Subagents | Gate::ToolSession => UpdateGate::Subagents.is_open(client),
            Gate::PromptSuggestions => UpdateGate::PromptSuggestions.is_open(client),
            Gate::BooleanConfig => session
                .and_then(|session| session.config_options.as_ref())
                .is_some_and(|options| options.boolean.is_some()),
        }
    }

    fn take(&self, body: &Body) -> Result<(), AgentError> {
        if self.output().is_over {
            return Err(AgentError::run_stopped());
        }
        if let Body::State(StateEvent::Values(values)) = body {
            self.output().values = Some(values.clone());
        }
        self.show(body).map_err(|_| AgentError::run_stopped())
    }

    fn output(&self) -> MutexGuard<'_, RunOutput> {
        lock(&self.output)
    }
}

impl Output for StdioPorts {
    fn try_emit(&self, body: &Body) -> Result<bool, AgentError> {
        match self.session.peer.has_room() {
            Ok(true) => self.take(body).map(|()| true),
            Ok(false) => Ok(false),
            Err(_) => Err(AgentError::run_stopped()),
        }
    }

    fn emit(&self, body: Body) -> PortFuture<'_, Result<(), AgentError>> {
        Box::pin(async move {
            self.session.peer.room().await.map_err(|_| AgentError::run_stopped())?;
            self.take(&body)
        })
    }

    /// Nothing is durable here, so there is nothing to wait for.
    fn commit(&self) -> PortFuture<'_, Result<(), AgentError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Interrupts for StdioPorts {
    fn ask(&self, interrupt: Interrupt) -> PortFuture<'_, Result<Resolution, AgentError>> {
        Box::pin(async move { Ok(self.resolve(&interrupt).await) })
    }
}

impl Memory for StdioPorts {
    fn history(&self) -> PortFuture<'_, Result<Vec<Message>, AgentError>> {
        let history = self.session.state().history.clone();
        Box::pin(std::future::ready(Ok(history)))
    }

    fn load_state(&self) -> PortFuture<'_, Result<Option<Json>, AgentError>> {
        let own = self.output().values.clone();
        let values = own.or_else(|| self.session.state().values.clone());
        Box::pin(std::future::ready(Ok(values)))
    }

    fn system_prompt(&self) -> PortFuture<'_, Result<Option<SystemPrompt>, AgentError>> {
        let prompt = self.session.state().system_prompt.clone();
        Box::pin(std::future::ready(Ok(prompt)))
    }
}

impl Cancellation for StdioPorts {
    fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    fn cancelled(&self) -> PortFuture<'_, ()> {
        Box::pin(self.cancelled.cancelled())
    }
}

/// The editor has launched only this agent, so it has no other agent to call.
impl ChildRuns for StdioPorts {}

impl ClientCalls for StdioPorts {
    fn call_target(&self) -> Option<CallTarget> {
        let capabilities = self.client.original.clone().unwrap_or_else(Json::empty_object);
        Some(CallTarget { dialect: Arc::from(CallTarget::EDITOR), version: 1, capabilities })
    }

    fn call(&self, method: &str, params: Json) -> PortFuture<'_, Result<Json, CallRefusal>> {
        let method = method.to_owned();
        Box::pin(async move {
            let params = splice::put_session(params.as_str(), self.session.id());
            let params = params.and_then(|params| RawJson::parse(params).ok());
            let params =
                params.ok_or_else(|| internal_refusal("the call's params are not an object"))?;
            match self.session.peer.call(&method, &params).await {
                Ok(answer) => Json::parse(answer.into_bytes())
                    .map_err(|error| internal_refusal(error.message())),
                Err(CallFailure::Refused(error)) => Err(CallRefusal {
                    code: error.code.0,
                    message: error.message,
                    data: error.data.and_then(|data| Json::parse(data.into_string()).ok()),
                }),
                Err(other) => Err(internal_refusal(&other.to_string())),
            }
        })
    }
}

fn internal_refusal(why: &str) -> CallRefusal {
    CallRefusal { code: Code::INTERNAL_ERROR.0, message: why.to_owned(), data: None }
}
