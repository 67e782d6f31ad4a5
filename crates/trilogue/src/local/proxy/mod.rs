//! The proxy that an editor launches: it relays lines between the editor and the server, across restarts of the server.
//!
//! The editor speaks the Agent Client Protocol on standard input and output. The server speaks it on its socket or on a WebSocket, with control lines
//! between batches.
//! A batch reaches the editor when its control line has come, so a connection that breaks leaves no half batch.
//! After a reconnect the proxy repeats the editor's `initialize`, continues each session after the last position that the editor has,
//! and repeats requests without a response, under keys that make them the same requests.
//!
//! # Invariants
//! - Bytes are relayed unchanged, except for keys and for the ids of the server's requests, which get new numbers.
//! - Nothing but messages of the protocol reaches the editor.

mod batch_buffer;
mod questions;
mod relay;
mod remote_endpoint;
mod request_journal;
mod server_link;
mod sessions;
mod state;
mod stdio;

pub use relay::{ProxyNotice, run};
pub use remote_endpoint::RemoteEndpoint;
pub use server_link::{RECONNECT_LIMIT, REMOTE_RECONNECT_LIMIT, ServerLink, ServerPlace};
pub use stdio::Stdio;

/// The longest line of an editor before a server has announced a limit, in bytes without its line end.
pub const MAX_LINE_BYTES: usize = trilogue_wire::jsonrpc::DEFAULT_MAX_LINE_BYTES;
