//! The persisted form of events and rows, with its version. Nothing else knows it.
//!
//! A frame is a version byte, a header (thread, run, numbers), length-prefixed records and a CRC-32C.
//! A row is a version byte, a kind byte, its fields in order and a CRC-32C.
//! Integers are LEB128 varints, signed ones zigzag-encoded; text and bytes carry their length before them.
//!
//! # Changing the format
//! Every change of what is written makes a new version, and the golden tests fail until it is named:
//!
//! | data \ reader | this version | older version |
//! |---|---|---|
//! | written by this version | read | refused as damaged by frame or row; the schema version refuses the store as a whole first |
//! | written by an older version | read by the decoder of that version, which stays | read |
//!
//! A new value in a closed set (an error code, a status, a tag) is a change too: an older reader cannot name it.
//! A record is never rewritten in place by a newer version; it is read in its old form until it is removed.

mod body;
mod codec;
mod content;
mod draft;
mod field;
mod frame;
mod interrupt;
mod row;
#[cfg(test)]
mod samples;
mod subject;

use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, Original};
use trilogue_domain::port::ReadOriginal;

pub(crate) use body::blobs_in;
pub use draft::Draft;
pub use frame::{Frame, RawOriginal, RawRecord, RawRecords};
pub(crate) use row::Record;

/// The version of frames and rows that this program writes.
///
/// | version | what it brought |
/// |---|---|
/// | 1 | the beginning |
/// | 2 | times that a message's sender states, negative indexes of citations, the rules of a run, the history that a client brought |
/// | 3 | callbacks, requests and statelessness of runs, why a run is to stop, configured instances, an agent's output as it grows |
/// | 4 | the message that a tool call is of, also in the head of an original, other ids of messages, notices of interrupts, what answers carry beyond themselves |
pub const FORMAT_VERSION: u8 = 4;
/// The oldest version that this program reads.
const OLDEST_VERSION: u8 = 1;

/// The bytes of a row or a frame as version 1 wrote them; `dropped` is how many bytes of its fields are newer.
#[cfg(test)]
pub(crate) fn as_version_1(bytes: Vec<u8>, dropped: usize) -> Vec<u8> {
    as_version(1, bytes, dropped)
}

/// As [`as_version_1`], of another version.
#[cfg(test)]
pub(crate) fn as_version(version: u8, mut bytes: Vec<u8>, dropped: usize) -> Vec<u8> {
    bytes.truncate(bytes.len() - codec::CHECKSUM_BYTES - dropped);
    bytes[0] = version;
    codec::put_checksum(&mut bytes);
    bytes
}

/// For stores without dialects: every original reads as [`Body::Opaque`].
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOriginals;

// === impl NoOriginals ===

impl ReadOriginal for NoOriginals {
    fn read(&self, _original: &Original) -> Result<Body> {
        Ok(Body::Opaque)
    }
}
