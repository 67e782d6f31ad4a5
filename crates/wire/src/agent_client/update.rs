use super::object::object;
use super::tagged::tagged;
use super::{
    AvailableCommandsUpdate, CompactionSummaryChunk, CompactionUpdate, ConfigOptionUpdate,
    ContentBlock, CurrentModeUpdate, Notice, Patch, Plan, ToolCall, ToolCallUpdate, UsageUpdate,
};

object! {
    /// Something happened in a session.
    pub struct SessionNotification {
        /// The session.
        session_id: String = "sessionId" as required;
        /// What happened.
        update: SessionUpdate = "update" as required;
    } may {
    }
}

tagged! {
    /// What happened in a session.
    pub enum SessionUpdate by "sessionUpdate" {
        /// A piece of what the user said.
        UserMessageChunk(Box<ContentChunk>) = "user_message_chunk";
        /// A piece of what the agent says.
        AgentMessageChunk(Box<ContentChunk>) = "agent_message_chunk";
        /// A piece of what the agent thinks.
        AgentThoughtChunk(Box<ContentChunk>) = "agent_thought_chunk";
        /// The agent uses a tool.
        ToolCall(Box<ToolCall>) = "tool_call";
        /// A tool call changed.
        ToolCallUpdate(Box<ToolCallUpdate>) = "tool_call_update";
        /// The agent's plan, whole.
        Plan(Plan) = "plan";
        /// The commands that a user can give, all of them.
        AvailableCommands(AvailableCommandsUpdate) = "available_commands_update";
        /// The session has another mode.
        CurrentMode(CurrentModeUpdate) = "current_mode_update";
        /// The session's options, all of them.
        ConfigOptions(ConfigOptionUpdate) = "config_option_update";
        /// What is known of the session changed.
        SessionInfo(SessionInfoUpdate) = "session_info_update";
        /// How full the context is.
        Usage(UsageUpdate) = "usage_update";
        /// Something that the user should know. Only for clients with `session.notices`.
        Notice(Notice) = "notice";
        /// The agent shortens its context. Only for clients with `session.compaction`.
        Compaction(CompactionUpdate) = "compaction_update";
        /// A piece of what the agent keeps of its context. Only for clients with `session.compaction`.
        CompactionSummaryChunk(Box<CompactionSummaryChunk>) = "compaction_summary_chunk";
    }
}

object! {
    /// A piece of a message.
    pub struct ContentChunk {
        /// The piece.
        content: ContentBlock = "content" as required;
    } may {
        /// The message that the piece belongs to. All pieces of a message have the same id; another id is another message.
        message_id: Option<String> = "messageId" as lenient;
    }
}

object! {
    /// What is known of a session.
    #[derive(Default)]
    pub struct SessionInfoUpdate {
    } may {
        /// What it is called towards people.
        title: Patch<String> = "title" as patch;
        /// When something last happened in it, as ISO 8601.
        updated_at: Patch<String> = "updatedAt" as patch;
    }
}

// === impl SessionUpdate ===

impl SessionUpdate {
    /// The word for its kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::UserMessageChunk(_) => "user_message_chunk",
            Self::AgentMessageChunk(_) => "agent_message_chunk",
            Self::AgentThoughtChunk(_) => "agent_thought_chunk",
            Self::ToolCall(_) => "tool_call",
            Self::ToolCallUpdate(_) => "tool_call_update",
            Self::Plan(_) => "plan",
            Self::AvailableCommands(_) => "available_commands_update",
            Self::CurrentMode(_) => "current_mode_update",
            Self::ConfigOptions(_) => "config_option_update",
            Self::SessionInfo(_) => "session_info_update",
            Self::Usage(_) => "usage_update",
            Self::Notice(_) => "notice",
            Self::Compaction(_) => "compaction_update",
            Self::CompactionSummaryChunk(_) => "compaction_summary_chunk",
            Self::Other(opaque) => &opaque.kind,
        }
    }

    /// The piece of a message that it carries.
    #[must_use]
    pub fn chunk(&self) -> Option<&ContentChunk> {
        match self {
            Self::UserMessageChunk(chunk)
            | Self::AgentMessageChunk(chunk)
            | Self::AgentThoughtChunk(chunk) => Some(chunk),
            _ => None,
        }
    }
}

// === impl ContentChunk ===

impl ContentChunk {
    /// A piece of this message.
    #[must_use]
    pub fn of(message_id: impl Into<String>, content: impl Into<ContentBlock>) -> Self {
        Self { message_id: Some(message_id.into()), ..Self::new(content) }
    }
}
