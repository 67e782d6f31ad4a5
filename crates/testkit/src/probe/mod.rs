//! `probe`: a peer with a language of its own, through which the contracts of store and runtime run.
//!
//! It has what the real protocols have and no more: originals, a variant that nobody knows, two wire events for each event, and an agent whose memory is its own.

mod agent;
mod deliver;
mod dialect;
mod view;

pub use agent::ProbeAgent;
pub use deliver::ProbeDeliver;
pub use dialect::{DIALECT, Notification, ProbeReader, VERSION};
pub use view::{WireEvent, parse_cursor, render};
