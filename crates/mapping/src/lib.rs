//! Pure conversions between the protocols and the vocabulary, and the table of what each protocol can carry.
//!
//! One folder for each protocol, with both directions: [`agent_client`] is the Agent Client Protocol, [`communication`] is the Agent Communication Protocol, [`connect`] the Agent Connect Protocol, [`native`] our own face.
//! [`shape`] converts between chat and JSON by schema; [`fidelity`] lists what each protocol carries, and where.
//!
//! # Invariants
//! - No IO, no state, no store: callers pass everything in.
//! - A conversion is written by hand, member by member, so that a dropped member is visible.

pub mod agent_client;
pub mod choice;
mod citation;
pub mod communication;
pub mod connect;
mod content_link;
pub mod fidelity;
mod logged_position;
mod message_members;
pub mod native;
pub mod otlp;
pub mod plan;
pub mod provenance;
pub mod shape;

use std::collections::HashSet;

use trilogue_domain::{Message, Timestamp};
use trilogue_wire::Time;

pub use content_link::linked_conversation;
pub use logged_position::{LoggedPosition, replacement_id};

pub fn time(at: Timestamp) -> Time {
    Time::from_micros(at.as_micros())
}

/// Returns the index of the first message with the id of an earlier one.
fn repeated_id(messages: &[Message]) -> Option<usize> {
    let mut known = HashSet::with_capacity(messages.len());
    messages.iter().position(|message| !known.insert(&message.id))
}
