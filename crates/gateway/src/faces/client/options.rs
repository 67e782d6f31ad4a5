//! How clients of the Agent Client Protocol are spoken to.

use std::time::Duration;

/// How clients of the Agent Client Protocol are spoken to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientOptions {
    /// When a client is told the id of its message.
    pub user_message_id: UserMessageId,
    /// Which message ids are taken and shown.
    pub message_id_format: MessageIdFormat,
    /// Whether a prompt that comes again, with the same id and content, is answered with the turn that it began the first time.
    pub dedupe: bool,
    /// Whether the protocol is held to its letter: lists that must be there are there, and base64 is base64.
    pub strict: bool,
    /// What becomes of a prompt while another turn is going on.
    pub when_busy: WhenBusy,
    /// The longest line that is taken, in bytes without its end.
    pub max_line_bytes: usize,
    /// The longest line that clients are prepared for, in bytes without its end. Nothing is cut to it.
    pub max_sent_bytes: usize,
    /// The most messages that wait to be taken by one client.
    pub max_outbox_messages: usize,
    /// The most bytes that wait to be taken by one client.
    pub max_outbox_bytes: usize,
    /// The most requests of one client that are at work at once; others wait, and while those hold more than [`Self::max_line_bytes`] further ones are refused with `overloaded`. Answers and what cancels are always read.
    pub max_requests: usize,
    /// The most sessions that one client has open at once.
    pub max_sessions: usize,
    /// The most clients at once.
    pub max_connections: usize,
    /// How long a program that connects may take to say what it wants.
    pub hello_timeout: Duration,
}

/// When a client is told the id of its message, as `userMessageId`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum UserMessageId {
    /// With every result: its own, or the one that the message got.
    #[default]
    Seed,
    /// Only where it gave one.
    Echo,
    /// Never.
    Off,
}

/// Which message ids are taken and shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MessageIdFormat {
    /// Any text.
    #[default]
    Any,
    /// UUIDs: another id of a client is not recorded, and another id of an agent is shown as a UUID that is made of it.
    Uuid,
}

/// What becomes of a prompt while another turn of its session is going on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WhenBusy {
    /// It waits for its turn.
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
        }
    }
}
