//! The conversions, through their public functions.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed expectation ends the test")]

mod agent_client_asking;
mod agent_client_blocks;
mod agent_client_consent;
mod agent_client_extra;
mod agent_client_faces;
mod agent_client_originals;
mod agent_client_rest;
mod agent_client_updates;
mod both_ways;
mod connect_agent;
mod connect_input;
mod connect_messages;
mod connect_openapi;
mod connect_request;
mod connect_resume;
mod connect_rows;
mod connect_updates;
mod connect_values;
mod official;
mod published;
mod sample;
#[path = "../../../testkit/src/specs.rs"]
#[expect(unreachable_pub, reason = "it is another crate's module")]
mod specs;
