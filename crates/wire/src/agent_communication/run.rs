use super::object::object;
use super::time::{short, short_or_null};
use super::{AwaitRequest, ErrorBody, Message, MessagePart, Time, Uuid};
use crate::json::member::{defaulted, optional, required};
use crate::json::words::words;

object! {
    pub struct Run {
        run_id: Uuid = required;
        agent_name: String = required;
        session_id: Option<Uuid> = optional;
        status: RunStatus = required;
        await_request: Option<AwaitRequest> = optional;
        output: Vec<Message> = defaulted;
        error: Option<ErrorBody> = optional;
        #[serde(serialize_with = "short")]
        created_at: Time = required;
        #[serde(serialize_with = "short_or_null")]
        finished_at: Option<Time> = optional;
    }
}

words! {
    pub enum RunStatus {
        Created = "created";
        InProgress = "in-progress";
        Awaiting = "awaiting";
        Cancelling = "cancelling";
        Cancelled = "cancelled";
        Completed = "completed";
        Failed = "failed";
    }

    /// How the response to a request is delivered.
    pub enum RunMode: Default {
        /// The run, after it has ended or waits.
        #[default]
        Sync = "sync";
        /// The run, at once.
        Async = "async";
        /// The run's events, as they happen.
        Stream = "stream";
    }
}

// === impl Run ===

impl Run {
    /// Returns the plain text of the agent's messages, without artifacts.
    pub fn text(&self) -> String {
        let parts = self.output.iter().flat_map(|message| &message.parts);
        parts.filter_map(MessagePart::as_text).collect()
    }
}

// === impl RunStatus ===

impl RunStatus {
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Cancelled | Self::Completed | Self::Failed)
    }
}
