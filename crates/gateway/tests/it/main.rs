//! The real gateway on a real socket, with the memory store and the real runtime.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed expectation ends the test")]

mod access;
mod agent;
mod api;
mod callbacks;
mod cors;
mod fidelity;
mod isolation;
mod limits;
mod openapi;
mod peers;
mod rig;
mod shutdown;
mod streams;
