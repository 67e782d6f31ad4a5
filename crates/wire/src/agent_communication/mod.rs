//! The Agent Communication Protocol as data.
//!
//! # Invariants
//! - Output has every field, including `null`, in the order of the declarations, without white space.
//! - Input is read by [`read()`] under [`Rules`]; a [`Violation`] names the field and the allowed values.
//! - Unknown members are dropped, unless a type has [`Extra`]. Those are written back unchanged, after the declared ones.

mod check;
mod error_body;
mod event;
mod id;
mod list;
mod manifest;
mod manifest_metadata;
mod message;
mod metadata;
mod object;
mod part;
mod request;
mod role;
mod run;
mod session;
pub mod splice;
pub mod sse;
mod time;
mod write;

pub use crate::json::{Extra, Json, MAX_DEPTH, MAX_QUOTED_BYTES, Read, Rules, Violation};
pub use crate::time::Time;
pub use error_body::{ErrorBody, ErrorCode};
pub use event::{Event, EventKind};
pub use id::Uuid;
pub use list::{AgentsList, EventsList, RunsList};
pub use manifest::AgentManifest;
pub use manifest_metadata::{
    Annotations, Capability, Dependency, DependencyType, Link, LinkType, ManifestMetadata, Person,
    PlatformUi, UiTool, UiType,
};
pub use message::Message;
pub use metadata::{CitationMetadata, Metadata, TrajectoryMetadata};
pub use part::{ContentEncoding, MessagePart};
pub use request::{AwaitRequest, AwaitResume, RunCreateRequest, RunResumeRequest};
pub use role::Role;
pub use run::{Run, RunMode, RunStatus};
pub use session::Session;
pub use time::OptionalTime;

use serde::{Deserialize, Deserializer, de};

use crate::json::{Style, read_styled};

pub fn read<T: Read>(bytes: &[u8], rules: Rules) -> Result<T, Violation> {
    read_styled(bytes, rules, Style::Exact)
}

/// Lets callers use a type inside their own types. It is read like a peer's message.
macro_rules! deserialize_from_a_peer {
    ($($type:ty),+ $(,)?) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let json = Json::deserialize(from)?;
                read(json.as_str().as_bytes(), Rules::Lenient).map_err(de::Error::custom)
            }
        }
    )+};
}

deserialize_from_a_peer!(
    AgentManifest,
    AgentsList,
    AwaitRequest,
    AwaitResume,
    ErrorBody,
    Event,
    EventsList,
    Message,
    MessagePart,
    Metadata,
    Run,
    RunCreateRequest,
    RunResumeRequest,
    RunsList,
    Session,
);
