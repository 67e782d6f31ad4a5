//! The broker, over real sockets.
#![expect(clippy::unwrap_used, reason = "a failed expectation ends the test")]

mod fixtures;
mod http_requests;
mod key_routes;
mod malformed_requests;
mod provider;
mod questions;
mod socks;
mod tunnel_names;
mod tunnels;
mod usage;
