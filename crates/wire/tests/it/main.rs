//! Tests of the wire types and codecs through their public API.

#![expect(clippy::unwrap_used, reason = "a failed expectation ends the test")]

mod agent_client_bytes;
mod agent_client_gates;
mod agent_client_property;
mod agent_client_questions;
mod agent_client_samples;
mod agent_client_schema;
mod agent_client_tolerance;
mod communication;
mod communication_bytes;
mod communication_matrix;
mod communication_peer;
mod communication_round_trip;
mod communication_rules;
mod communication_schema;
mod communication_times;
mod connect;
mod connect_descriptor;
mod connect_reading;
mod connect_schema;
mod connect_sse;
mod jsonrpc_framing;
mod jsonrpc_messages;
mod native;
#[path = "../../../testkit/src/specs.rs"]
#[expect(unreachable_pub, reason = "it is another crate's module")]
mod specs;
mod sse;
