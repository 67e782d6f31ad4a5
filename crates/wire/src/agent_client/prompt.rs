use super::ContentBlock;
use super::object::object;
use crate::json::words::words;

object! {
    pub struct PromptRequest {
        session_id: String = "sessionId";
        prompt: Vec<ContentBlock> = "prompt";
    } may {
        /// The id of the client's message.
        message_id: Option<String> = "messageId" as optional;
    }

    pub struct PromptResponse {
        stop_reason: StopReason = "stopReason";
    } may {
        /// The id of the user's message: the client's, or one that the agent chose. Absent if the agent keeps no ids.
        user_message_id: Option<String> = "userMessageId";
    }
}

words! {
    /// Other words are accepted when reading and must not be written.
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
