//! The options of this face.

use std::time::Duration;

/// Options for clients of the Agent Client Protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientOptions {
    /// Whether responses to prompts contain the id of the message.
    pub user_message_id: UserMessageId,
    /// Which message ids are accepted and sent.
    pub message_id_format: MessageIdFormat,
    /// Whether a prompt with the id and content of an earlier one joins that turn, for 24 hours.
    pub dedupe: bool,
    /// Whether requests are checked strictly: required lists must be present, and base64 must be valid.
    pub strict: bool,
    /// What happens to a prompt while another turn is running.
    pub when_busy: WhenBusy,
    /// The longest line that is accepted, in bytes without its line end.
    pub max_line_bytes: usize,
    /// The longest line that clients should expect, in bytes without its line end. Longer lines are sent too.
    pub max_sent_bytes: usize,
    /// The most messages that wait to be written to one client.
    pub max_outbox_messages: usize,
    /// The most bytes that wait to be written to one client.
    pub max_outbox_bytes: usize,
    /// The most requests of one client that are processed at once. Others wait; while those hold more than [`Self::max_line_bytes`], further ones are refused with `overloaded`. Responses and cancellations are always read.
    pub max_requests: usize,
    /// The most sessions that one client has open at once.
    pub max_sessions: usize,
    /// The most clients at once.
    pub max_connections: usize,
    /// How long a program may take to send its first line.
    pub hello_timeout: Duration,
    /// The most clients that are connected over the network at once.
    pub max_network_connections: usize,
    /// How often a WebSocket client gets a ping.
    pub ping_interval: Duration,
    /// How long a WebSocket client may take to show, after a ping, that it is there.
    pub pong_timeout: Duration,
    /// How long a connection over HTTP lasts without a request and without a stream, and one that its client can continue without a WebSocket.
    pub idle_timeout: Duration,
    /// Whether clients over the network may have agents start programs on this machine: tool servers with a command, and members of the opening that only the agent understands.
    pub network_programs: bool,
}

/// When responses to prompts have `userMessageId`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum UserMessageId {
    /// Always: the client's own id, or a generated one.
    #[default]
    Seed,
    /// If the client sent an id.
    Echo,
    /// Never.
    Off,
}

/// Which message ids are accepted and sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MessageIdFormat {
    /// Any text.
    Any,
    /// UUIDs, as the proposal on message ids defines: other ids of clients are not stored, and other ids of agents are sent as UUIDs derived from them.
    #[default]
    Uuid,
}

/// What happens to a prompt while another turn of its session is running.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WhenBusy {
    /// It waits.
    #[default]
    Queue,
    /// It is refused.
    Reject,
    /// The other turn is cancelled.
    Interrupt,
}

// === impl ClientOptions ===

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            user_message_id: UserMessageId::default(),
            message_id_format: MessageIdFormat::default(),
            dedupe: false,
            strict: false,
            when_busy: WhenBusy::default(),
            max_line_bytes: 16 * 1024 * 1024,
            max_sent_bytes: 32 * 1024 * 1024,
            max_outbox_messages: 1_024,
            max_outbox_bytes: 16 * 1024 * 1024,
            max_requests: 256,
            max_sessions: 256,
            max_connections: 256,
            hello_timeout: Duration::from_secs(10),
            max_network_connections: 4_096,
            ping_interval: Duration::from_secs(20),
            pong_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(5 * 60),
            network_programs: false,
        }
    }
}
