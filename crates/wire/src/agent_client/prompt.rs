use super::ContentBlock;
use super::object::object;
use crate::json::words::words;

object! {
    /// Says something to the agent, which answers with a turn.
    pub struct PromptRequest {
        /// The session.
        session_id: String = "sessionId" as required;
        /// What is said.
        prompt: Vec<ContentBlock> = "prompt" as required;
    } may {
        /// The id that the client gives its message.
        message_id: Option<String> = "messageId" as optional;
    }
}

object! {
    /// The turn is over.
    pub struct PromptResponse {
        /// Why.
        stop_reason: StopReason = "stopReason" as required;
    } may {
        /// The id by which the agent knows the user's message: the client's, or one that it gave. Absent where it knows none.
        user_message_id: Option<String> = "userMessageId" as lenient;
    }
}

words! {
    /// Why a turn is over. Others than these are read, and may not be written.
    pub open enum StopReason {
        /// The agent is done.
        EndTurn = "end_turn";
        /// The model's answer was too long.
        MaxTokens = "max_tokens";
        /// The turn took too many steps.
        MaxTurnRequests = "max_turn_requests";
        /// The agent will not go on.
        Refusal = "refusal";
        /// The client ended it.
        Cancelled = "cancelled";
    }
}

// === impl PromptRequest ===

impl PromptRequest {
    /// The message's id, where the client gave one: an empty one is none.
    #[must_use]
    pub fn given_message_id(&self) -> Option<&str> {
        self.message_id.as_deref().filter(|id| !id.is_empty())
    }
}
