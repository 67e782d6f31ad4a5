//! Pure conversions between the protocols and the vocabulary, and the table of what each can carry.
//!
//! One folder a protocol, with both directions: [`agent_client`] is the Agent Client Protocol, [`communication`] is the Agent Communication Protocol, [`connect`] the Agent Connect Protocol, [`native`] our own face.
//! [`shape`] brings chat and JSON by schema into each other; [`fidelity`] says what survives and where.
//!
//! # Invariants
//! - Nothing here does IO, keeps state or knows the store: what it needs is given to it.
//! - A conversion is written by hand, member by member, so that a member that is dropped is seen.

pub mod agent_client;
pub mod communication;
pub mod connect;
pub mod fidelity;
pub mod native;
pub mod shape;

use trilogue_domain::Timestamp;
use trilogue_wire::Time;

/// A time of the log as the protocols write it.
#[must_use]
pub fn time(at: Timestamp) -> Time {
    Time::from_micros(at.as_micros())
}
