//! The server of one user on this machine: found by whoever needs it, started where none runs, one at a time.
//!
//! A server claims its user's [`Place`]: it holds a lock there for its life, listens on a socket, and leaves a [`Record`] of itself.
//! What an editor launches finds that socket, or [starts](start::ensure) a server first, and then [relays](proxy::run) lines.
//!
//! # Invariants
//! - One process at a time holds a place. What a dead one left there is in nobody's way.
//! - Only the user can reach the socket, and both ends look who is at the other one.
//! - What a command is started with stays in memory.

mod claim;
mod door;
mod idle;
mod log_file;
mod place;
pub mod proxy;
mod record;
pub mod start;
mod wrapped;

pub use claim::{Claim, Claimed};
pub use door::Door;
pub(crate) use idle::Idle;
pub use log_file::LogFile;
pub use place::Place;
pub use record::Record;
pub(crate) use wrapped::Wrapped;

use std::time::Duration;

/// How long a server that was started on demand stays when nobody needs it.
pub const IDLE_EXIT: Duration = Duration::from_secs(30 * 60);
