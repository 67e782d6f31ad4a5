use super::object::object;
use super::tagged::tagged;
use super::{
    AvailableCommandsUpdate, CompactionSummaryChunk, CompactionUpdate, ConfigOptionUpdate,
    ContentBlock, CurrentModeUpdate, Notice, Patch, Plan, ToolCall, ToolCallUpdate, UsageUpdate,
};

object! {
    pub struct SessionNotification {
        session_id: String = "sessionId";
        update: SessionUpdate = "update";
    }
}

tagged! {
    pub enum SessionUpdate by "sessionUpdate" {
        UserMessageChunk(Box<ContentChunk>) = "user_message_chunk";
        AgentMessageChunk(Box<ContentChunk>) = "agent_message_chunk";
        AgentThoughtChunk(Box<ContentChunk>) = "agent_thought_chunk";
        ToolCall(Box<ToolCall>) = "tool_call";
        ToolCallUpdate(Box<ToolCallUpdate>) = "tool_call_update";
        Plan(Plan) = "plan";
        AvailableCommands(AvailableCommandsUpdate) = "available_commands_update";
        CurrentMode(CurrentModeUpdate) = "current_mode_update";
        ConfigOptions(ConfigOptionUpdate) = "config_option_update";
        SessionInfo(SessionInfoUpdate) = "session_info_update";
        Usage(UsageUpdate) = "usage_update";
        /// Only for clients with `session.notices`.
        Notice(Notice) = "notice";
        /// Only for clients with `session.compaction`.
        Compaction(CompactionUpdate) = "compaction_update";
        /// Only for clients with `session.compaction`.
        CompactionSummaryChunk(Box<CompactionSummaryChunk>) = "compaction_summary_chunk";
    }
}

object! {
    pub struct ContentChunk {
        content: ContentBlock = "content";
    } may {
        /// All chunks of a message have the same id; another id is another message.
        message_id: Option<String> = "messageId";
    }
}

object! {
    pub struct SessionInfoUpdate may {
        /// For people.
        title: Patch<String> = "title" as patch;
        /// ISO 8601.
        updated_at: Patch<String> = "updatedAt" as patch;
    }
}

// === impl SessionUpdate ===

impl SessionUpdate {
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
    #[must_use]
    pub fn of(message_id: impl Into<String>, content: impl Into<ContentBlock>) -> Self {
        Self { message_id: Some(message_id.into()), ..Self::new(content) }
    }
}
