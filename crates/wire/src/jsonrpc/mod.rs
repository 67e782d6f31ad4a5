//! JSON-RPC 2.0 as data: parsing of lines, the replies to invalid ones, and bounded framing by newlines.
//!
//! # Invariants
//! - Ids, params and results are kept as they were written; this module does not parse them.
//! - No input makes this module panic, recurse without a limit, or hold more than the line limit.
//! - A response never gets a reply, even if it is invalid: otherwise two peers would answer each other's errors for ever.

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
mod recovery;

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
pub use recovery::{LinePiece, MAX_LINE_MESSAGES, RecoveredLine, recover};
