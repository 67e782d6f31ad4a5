//! What a holder keeps for the next server.

use std::collections::VecDeque;

use super::buffer::{ErrorTail, OutputBuffer};
use super::frame::{HOLDER_VERSION, HolderFrame, MAX_LABELS};

/// What the next server needs to continue a turn.
#[derive(Debug)]
pub(super) struct TurnState {
    pub(super) output: OutputBuffer,
    pub(super) errors: ErrorTail,
    /// The labels of the inputs that were taken since the last mark, the oldest first.
    labels: VecDeque<String>,
    note: Vec<u8>,
    /// Servers may have got the output before this offset.
    seen_to: u64,
}

// === impl TurnState ===

impl TurnState {
    pub(super) fn new(buffer_bytes: u64) -> Self {
        Self {
            output: OutputBuffer::new(buffer_bytes),
            errors: ErrorTail::default(),
            labels: VecDeque::new(),
            note: Vec::new(),
            seen_to: 0,
        }
    }

    /// Adds the label of an input. The oldest goes if there are too many.
    pub(super) fn add_label(&mut self, label: String) {
        if label.is_empty() {
            return;
        }
        if self.labels.len() == MAX_LABELS {
            self.labels.pop_front();
        }
        self.labels.push_back(label);
    }

    /// Notes that a server may have got the output before this offset.
    pub(super) fn record_seen(&mut self, offset: u64) {
        self.seen_to = self.seen_to.max(offset);
    }

    pub(super) fn set_note(&mut self, note: Vec<u8>) {
        self.note = note;
    }

    /// Drops the output before an offset, and all labels.
    pub(super) fn mark(&mut self, offset: u64) {
        self.output.drop_before(offset);
        self.labels = VecDeque::new();
    }

    pub(super) fn to_frame(&self) -> HolderFrame {
        HolderFrame::State {
            version: HOLDER_VERSION,
            kept_from: self.output.kept_from(),
            seen_to: self.seen_to,
            labels: self.labels.iter().cloned().collect(),
            note: self.note.clone(),
        }
    }
}
