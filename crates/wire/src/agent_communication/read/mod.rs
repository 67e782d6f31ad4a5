//! Reading under rules.

mod given;
mod leaf;
mod locate;
mod members;
mod place;
mod raw;
mod violation;

mod await_message;
mod error_body;
mod event;
mod list;
mod manifest;
mod manifest_metadata;
mod message;
mod metadata;
mod part;
mod request;
mod run;
mod session;

pub(super) use place::At;
pub use raw::MAX_DEPTH;
pub(super) use violation::quoted;
pub use violation::{MAX_QUOTED_BYTES, Violation};

use serde::Deserialize;

/// Whose text is read, and how strictly.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rules {
    /// What a server takes from the clients that exist.
    Compatible,
    /// The letter of the protocol's documents: every message has a role, every part a valid MIME type and exactly one of `content` and
    /// `content_url`, base64 is base64, and URLs are written as the standard says.
    Strict,
    /// What a client takes from servers: whatever can be understood.
    Peer,
}

/// What can be read. Everything in this module that comes from outside can.
pub trait Read: Sized {
    /// The value as it was sent: of the right shape, but held to no rule yet.
    #[doc(hidden)]
    type Draft: for<'de> Deserialize<'de>;

    /// Holds the value to the rules.
    #[doc(hidden)]
    fn finish(draft: Self::Draft, at: &At<'_>) -> Result<Self, Violation>;
}

/// Reads one value from JSON text.
///
/// # Errors
/// The first thing that breaks the rules.
pub fn read<T: Read>(bytes: &[u8], rules: Rules) -> Result<T, Violation> {
    read_at(bytes, &At::root(rules))
}

fn read_at<T: Read>(bytes: &[u8], at: &At<'_>) -> Result<T, Violation> {
    match serde_json::from_slice(bytes) {
        Ok(draft) => T::finish(draft, at),
        Err(error) => Err(locate::locate::<T::Draft>(bytes, &error, at)),
    }
}

/// Lets a type be part of a caller's own types: it is read as what a peer says.
macro_rules! deserialize_as_from_a_peer {
    ($($type:ty),+ $(,)?) => {$(
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let draft = <Self as Read>::Draft::deserialize(from)?;
                <Self as Read>::finish(draft, &At::root(Rules::Peer)).map_err(serde::de::Error::custom)
            }
        }
    )+};
}

deserialize_as_from_a_peer!(
    super::AgentManifest,
    super::AgentsList,
    super::AwaitRequest,
    super::AwaitResume,
    super::ErrorBody,
    super::Event,
    super::EventsList,
    super::Message,
    super::MessagePart,
    super::Metadata,
    super::Run,
    super::RunCreateRequest,
    super::RunResumeRequest,
    super::RunsList,
    super::Session,
);
