//! Settings for clients of the Agent Client Protocol.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_gateway as gateway;

use super::quantity::{Size, Span};

/// Clients of the Agent Client Protocol: editors that start `trilogue connect` or `trilogue wrap`, and clients over the network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Client {
    /// When a result of a prompt has the `userMessageId`: `seed` always, `echo` only if the prompt has an id, `off` never.
    pub user_message_id: UserMessageId,
    /// Which message ids the server accepts and sends: only a `uuid`, or `any` text. With `uuid`, it acknowledges no other id of a client, and replaces another id of an agent with a UUID that it derives from it.
    pub message_id_format: MessageIdFormat,
    /// Whether a repeated prompt with the same id and content returns the result of the first one, and starts no new turn.
    pub dedupe: bool,
    /// Whether the server enforces the protocol strictly: required lists have to be present, and base64 has to be valid.
    pub strict: bool,
    /// What the server does with a prompt while another turn of the session runs: `queue` lets it wait, `reject` refuses it, `interrupt` cancels the other turn.
    pub when_busy: WhenBusy,
    /// The longest line that the server accepts.
    pub max_line: Size,
    /// The maximum number of messages that wait for one client to read them.
    pub max_outbox_messages: usize,
    /// The maximum size of the messages that wait for one client to read them.
    pub max_outbox: Size,
    /// The maximum number of concurrent requests of one client. Further requests wait. While the waiting requests are larger than `max_line` together, the server refuses more of them with `overloaded`. It always reads responses and cancellations.
    pub max_requests: usize,
    /// The maximum number of open sessions of one client.
    pub max_sessions: usize,
    /// The maximum number of clients on the local socket. Each uses two file descriptors.
    pub max_connections: usize,
    /// How long a program that connects may take for its handshake, and a WebSocket client until it sends `initialize`.
    pub hello_timeout: Span,
    /// The maximum number of clients over the network. A WebSocket is also one of `server.limits.max_connections`, and uses one file descriptor.
    pub max_network_connections: usize,
    /// How often the server sends a ping to a client on a WebSocket.
    pub ping_interval: Span,
    /// How long a client on a WebSocket may send nothing after a ping. Then the server ends the connection.
    pub pong_timeout: Span,
    /// How long a connection over HTTP lasts without a request and without a stream, and how long the connection of a lost WebSocket waits for its client, if the client can continue it. A connection over HTTP also ends when a message has waited this long for room because no stream is read.
    pub idle_timeout: Span,
    /// Whether a client over the network may make an agent start programs on the server's machine: servers of the Model Context Protocol with a `command`, and members of a request that only the agent understands, such as `_meta`, with which some agents start programs. Otherwise the server refuses such servers, and leaves such members out. Programs of the server's user on the same machine always may.
    pub network_programs: bool,
}

/// When a result of a prompt has the id of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UserMessageId {
    /// Always.
    #[default]
    Seed,
    /// Only if the prompt has an id.
    Echo,
    /// Never.
    Off,
}

/// Which message ids the server accepts and sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageIdFormat {
    /// Any text.
    Any,
    /// Only UUIDs.
    #[default]
    Uuid,
}

/// What the server does with a prompt while another turn of the session runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenBusy {
    /// It waits.
    #[default]
    Queue,
    /// The server refuses it.
    Reject,
    /// The server cancels the other turn.
    Interrupt,
}

// === impl Client ===

impl Default for Client {
    fn default() -> Self {
        let options = gateway::ClientOptions::default();
        Self {
            user_message_id: UserMessageId::Seed,
            message_id_format: MessageIdFormat::Uuid,
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
            max_network_connections: options.max_network_connections,
            ping_interval: Span(options.ping_interval),
            pong_timeout: Span(options.pong_timeout),
            idle_timeout: Span(options.idle_timeout),
            network_programs: options.network_programs,
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
            max_network_connections: self.max_network_connections,
            ping_interval: self.ping_interval.0,
            pong_timeout: self.pong_timeout.0,
            idle_timeout: self.idle_timeout.0,
            network_programs: self.network_programs,
        }
    }
}
