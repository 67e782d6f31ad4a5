//! The wire types and codecs, through their public face.

#![expect(clippy::unwrap_used, reason = "a failed expectation ends the test")]

mod native;
mod sse;
