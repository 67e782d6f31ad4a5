//! The Agent Communication Protocol as data.
//!
//! # Invariants
//! - What is written has every field, `null` included, in the order of the declarations, without white space.
//! - What comes from outside is read by [`read()`] under [`Rules`]; a [`Violation`] names the field and what is allowed there.
//! - Unknown members are dropped, except where a type has [`Extra`]: those come back as they were sent, after the declared ones.

mod check;
mod error_body;
mod event;
mod extra;
mod id;
mod list;
mod manifest;
mod manifest_metadata;
mod message;
mod metadata;
mod part;
mod read;
mod request;
mod role;
mod run;
mod session;
pub mod splice;
pub mod sse;
mod time;

pub use crate::native::Json;
pub use error_body::{ErrorBody, ErrorCode};
pub use event::{Event, EventKind};
pub use extra::Extra;
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
pub use read::{MAX_DEPTH, MAX_QUOTED_BYTES, Read, Rules, Violation, read};
pub use request::{AwaitRequest, AwaitResume, RunCreateRequest, RunResumeRequest};
pub use role::Role;
pub use run::{Run, RunMode, RunStatus};
pub use session::Session;
pub use time::{Time, When};
