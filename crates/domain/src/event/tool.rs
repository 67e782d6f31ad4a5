use crate::content::Part;
use crate::id::MessageId;
use crate::json::Json;

/// Something about a tool call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToolEvent {
    /// A call begins.
    Started {
        /// The call's id, unique in the run.
        call: String,
        /// The tool's name.
        tool: String,
        /// What a person reads.
        title: String,
        /// What the tool is given.
        input: Option<Json>,
        /// The message that triggered it: the agent's own before it in the same run, else the user's; `None` where that is not known.
        message: Option<MessageId>,
    },
    /// Something new about a call that goes on.
    Updated {
        /// The call.
        call: String,
        /// Content that it has produced.
        content: Vec<Part>,
    },
    /// The call has ended.
    Ended {
        /// The call.
        call: String,
        /// How.
        status: ToolStatus,
        /// What the tool gave back.
        output: Option<Json>,
    },
}

/// How a tool call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToolStatus {
    /// It did what it should.
    Completed,
    /// It did not.
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
