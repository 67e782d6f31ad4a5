//! Tests of the SDK at its boundaries: an agent over recorded ports, a client over a scripted transport.
#![expect(clippy::unwrap_used, reason = "functions of tests fail by panicking")]

mod agent_client;
mod client;
mod communication;
mod connect;
mod connect_stream;
mod context;
mod editor;
mod script;
mod stdio;
mod typed;
mod websocket;
