//! `probe`: a peer with its own protocol. The contracts of store and runtime run through it.
//!
//! It has only the features that the real protocols share: originals, an unknown variant, two wire events for each event, and an agent with its own memory.

mod agent;
mod deliver;
mod dialect;
mod view;

pub use agent::ProbeAgent;
pub use deliver::ProbeDeliver;
pub use dialect::{DIALECT, Notification, ProbeReader, VERSION};
pub use view::{WireEvent, parse_cursor, render};
