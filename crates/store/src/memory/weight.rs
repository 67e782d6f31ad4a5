//! Estimates of what things cost in memory. They are made when something comes and given back when it goes.

use trilogue_domain::Json;

use crate::record::Frame;
use crate::rows::{CheckpointRow, InterruptRow, QueueItem, RunRow, ThreadRow};

/// A row with its places in the maps, in bytes.
pub(super) const ROW_BYTES: usize = 512;
/// A message's or an idempotency key's row, in bytes.
pub(super) const SMALL_ROW_BYTES: usize = 256;
/// A frame around its bytes, in bytes.
const FRAME_BYTES: usize = 256;
/// How much more a frame costs once its events were read: the bytes themselves and the events.
const FRAME_FACTOR: usize = 2;

pub(super) fn frame(frame: &Frame) -> usize {
    FRAME_BYTES + FRAME_FACTOR * frame.bytes().len()
}

pub(super) fn thread(row: &ThreadRow) -> usize {
    ROW_BYTES + json(&row.metadata)
}

pub(super) fn run(row: &RunRow) -> usize {
    let optional = |value: &Option<Json>| value.as_ref().map_or(0, json);
    ROW_BYTES + json(&row.metadata) + optional(&row.config) + optional(&row.saved)
}

pub(super) fn checkpoint(row: &CheckpointRow) -> usize {
    SMALL_ROW_BYTES + row.value.as_ref().map_or(0, json)
}

pub(super) fn interrupt(row: &InterruptRow) -> usize {
    let schema = row.interrupt.schema.as_ref().map_or(0, json);
    2 * ROW_BYTES + json(&row.interrupt.payload) + schema
}

pub(super) fn item(item: &QueueItem) -> usize {
    ROW_BYTES + item.key.len() + json(&item.reference)
}

pub(super) fn json(json: &Json) -> usize {
    json.as_bytes().len()
}
