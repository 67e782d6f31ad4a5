//! Event streams: shared rendering, and readers that pull from it.
//!
//! # Invariants
//! - A reader has no queue: it asks for what follows its cursor, so a slow one costs nothing but its place.
//! - What is sent was committed: everything comes from the store's read port.

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
