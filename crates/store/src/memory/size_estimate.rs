//! Estimates of the memory of rows and frames: added on insert, subtracted on removal.

use trilogue_domain::{ClientHistory, Json, Reference};

use crate::core::queue::QueueEntry;
use crate::record::Frame;
use crate::rows::{CheckpointRow, ConfigurationRow, InterruptRow, QueueItem, RunRow, ThreadRow};

/// A thread's row with its maps, in bytes.
const THREAD_BYTES: usize = 1_536;
/// A run's row with its lists, in bytes.
const RUN_BYTES: usize = 1_024;
/// Any other row with its places in the maps, in bytes.
pub(super) const ROW_BYTES: usize = 512;
/// A message's or an idempotency key's row, in bytes.
pub(super) const SMALL_ROW_BYTES: usize = 256;
/// The overhead of a frame in addition to its bytes. Decoded events are not held.
const FRAME_BYTES: usize = 512;

pub(super) fn frame(frame: &Frame) -> usize {
    FRAME_BYTES + frame.bytes().len()
}

pub(super) fn thread(row: &ThreadRow) -> usize {
    THREAD_BYTES + json(&row.metadata)
}

pub(super) fn run(row: &RunRow) -> usize {
    let optional = |value: &Option<Json>| value.as_ref().map_or(0, json);
    let address = row.callback.as_ref().map_or(0, |callback| callback.url.len());
    RUN_BYTES
        + json(&row.metadata)
        + optional(&row.config)
        + optional(&row.saved)
        + optional(&row.request)
        + address
}

pub(super) fn checkpoint(row: &CheckpointRow) -> usize {
    SMALL_ROW_BYTES
        + row.value.as_ref().map_or(0, json)
        + row.client_history.as_ref().map_or(0, client_history)
}

pub(super) fn interrupt(row: &InterruptRow) -> usize {
    let schema = row.interrupt.schema.as_ref().map_or(0, json);
    2 * ROW_BYTES + json(&row.interrupt.payload) + schema
}

pub(super) fn configuration(row: &ConfigurationRow) -> usize {
    ROW_BYTES + json(&row.config) + json(&row.metadata) + row.name.as_ref().map_or(0, String::len)
}

pub(super) fn entry(entry: &QueueEntry) -> usize {
    let item = |item: &QueueItem| ROW_BYTES + item.key.len() + json(&item.reference);
    item(&entry.item) + entry.next.as_ref().map_or(0, item)
}

fn client_history(history: &ClientHistory) -> usize {
    let entries = history.entries.iter().map(Reference::text_bytes);
    let each = size_of::<Reference>();
    entries.map(|bytes| bytes + each).sum::<usize>()
        + history.state.as_ref().map_or(0, |at| at.len())
}

pub(super) fn json(json: &Json) -> usize {
    json.as_bytes().len()
}
