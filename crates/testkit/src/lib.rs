//! Test-only peers and starters of real services.
//!
//! Nothing here replaces a part of Trilogue. The modules are:
//!
//! - [`probe`]: a peer with its own protocol.
//! - [`callback`], [`limited_server`], [`refusing_server`], [`wait_only_server`] and [`faulty_server`]: receivers and servers on real sockets, with few features or with faults.
//! - [`server`]: starts the real binary.
//! - [`foreign`] and [`official`]: run the official clients and agents of the protocols.
//! - [`editor`]: a client of the Agent Client Protocol that hides nothing; [`schema`] validates messages of that protocol against its official schema.
//! - [`model`]: a model for coding agents.
//! - [`parts`]: makes cards, messages and runs; [`documents`] has the examples and rules of the protocols.
//! - [`disk_journal`]: computes the state of a folder after a power cut.
//! - [`link`]: a network that fails in many ways; [`skewed_clock`]: a clock that is wrong; [`proxy`]: nginx.
//! - [`services`]: names the private PostgreSQL and NATS, and starts further ones.
//! - [`linear`]: checks that the operations of several clients are linearizable.
//! - [`port`]: reserves ports.

pub mod callback;
pub mod client;
mod comparable_events;
pub mod disk_journal;
pub mod documents;
pub mod editor;
pub mod error_text;
pub mod faulty_server;
pub mod folder;
pub mod foreign;
pub mod limited_server;
pub mod linear;
pub mod link;
mod loopback;
pub mod model;
pub mod official;
pub mod parts;
pub mod payload_server;
pub mod port;
pub mod probe;
mod programs;
pub mod proxy;
pub mod refusing_server;
pub mod schema;
pub mod scripted_server;
pub mod seed;
pub mod server;
pub mod services;
#[cfg(target_os = "linux")]
pub mod shim;
#[cfg(target_os = "linux")]
pub mod skewed_clock;
pub mod specs;
#[cfg(test)]
mod specs_tests;
pub mod wait;
pub mod wait_only_server;

pub use client::{Client, Reply};
pub use comparable_events::comparable_events;
pub use editor::Editor;
pub use folder::Folder;
pub use link::{ConnectionBreak, Link, Pace};
pub use official::{Official, OfficialServer};
pub use port::reserve_address;
pub use programs::{cargo, cyclonedx_schema, inspector_packages, is_built, xtask};
pub use proxy::Proxy;
pub use seed::Seed;
pub use server::{Home, Server, ServerOptions, builtin};
pub use services::{DatabaseStop, Replication, Service, Services};
#[cfg(target_os = "linux")]
pub use skewed_clock::SkewedClock;
pub use wait::until;
