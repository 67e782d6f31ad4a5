//! What a holder keeps for the next server.

use super::buffer::{ErrorTail, OutputBuffer};
use super::frame::{HOLDER_VERSION, HolderFrame, MAX_LABELS};

/// What the next server needs to continue a turn.
#[derive(Debug)]
pub(super) struct TurnState {
    pub(super) output: OutputBuffer,
    pub(super) errors: ErrorTail,
    /// The labels of the inputs that were taken since the last mark, the oldest first.
    labels: Vec<String>,
    has_lost_labels: bool,
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
            labels: Vec::new(),
            has_lost_labels: false,
            note: Vec::new(),
            seen_to: 0,
        }
    }

    /// Adds the label of an input. If there are too many, the turn cannot be continued.
    pub(super) fn add_label(&mut self, label: String) {
        if label.is_empty() {
            return;
        }
        if self.labels.len() == MAX_LABELS {
            self.has_lost_labels = true;
        } else {
            self.labels.push(label);
        }
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
        (self.labels, self.has_lost_labels) = (Vec::new(), false);
    }

    pub(super) fn to_frame(&self) -> HolderFrame {
        HolderFrame::State {
            version: HOLDER_VERSION,
            kept_from: self.output.kept_from(),
            seen_to: self.seen_to,
            has_lost_labels: self.has_lost_labels,
            labels: self.labels.clone(),
            note: self.note.clone(),
        }
    }
}
