//! Test-only peers and starters of real services.
//!
//! Nothing here stands in for a part of ours: [`probe`] is a peer with a language of its own, [`callback`] listens on a real socket, and [`server`] starts the real binary.

pub mod callback;
pub mod client;
pub mod folder;
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
