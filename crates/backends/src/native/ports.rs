//! The ports of the SDK's context, over the runtime's context.

use std::sync::{Arc, OnceLock};

use trilogue_domain::{Body, Error, Interrupt, Json, Message, Resolution, SystemPrompt};
use trilogue_mapping::agent_client::{system_prompt_in, title_of};
use trilogue_runtime::{CallError, EmitError, RunContext, Stopped};
use trilogue_sdk::AgentError;
use trilogue_sdk::port::{
    CallRefusal, CallTarget, Cancellation, ClientCalls, Interrupts, Memory, Output, PortFuture,
};

use super::rules;
use super::schemas::Schemas;
use crate::permission::{RuleDecision, Rules};

/// All ports of a run.
///
/// They enforce the agent's card: after the first event that does not fit they refuse everything, and the run fails with that violation.
#[derive(Debug)]
pub(super) struct Ports {
    context: RunContext,
    schemas: Arc<Schemas>,
    rules: Arc<Rules>,
    violation: OnceLock<AgentError>,
}

// === impl Ports ===

impl Ports {
    pub(super) fn new(context: RunContext, schemas: Arc<Schemas>, rules: Arc<Rules>) -> Self {
        Self { context, schemas, rules, violation: OnceLock::new() }
    }

    pub(super) fn run_context(&self) -> &RunContext {
        &self.context
    }

    /// Fails with the first violation, if there was one.
    pub(super) fn check_intact(&self) -> Result<(), AgentError> {
        self.violation.get().map_or(Ok(()), |violation| Err(violation.clone()))
    }

    pub(super) fn check_interrupt(&self, interrupt: &mut Interrupt) -> Result<(), AgentError> {
        self.check_intact()?;
        self.schemas.check_interrupt(interrupt).map_err(|error| self.record_violation(error))
    }

    /// The decision of a permission rule, which is logged.
    pub(super) async fn decide(
        &self,
        question: &Interrupt,
    ) -> Result<Option<RuleDecision>, AgentError> {
        let applied = rules::answer(&self.rules, question).await;
        if let Some(applied) = &applied {
            self.context.emit(applied.event(), None).await.map_err(to_agent_error)?;
        }
        Ok(applied)
    }

    /// An agent titles its thread by an update of the Agent Client Protocol.
    fn note_title(&self, body: &Body) {
        if let Some(title) = title_of(body) {
            self.context.title(title.as_deref());
        }
    }

    fn record_violation(&self, error: Error) -> AgentError {
        self.violation.get_or_init(|| AgentError::from(error)).clone()
    }
}

impl Output for Ports {
    /// An event that must be checked goes through [`Output::emit`], so that it is parsed once.
    fn try_emit(&self, body: &Body) -> Result<bool, AgentError> {
        self.check_intact()?;
        if self.schemas.checks(body) {
            return Ok(false);
        }
        self.note_title(body);
        self.context.try_emit(body, None).map_err(to_agent_error)
    }

    fn emit(&self, body: Body) -> PortFuture<'_, Result<(), AgentError>> {
        Box::pin(async move {
            self.check_intact()?;
            self.schemas.check_event(&body).map_err(|error| self.record_violation(error))?;
            self.note_title(&body);
            self.context.emit(body, None).await.map_err(to_agent_error)
        })
    }

    fn commit(&self) -> PortFuture<'_, Result<(), AgentError>> {
        Box::pin(async move {
            self.check_intact()?;
            self.context.commit().await.map_err(|Stopped| AgentError::run_stopped())
        })
    }
}

impl Interrupts for Ports {
    fn ask(&self, mut interrupt: Interrupt) -> PortFuture<'_, Result<Resolution, AgentError>> {
        Box::pin(async move {
            self.check_interrupt(&mut interrupt)?;
            if let Some(applied) = self.decide(&interrupt).await? {
                return Ok(applied.resolution(&interrupt)?);
            }
            self.context.ask(interrupt).await.map_err(to_agent_error)
        })
    }
}

impl Memory for Ports {
    fn history(&self) -> PortFuture<'_, Result<Vec<Message>, AgentError>> {
        Box::pin(async move { Ok(self.context.history().await?) })
    }

    fn load_state(&self) -> PortFuture<'_, Result<Option<Json>, AgentError>> {
        Box::pin(async move { Ok(self.context.load_state().await?) })
    }

    fn system_prompt(&self) -> PortFuture<'_, Result<Option<SystemPrompt>, AgentError>> {
        Box::pin(async move { Ok(system_prompt_in(&self.context.thread_metadata().await?)) })
    }
}

impl ClientCalls for Ports {
    fn call_target(&self) -> Option<CallTarget> {
        let client = self.context.client()?;
        let (dialect, version) = (client.dialect, client.version);
        Some(CallTarget { dialect, version, capabilities: client.capabilities })
    }

    fn call(&self, method: &str, params: Json) -> PortFuture<'_, Result<Json, CallRefusal>> {
        let method = method.to_owned();
        Box::pin(async move {
            let answer = self.context.call_client(&method, params).await;
            answer.map_err(|CallError { code, message, data }| CallRefusal { code, message, data })
        })
    }
}

impl Cancellation for Ports {
    fn is_cancelled(&self) -> bool {
        self.context.is_cancelled()
    }

    fn cancelled(&self) -> PortFuture<'_, ()> {
        Box::pin(self.context.cancelled())
    }
}

fn to_agent_error(error: EmitError) -> AgentError {
    match error {
        EmitError::Stopped => AgentError::run_stopped(),
        EmitError::Refused(error) => error.into(),
    }
}
