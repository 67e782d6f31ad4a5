//! The persisted form of events and rows, with its version. Only this module knows it.
//!
//! A frame is a version byte, a header (thread, run, numbers), length-prefixed records and a CRC-32C.
//! A row is a version byte, a kind byte, its fields in order and a CRC-32C.
//! Integers are LEB128 varints, signed ones zigzag-encoded; text and bytes carry their length before them.
//!
//! # Changing the format
//! Every change of the written form needs a new [`FORMAT_VERSION`] and a new schema version, which keeps older programs away. The golden tests fail until both exist.
//! The decoder of the previous version stays, and rows of that version are not rewritten.
//! A new value in a closed set (an error code, a status, a tag) is a change too: an older program cannot name it.

mod body;
mod codec;
mod content;
mod draft;
mod field;
mod frame;
mod interrupt;
mod note;
mod row;
#[cfg(test)]
mod samples;
mod subject;

use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, Original};
use trilogue_domain::port::ReadOriginal;

pub(crate) use body::blobs_in;
pub(crate) use codec::without_checksum;
pub use draft::Draft;
pub use frame::{Frame, RawOriginal, RawRecord, RawRecords};
pub(crate) use row::Record;

pub const FORMAT_VERSION: u8 = 1;
/// The version of a frame in which an original has blobs. Other frames keep [`FORMAT_VERSION`], so that older programs can read them; to such
/// a program, a thread with this version is damaged.
const OUTLINED_VERSION: u8 = 2;

/// For stores without dialects: every original reads as [`Body::Opaque`].
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOriginals;

// === impl NoOriginals ===

impl ReadOriginal for NoOriginals {
    fn read(&self, _original: &Original) -> Result<Body> {
        Ok(Body::Opaque)
    }
}
