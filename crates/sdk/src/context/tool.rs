//! Tool calls of an agent.

use serde::Serialize;
use trilogue_domain::event::{ToolEvent, ToolStatus};
use trilogue_domain::{Body, Json, Part};

use super::{Context, MAX_UNFINISHED};
use crate::error::AgentError;
use crate::typed::to_json;

/// An open tool call, from [`Context::tool`].
///
/// If you drop it without ending it, it is shown as failed when the turn ends well.
#[derive(Debug)]
pub struct ToolCall {
    context: Context,
    id: String,
    ended: bool,
}

// === impl ToolCall ===

impl ToolCall {
    pub(super) async fn start(
        context: Context,
        tool: &str,
        title: &str,
        input: Option<Json>,
    ) -> Result<Self, AgentError> {
        // Message ids are globally unique, so this id is unique in the run.
        let id = trilogue_domain::MessageId::generate().as_str().to_owned();
        let (tool, title) = (tool.to_owned(), title.to_owned());
        context
            .emit(Body::Tool(ToolEvent::Started {
                call: id.clone(),
                tool,
                title,
                input,
                message: context.last(),
            }))
            .await?;
        Ok(Self { context, id, ended: false })
    }

    /// Returns the call's id, which is unique in the run.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Shows content that the call has produced so far.
    pub async fn update(
        &self,
        content: impl IntoIterator<Item = Part> + Send,
    ) -> Result<(), AgentError> {
        let (call, content) = (self.id.clone(), content.into_iter().collect());
        self.context.emit(Body::Tool(ToolEvent::Updated { call, content })).await
    }

    /// Ends the call as completed, with this output.
    pub async fn complete(self, output: impl Serialize + Send) -> Result<(), AgentError> {
        let output = to_json(&output)?;
        self.end(ToolStatus::Completed, output).await
    }

    /// Ends the call as failed, with this output.
    pub async fn fail(self, output: impl Serialize + Send) -> Result<(), AgentError> {
        let output = to_json(&output)?;
        self.end(ToolStatus::Failed, output).await
    }

    async fn end(mut self, status: ToolStatus, output: Json) -> Result<(), AgentError> {
        self.ended = true;
        let output = Some(output).filter(|output| output.as_str() != "null");
        let call = self.id.clone();
        self.context.emit(Body::Tool(ToolEvent::Ended { call, status, output })).await
    }
}

impl Drop for ToolCall {
    fn drop(&mut self) {
        if !self.ended {
            let mut unfinished = self.context.unfinished();
            if unfinished.calls.len() < MAX_UNFINISHED {
                unfinished.calls.push(std::mem::take(&mut self.id));
            }
        }
    }
}
