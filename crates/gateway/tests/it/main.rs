//! The real gateway on a real socket, with the memory store and the real runtime.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed expectation ends the test")]

mod access;
mod agent;
mod api;
mod callbacks;
mod communication;
mod communication_agents;
mod communication_content;
mod communication_face;
mod communication_fetch;
mod communication_resume;
mod communication_runs;
mod communication_sessions;
mod cors;
mod fidelity;
mod isolation;
mod limits;
mod mounts;
mod mounts_isolation;
mod mounts_streams;
mod openapi;
mod peers;
mod rig;
mod shutdown;
mod streams;
