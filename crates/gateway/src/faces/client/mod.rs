//! The Agent Client Protocol, on streams of lines.
//!
//! A session is a thread. What a client is told of it comes from the thread's log only, through one [`pump::Pump`] for each session that
//! a client has open; answers to its requests go into the same outbox.
//!
//! # Invariants
//! - The requests of one session are worked on in the order in which they came.
//! - A prompt is answered behind the last event of its run.
//! - Whatever a client sends, the connection goes on; whatever it does not take, sessions go on.

mod calls;
mod cancel;
mod catch_up;
mod close;
mod connection;
mod crowd;
mod extension;
mod given_up;
mod heard;
mod in_words;
mod initialize;
mod lane;
mod link;
mod list;
pub(crate) mod listen;
mod open;
mod open_sessions;
mod opened;
mod option;
mod options;
mod outbox;
mod pending;
mod prompt;
mod pump;
mod question;
mod queued;
mod request;
mod said;
mod session;
mod settings;
mod show;
mod socket;
mod state;
mod voice;
mod wrap;

pub use options::{ClientOptions, MessageIdFormat, UserMessageId, WhenBusy};
pub use socket::{LocalReader, LocalWriter, split_local};
pub(crate) use state::State;
pub use wrap::{Wrap, WrapCommand};
