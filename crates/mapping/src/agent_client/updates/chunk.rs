use std::borrow::Cow;

use trilogue_domain::Part;

use super::{Update, Updates};
use crate::agent_client::Gate;
use crate::agent_client::block::{push_block, quoted, text_block};
use crate::agent_client::relay::SESSION_UPDATE;

/// The most text of one update, in bytes; longer text continues in the next update of its message.
const MAX_TEXT_BYTES: usize = 1024 * 1024;

#[derive(Clone, Copy, Debug)]
pub(super) enum Chunk {
    User,
    Agent,
    Thought,
}

// === impl Updates ===

impl Updates {
    pub(super) fn text(&self, side: Chunk, id: &str, text: &str, out: &mut Vec<Update>) {
        let mut rest = text;
        loop {
            let (piece, more) = rest.split_at(rest.floor_char_boundary(MAX_TEXT_BYTES));
            self.chunk(side, id, &text_block(piece), out);
            if more.is_empty() {
                return;
            }
            rest = more;
        }
    }

    pub(super) fn block(&self, side: Chunk, id: &str, part: &Part, out: &mut Vec<Update>) {
        let mut block = String::new();
        if push_block(part, self.extension, self.relay.thread().as_str(), &mut block) {
            self.chunk(side, id, &block, out);
        }
    }

    pub(super) fn chunk(&self, side: Chunk, id: &str, block: &str, out: &mut Vec<Update>) {
        let (kind, gate) = match side {
            Chunk::User => ("user_message_chunk", Gate::UserMessage),
            Chunk::Agent => ("agent_message_chunk", Gate::Always),
            Chunk::Thought => ("agent_thought_chunk", Gate::Always),
        };
        let id = self.relay.shown_id(id);
        let mut update = String::with_capacity(block.len() + 128);
        update.push_str("{\"sessionUpdate\":\"");
        update.push_str(kind);
        update.push('"');
        member(&mut update, "messageId", &quoted(&id));
        member(&mut update, "content", block);
        if let (Chunk::User, Some(origin)) = (side, &self.turn_origin) {
            member(&mut update, "_meta", origin);
        }
        self.update(&update, gate, out);
    }

    pub(super) fn update(&self, update: &str, gate: Gate, out: &mut Vec<Update>) {
        let session = self.relay.session_json();
        let mut params = Vec::with_capacity(update.len() + session.len() + 32);
        params.extend_from_slice(b"{\"sessionId\":");
        params.extend_from_slice(session.as_bytes());
        params.extend_from_slice(b",\"update\":");
        params.extend_from_slice(update.as_bytes());
        params.extend_from_slice(b"}}");
        out.push(Update { method: Cow::Borrowed(SESSION_UPDATE), params, gate });
    }
}

pub(super) fn member(object: &mut String, key: &str, value: &str) {
    object.push_str(",\"");
    object.push_str(key);
    object.push_str("\":");
    object.push_str(value);
}
