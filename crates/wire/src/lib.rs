//! The protocols as data: wire types and codecs, without I/O.
//!
//! # Invariants
//! - Nothing here performs I/O or needs an async runtime.
//! - No type of this crate reaches the runtime or the store: conversions are written by hand in `trilogue-mapping`.

pub mod agent_client;
pub mod agent_communication;
pub mod agent_connect;
pub mod encoded_bytes;
pub mod json;
pub mod jsonrpc;
pub mod native;
pub mod otlp;
pub mod sse;
mod time;

pub use time::Time;
