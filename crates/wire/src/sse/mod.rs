//! Server-sent events: an encoder, and an incremental decoder without I/O.

mod decoder;
mod encoder;

pub use decoder::{Decoder, Error, Item, Limits};
pub use encoder::encode;
