//! The Agent Client Protocol, on streams of lines.
//!
//! A session is a thread. Everything a client sees of a session comes from the thread's log, through one pump per open session.
//! Responses to the client's own requests go into the same outbox.
//!
//! Each room uses only the rooms above it in this list:
//! - `wire`: lines, the outbox, the local socket.
//! - `connection`: one client's requests in flight, its session queues, its open sessions, the replies it owes.
//! - `asking`: requests to the client, for interrupts and for agents.
//! - `session`: the pump that renders a log as lines.
//! - `methods`: what each method of the protocol does.
//!
//! # Invariants
//! - The requests of one session are processed in the order in which they arrived.
//! - The response to a prompt follows the last event of its run.
//! - Nothing a client sends ends its connection, and a client that reads nothing stops no session.

mod ask_registry;
mod asking;
mod connection;
pub(crate) mod listener;
mod methods;
mod open_sessions;
mod options;
mod serve;
mod session;
mod state;
mod thread_metadata;
mod wire;
mod wrap;

pub use options::{ClientOptions, MessageIdFormat, UserMessageId, WhenBusy};
pub(crate) use state::State;
pub use wire::socket::{LocalReader, LocalWriter, split_local};
pub use wrap::{Wrap, WrapCommand};
