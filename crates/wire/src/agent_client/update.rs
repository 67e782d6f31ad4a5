use super::object::object;
use super::tagged::tagged;
use super::{
    AvailableCommandsUpdate, CompactionSummaryChunk, CompactionUpdate, ConfigOptionUpdate,
    ContentBlock, CurrentModeUpdate, CursorUpdate, Notice, Patch, Plan, PlanRemoved, PlanUpdate,
    PromptSuggestionsUpdate, SessionMessage, SessionMessageChunk, SubagentUpdate, ToolCall,
    ToolCallUpdate, UsageUpdate,
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
        /// Only for clients with `plan`.
        PlanUpdate(Box<PlanUpdate>) = "plan_update";
        /// Only for clients with `plan`.
        PlanRemoved(PlanRemoved) = "plan_removed";
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
        /// Only for clients with `subagents`.
        Subagent(Box<SubagentUpdate>) = "subagent_update";
        /// Only for clients with `subagents`.
        SessionMessage(Box<SessionMessage>) = "session_message";
        /// Only for clients with `subagents`.
        SessionMessageChunk(Box<SessionMessageChunk>) = "session_message_chunk";
        /// Unstable. Only for clients with `session.promptSuggestions`.
        PromptSuggestions(PromptSuggestionsUpdate) = "prompt_suggestions_update";
        /// Unstable. Only for clients with `session.cursors`.
        Cursor(Box<CursorUpdate>) = "cursor_update";
    }
}

object! {
    pub struct ContentChunk {
        content: ContentBlock = "content";
    } may {
        /// All chunks of a message have the same id. Another id begins another message.
        message_id: Option<String> = "messageId";
    }

    pub struct SessionInfoUpdate may {
        /// For people.
        title: Patch<String> = "title" as patch;
        /// ISO 8601.
        updated_at: Patch<String> = "updatedAt" as patch;
    }
}

// === impl SessionUpdate ===

impl SessionUpdate {
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
    pub fn of(message_id: impl Into<String>, content: impl Into<ContentBlock>) -> Self {
        Self { message_id: Some(message_id.into()), ..Self::new(content) }
    }
}
