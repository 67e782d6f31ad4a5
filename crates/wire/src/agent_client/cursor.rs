//! Cursors: places in a session's history. Unstable.

use super::object::object;
use super::tagged::tagged;
use super::{Patch, Supported};
use crate::json::words::words;

object! {
    /// Creates a cursor, or changes its capabilities.
    pub struct CursorUpdate {
        /// Unique in the session, and only the agent's.
        cursor_id: String = "cursorId";
    } may {
        capabilities: Patch<CursorCapabilities> = "capabilities" as patch;
        /// In the first update of a cursor.
        anchor: Option<CursorAnchor> = "anchor" as optional;
    }

    /// The methods that accept the cursor now.
    pub struct CursorCapabilities may {
        fork: Option<Supported> = "fork";
    }

    pub struct CursorMessageAnchor {
        message_id: String = "messageId";
        position: CursorPosition = "position";
    }

    pub struct CursorToolCallAnchor {
        tool_call_id: String = "toolCallId";
        position: CursorPosition = "position";
    }

    pub struct CursorCompactionAnchor {
        compaction_id: String = "compactionId";
        position: CursorPosition = "position";
    }
}

tagged! {
    pub enum CursorAnchor by "type" {
        UserMessage(CursorMessageAnchor) = "user_message";
        AgentMessage(CursorMessageAnchor) = "agent_message";
        AgentThought(CursorMessageAnchor) = "agent_thought";
        ToolCall(CursorToolCallAnchor) = "tool_call";
        Compaction(CursorCompactionAnchor) = "compaction";
    }
}

words! {
    pub open enum CursorPosition {
        Before = "before";
        /// What follows the entity is not before the cursor.
        After = "after";
    }
}
