//! What an editor launches: lines between it and the server, across the server's restarts.
//!
//! The editor speaks the Agent Client Protocol on this program's standard input and output; the server speaks it on its socket, with control lines between batches.
//! A batch is passed on when its control line has come, so a connection that breaks leaves nothing half told. On the next connection the
//! proxy introduces itself as the editor did, takes up each session behind the last position that was passed on, and asks again what has no answer yet, under keys that make it the same request.
//!
//! # Invariants
//! - Bytes are passed on as they came, but for the ids of the server's requests, which are numbered anew, and for the keys.
//! - Nothing but messages of the protocol reaches the editor.

mod asked;
mod book;
mod held;
mod link;
mod relay;
mod sessions;
mod state;
mod stdio;

pub use link::{GIVE_UP, Link};
pub use relay::{Told, run};
pub use stdio::Stdio;

/// The longest line of an editor that is taken before a server has said how long it may be, in bytes without its end.
pub const MAX_LINE_BYTES: usize = trilogue_wire::jsonrpc::DEFAULT_MAX_LINE_BYTES;
