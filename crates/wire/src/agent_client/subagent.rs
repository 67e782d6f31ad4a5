//! Sub-agents: child sessions of a session, and the messages between sessions.

use super::object::object;
use super::tagged::tagged;
use super::{ContentBlock, Patch, Supported};
use crate::json::words::words;

object! {
    /// Announces a child of the session, or changes what the session says about it. Always before any traffic of the child.
    pub struct SubagentUpdate {
        /// The child's session.
        session_id: String = "sessionId";
    } may {
        title: Patch<String> = "title" as patch;
        /// What the child is for.
        description: Patch<String> = "description" as patch;
        capabilities: Patch<SubagentSessionCapabilities> = "capabilities" as patch;
        /// Replaces the whole previous state.
        state: Patch<StateUpdate> = "state" as patch;
        /// An absolute path. Without it, the child works in its parent's directory.
        cwd: Patch<String> = "cwd" as patch;
        additional_directories: Patch<Vec<String>> = "additionalDirectories" as patch;
    }

    /// What clients may do with the child. Other changes are refused, even if the agent supports them for other sessions.
    pub struct SubagentSessionCapabilities may {
        cancel: Option<Supported> = "cancel";
    }

    pub struct WorkState;

    pub struct IdleState may {
        /// Absent if the agent does not report why the work stopped.
        stop_reason: Option<SubagentStopReason> = "stopReason";
    }
}

tagged! {
    /// What a child does. An idle child can work again.
    pub enum StateUpdate by "state" {
        Running(WorkState) = "running";
        Idle(IdleState) = "idle";
        /// The work waits for a user.
        RequiresAction(WorkState) = "requires_action";
        /// The agent cannot tell.
        Unknown(WorkState) = "unknown";
    }
}

words! {
    pub open enum SubagentStopReason {
        EndTurn = "end_turn";
        MaxTokens = "max_tokens";
        MaxTurnRequests = "max_turn_requests";
        Refusal = "refusal";
        Cancelled = "cancelled";
        Error = "error";
    }
}

object! {
    /// Creates or changes a message between two sessions, as the transcript of one of them has it.
    pub struct SessionMessage {
        /// Unique in the session.
        message_id: String = "messageId";
    } may {
        sender_session_id: Patch<String> = "senderSessionId" as patch;
        recipient_session_id: Patch<String> = "recipientSessionId" as patch;
        /// The id of a received message in its sender's session.
        sender_message_id: Patch<String> = "senderMessageId" as patch;
        /// The id of a sent message in its recipient's session.
        recipient_message_id: Patch<String> = "recipientMessageId" as patch;
        /// The whole content.
        content: Patch<Vec<ContentBlock>> = "content" as patch_fitting;
    }

    /// A block that is added to a [`SessionMessage`].
    pub struct SessionMessageChunk {
        message_id: String = "messageId";
        content: ContentBlock = "content";
    }
}
