//! The wire types and codecs, through their public face.

#![expect(clippy::unwrap_used, reason = "a failed expectation ends the test")]

mod communication;
mod communication_bytes;
mod communication_matrix;
mod communication_peer;
mod communication_round_trip;
mod communication_rules;
mod communication_schema;
mod communication_times;
mod native;
mod sse;
