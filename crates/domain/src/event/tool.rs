use crate::content::Part;
use crate::id::MessageId;
use crate::json::Json;

/// An event of a tool call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToolEvent {
    /// The call begins.
    Started {
        /// The call's id, unique in the run.
        call: String,
        /// The tool's name.
        tool: String,
        /// The title for people.
        title: String,
        /// The input of the tool.
        input: Option<Json>,
        /// The message that triggered the call: the agent's previous message in the same run, otherwise the user's; `None` if unknown.
        message: Option<MessageId>,
    },
    /// The call has new content.
    Updated {
        /// The id of the call.
        call: String,
        /// The content that the call has produced.
        content: Vec<Part>,
    },
    /// The call has ended.
    Ended {
        /// The id of the call.
        call: String,
        /// The end status.
        status: ToolStatus,
        /// The output of the tool.
        output: Option<Json>,
    },
}

/// How a tool call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToolStatus {
    /// The call succeeded.
    Completed,
    /// The call failed.
    Failed,
}

impl ToolEvent {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "tool.started",
            Self::Updated { .. } => "tool.updated",
            Self::Ended { .. } => "tool.ended",
        }
    }
}
