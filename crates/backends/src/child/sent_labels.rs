//! What a child was sent, by the labels that its holder keeps of each line.

use std::collections::HashSet;

use trilogue_wire::agent_client::splice;
use uuid::Uuid;

/// A longer id is in a label by its hash, in bytes.
const MAX_ID_BYTES: usize = 64;

/// The calls and the answers that the child was sent.
#[derive(Debug, Default)]
pub(crate) struct SentLabels {
    /// The ids of the requests of the child that were answered, as JSON.
    answered: HashSet<String>,
    last_call: Option<u64>,
}

// === impl SentLabels ===

impl SentLabels {
    pub(super) fn read(labels: &[String]) -> Self {
        let mut sent = Self::default();
        for label in labels {
            if let Some(id) = label.strip_prefix("answer ") {
                sent.answered.insert(id.to_owned());
            } else if let Some(id) = label.strip_prefix("call ") {
                sent.last_call = sent.last_call.max(id.parse().ok());
            }
        }
        sent
    }

    /// The label of a line: which request it is, or answers. Empty for a notification.
    pub(super) fn label(line: &[u8]) -> String {
        let text = str::from_utf8(line).unwrap_or_default().trim();
        let Some(id) = splice::get(text, &["id"]) else { return String::new() };
        let kind = if splice::get(text, &["method"]).is_some() { "call" } else { "answer" };
        format!("{kind} {}", short_id(id))
    }

    /// Whether a request of the child was answered. It says so once.
    pub(super) fn take_answer(&mut self, id: &str) -> bool {
        self.answered.remove(&short_id(id))
    }

    /// The id of the last call, if there was one.
    pub(crate) fn last_call(&self) -> Option<u64> {
        self.last_call
    }
}

/// An id as it is in a label: a long one by its hash.
fn short_id(id: &str) -> String {
    if id.len() <= MAX_ID_BYTES {
        return id.to_owned();
    }
    format!("#{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, id.as_bytes()))
}
