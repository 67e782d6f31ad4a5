//! Event streams: shared rendering, and readers that pull from it.
//!
//! # Invariants
//! - A reader has no queue: it pulls the frame after its cursor, so a slow reader costs only its position.
//! - Everything that is sent was committed: it comes from the store's read port.

pub(crate) mod cursor;
pub(crate) mod event_forms;
pub(crate) mod feed;
pub(crate) mod inline;
pub(crate) mod log_reader;
pub(crate) mod reader;
pub(crate) mod sample;
mod sampling;
mod streams;
pub(crate) mod view;

pub(crate) use streams::{OpenStream, StreamSource, Streams, stopping, stream_reply};
