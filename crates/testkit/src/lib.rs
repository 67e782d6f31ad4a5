//! Test-only peers and starters of real services.
//!
//! Nothing here stands in for a part of ours: [`probe`] is a peer with a language of its own, [`callback`] listens on a real socket, [`server`] starts the real binary, and [`foreign`] runs the official clients of the protocols.

pub mod callback;
pub mod client;
pub mod folder;
pub mod foreign;
pub mod probe;
pub mod seed;
pub mod server;
#[cfg(target_os = "linux")]
pub mod shim;
pub mod wait;

pub use client::{Client, Reply};
pub use folder::Folder;
pub use seed::Seed;
pub use server::{Home, Server, ServerOptions};
pub use wait::until;
