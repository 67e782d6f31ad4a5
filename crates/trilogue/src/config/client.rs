//! How clients of the Agent Client Protocol are served.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_gateway as gateway;

use super::quantity::{Size, Span};

/// How clients of the Agent Client Protocol are served: editors that start `trilogue connect` or `trilogue wrap`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Client {
    /// When a client is told the id of its message, as `userMessageId`: `seed` with every result, `echo` where it gave one, `off` never.
    pub user_message_id: UserMessageId,
    /// Which message ids are taken and shown: `any` text, or only a `uuid`: another id of an agent is then shown as a UUID made of it.
    pub message_id_format: MessageIdFormat,
    /// Whether a prompt that comes again with the same id and content is answered with the turn that it began the first time.
    pub dedupe: bool,
    /// Whether the protocol is held to its letter: lists that must be there are there, and base64 is base64.
    pub strict: bool,
    /// What becomes of a prompt while another turn of its session is going on: it waits (`queue`), is refused (`reject`), or cancels the other (`interrupt`).
    pub when_busy: WhenBusy,
    /// The longest line that is taken.
    pub max_line: Size,
    /// The most messages that wait to be taken by one client.
    pub max_outbox_messages: usize,
    /// The most content that waits to be taken by one client.
    pub max_outbox: Size,
    /// The most requests of one client that are at work at once; others wait, and while those hold more than `max_line` further ones are refused with `overloaded`. Answers and what cancels are always read.
    pub max_requests: usize,
    /// The most sessions that one client has open at once.
    pub max_sessions: usize,
    /// The most clients at once. Each takes two file descriptors.
    pub max_connections: usize,
    /// How long a program that connects may take to say what it wants.
    pub hello_timeout: Span,
}

/// When a client is told the id of its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UserMessageId {
    /// With every result.
    #[default]
    Seed,
    /// Where it gave one.
    Echo,
    /// Never.
    Off,
}

/// Which message ids are taken and shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageIdFormat {
    /// Any text.
    #[default]
    Any,
    /// UUIDs.
    Uuid,
}

/// What becomes of a prompt while another turn of its session is going on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenBusy {
    /// It waits.
    #[default]
    Queue,
    /// It is refused.
    Reject,
    /// The other is cancelled.
    Interrupt,
}

// === impl Client ===

impl Default for Client {
    fn default() -> Self {
        let options = gateway::ClientOptions::default();
        Self {
            user_message_id: UserMessageId::Seed,
            message_id_format: MessageIdFormat::Any,
            dedupe: options.dedupe,
            strict: options.strict,
            when_busy: WhenBusy::Queue,
            max_line: Size::of(options.max_line_bytes),
            max_outbox_messages: options.max_outbox_messages,
            max_outbox: Size::of(options.max_outbox_bytes),
            max_requests: options.max_requests,
            max_sessions: options.max_sessions,
            max_connections: options.max_connections,
            hello_timeout: Span(options.hello_timeout),
        }
    }
}

impl Client {
    /// The gateway's own options.
    #[must_use]
    pub fn to_options(&self) -> gateway::ClientOptions {
        gateway::ClientOptions {
            user_message_id: match self.user_message_id {
                UserMessageId::Seed => gateway::UserMessageId::Seed,
                UserMessageId::Echo => gateway::UserMessageId::Echo,
                UserMessageId::Off => gateway::UserMessageId::Off,
            },
            message_id_format: match self.message_id_format {
                MessageIdFormat::Any => gateway::MessageIdFormat::Any,
                MessageIdFormat::Uuid => gateway::MessageIdFormat::Uuid,
            },
            dedupe: self.dedupe,
            strict: self.strict,
            when_busy: match self.when_busy {
                WhenBusy::Queue => gateway::WhenBusy::Queue,
                WhenBusy::Reject => gateway::WhenBusy::Reject,
                WhenBusy::Interrupt => gateway::WhenBusy::Interrupt,
            },
            max_line_bytes: self.max_line.to_usize(),
            max_sent_bytes: gateway::ClientOptions::default().max_sent_bytes,
            max_outbox_messages: self.max_outbox_messages,
            max_outbox_bytes: self.max_outbox.to_usize(),
            max_requests: self.max_requests,
            max_sessions: self.max_sessions,
            max_connections: self.max_connections,
            hello_timeout: self.hello_timeout.0,
        }
    }
}
