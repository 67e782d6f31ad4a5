//! JSON-RPC 2.0 as data: what a line is, the replies that a broken one gets, and bounded framing by newlines.
//!
//! # Invariants
//! - Ids, params and results are carried as they were written; nothing of them is read here.
//! - No input makes anything here panic, recurse without bound, or hold more than the line limit.
//! - A response never gets a reply, however broken it is: two peers would answer each other's errors for ever.

mod code;
mod decoder;
mod encoder;
mod envelope;
mod error_object;
mod id;
mod incoming;
mod invalid;
mod oversize;
mod payload;

pub use code::Code;
pub use decoder::{Counts, DEFAULT_MAX_LINE_BYTES, Decoder, Frame};
pub use encoder::{Encoder, write_error, write_notification, write_request, write_response};
pub use error_object::ErrorObject;
pub use id::{Id, MAX_ID_BYTES};
pub use incoming::{
    DEFAULT_MAX_DEPTH, Incoming, Notification, Request, Response, parse, parse_within,
};
pub use invalid::{About, Invalid, Reason};
pub use oversize::{HEAD_BYTES, Oversize};
pub use payload::Payload;
