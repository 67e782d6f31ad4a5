//! The ports of the SDK's context over the runtime's.

use std::sync::Arc;

use trilogue_domain::{Body, Interrupt, Json, Message, Resolution};
use trilogue_runtime::{EmitError, RunContext, Stopped};
use trilogue_sdk::AgentError;
use trilogue_sdk::port::{Asking, Cancellation, Memory, Output, Wait};

use super::Schemas;

/// All ports of one run.
#[derive(Debug)]
pub(super) struct Ports {
    context: RunContext,
    schemas: Arc<Schemas>,
}

// === impl Ports ===

impl Ports {
    pub(super) fn new(context: RunContext, schemas: Arc<Schemas>) -> Self {
        Self { context, schemas }
    }
}

impl Output for Ports {
    fn try_emit(&self, body: &Body) -> Result<bool, AgentError> {
        self.context.try_emit(body, None).map_err(refused)
    }

    fn emit(&self, body: Body) -> Wait<'_, Result<(), AgentError>> {
        Box::pin(async move { self.context.emit(body, None).await.map_err(refused) })
    }

    fn commit(&self) -> Wait<'_, Result<(), AgentError>> {
        Box::pin(
            async move { self.context.commit().await.map_err(|Stopped| AgentError::stopped()) },
        )
    }
}

impl Asking for Ports {
    fn ask(&self, interrupt: Interrupt) -> Wait<'_, Result<Resolution, AgentError>> {
        Box::pin(async move {
            self.schemas.check_question(&interrupt)?;
            self.context.ask(interrupt).await.map_err(refused)
        })
    }
}

impl Memory for Ports {
    fn history(&self) -> Wait<'_, Result<Vec<Message>, AgentError>> {
        Box::pin(async move { Ok(self.context.history().await?) })
    }

    fn load_state(&self) -> Wait<'_, Result<Option<Json>, AgentError>> {
        Box::pin(async move { Ok(self.context.load_state().await?) })
    }
}

impl Cancellation for Ports {
    fn is_cancelled(&self) -> bool {
        self.context.is_cancelled()
    }

    fn cancelled(&self) -> Wait<'_, ()> {
        Box::pin(self.context.cancelled())
    }
}

fn refused(error: EmitError) -> AgentError {
    match error {
        EmitError::Stopped => AgentError::stopped(),
        EmitError::Refused(error) => error.into(),
    }
}
