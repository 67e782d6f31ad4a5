//! The messages that the server may not have received.

use std::collections::VecDeque;

use trilogue_wire::jsonrpc::{self, Incoming};

/// The most messages that are kept, and the most bytes of them. The newest message is kept even if it is larger.
const MAX_MESSAGES: usize = 1_024;
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The last messages that were sent, numbered from 1.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    messages: VecDeque<KeptMessage>,
    bytes: usize,
    /// How many messages are not kept any more.
    removed: u64,
}

#[derive(Debug)]
struct KeptMessage {
    /// With its line end.
    line: Vec<u8>,
    /// The id, as JSON, if the message is a request.
    request: Option<String>,
}

// === impl Unconfirmed ===

impl Unconfirmed {
    pub(super) fn push(&mut self, line: Vec<u8>) {
        let request = match jsonrpc::parse_within(line.trim_ascii_end(), usize::MAX) {
            Ok(Incoming::Request(request)) => Some(request.id.as_str().to_owned()),
            _ => None,
        };
        self.bytes += line.len();
        self.messages.push_back(KeptMessage { line, request });
        while self.messages.len() > 1
            && (self.messages.len() > MAX_MESSAGES || self.bytes > MAX_BYTES)
        {
            self.remove(1);
        }
    }

    /// Forgets what the server has received, because it responded to this request: messages arrive in order.
    pub(super) fn on_response(&mut self, id: &str) {
        let is_it = |message: &KeptMessage| message.request.as_deref() == Some(id);
        if let Some(place) = self.messages.iter().position(is_it) {
            self.remove(place + 1);
        }
    }

    /// Forgets the first messages, up to this number. Returns `false` if messages after it are not there any more.
    pub(super) fn confirm(&mut self, received: u64) -> bool {
        let Some(count) = received.checked_sub(self.removed) else { return false };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let is_known = count <= self.messages.len();
        self.remove(count.min(self.messages.len()));
        is_known
    }

    /// Returns all of them, to send them again.
    pub(super) fn lines(&self) -> Vec<u8> {
        self.messages.iter().flat_map(|message| &message.line).copied().collect()
    }

    /// Whether the next message would make room for itself.
    pub(super) fn is_full(&self) -> bool {
        self.messages.len() >= MAX_MESSAGES || self.bytes >= MAX_BYTES
    }

    fn remove(&mut self, count: usize) {
        let removed: usize = self.messages.drain(..count).map(|message| message.line.len()).sum();
        self.bytes -= removed;
        self.removed += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unconfirmed: &Unconfirmed) -> String {
        String::from_utf8(unconfirmed.lines()).unwrap()
    }

    #[test]
    fn a_response_or_a_number_confirms_all_messages_before() {
        let mut unconfirmed = Unconfirmed::default();
        let lines: Vec<String> = (1..=4)
            .map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\"}}\n"))
            .collect();
        for line in &lines {
            unconfirmed.push(line.clone().into_bytes());
        }
        unconfirmed.on_response("9");
        assert_eq!(text(&unconfirmed), lines.concat());
        unconfirmed.on_response("2");
        assert_eq!(text(&unconfirmed), lines[2..].concat());
        assert!(unconfirmed.confirm(3));
        assert_eq!(text(&unconfirmed), lines[3]);
        assert!(unconfirmed.confirm(4));
        assert_eq!(text(&unconfirmed), "");
        assert!(!unconfirmed.confirm(3), "messages after 3 are gone");
        assert!(!unconfirmed.confirm(5), "message 5 was never sent");
    }

    #[test]
    fn the_oldest_messages_go_first() {
        let mut unconfirmed = Unconfirmed::default();
        for _ in 0..=MAX_MESSAGES {
            unconfirmed.push(b"{}\n".to_vec());
        }
        assert_eq!(unconfirmed.messages.len(), MAX_MESSAGES);
        unconfirmed.push(vec![b'x'; 2 * MAX_BYTES]);
        assert_eq!((unconfirmed.messages.len(), unconfirmed.bytes), (1, 2 * MAX_BYTES));
        assert!(unconfirmed.confirm(MAX_MESSAGES as u64 + 1));
    }
}
