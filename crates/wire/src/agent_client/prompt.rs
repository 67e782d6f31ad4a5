use super::ContentBlock;
use super::object::object;
use crate::json::words::words;

object! {
    pub struct PromptRequest {
        session_id: String = "sessionId";
        prompt: Vec<ContentBlock> = "prompt";
    } may {
        /// The id that the client gives its message.
        message_id: Option<String> = "messageId" as optional;
    }

    pub struct PromptResponse {
        stop_reason: StopReason = "stopReason";
    } may {
        /// The id of the user's message: the client's, or one that the agent chose. Absent where the agent keeps none.
        user_message_id: Option<String> = "userMessageId";
    }
}

words! {
    /// Other words are read, and must not be written.
    pub open enum StopReason {
        EndTurn = "end_turn";
        /// The model's answer was too long.
        MaxTokens = "max_tokens";
        /// The turn took too many steps.
        MaxTurnRequests = "max_turn_requests";
        Refusal = "refusal";
        Cancelled = "cancelled";
    }
}
