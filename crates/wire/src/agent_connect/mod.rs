//! The Agent Connect Protocol as data: OpenAPI 0.2.3, and the additional requirements of the protocol's document.
//!
//! # Invariants
//! - Empty members are not written; a member that is `null` counts as absent when it is read.
//! - Unknown members are ignored, except in a configured instance, because they could be settings that would be lost. An unknown word in a list of the protocol's words is a [`Violation`] with its path.
//! - Times are written as RFC 3339 in UTC with `Z` and six digits; a time without an offset is read as UTC.

mod agent;
mod authentication;
mod configuration;
mod descriptor;
mod descriptor_check;
mod error_body;
mod manifest;
mod message;
mod number;
mod object;
mod output;
mod request;
mod request_words;
mod run;
mod schema;
pub mod sse;
mod stream;
mod thread;

pub use crate::json::{Json, Violation, decode, decode_list, decode_or_empty};
pub use crate::time::Time;
pub use agent::{
    Agent, AgentCapabilities, AgentMetadata, AgentRef, AgentSchemas, AgentSearchRequest, PROTOCOL,
    SPEC_VERSION,
};
pub use authentication::Authentication;
pub use configuration::{
    Configuration, ConfigurationCreate, ConfigurationPatch, ConfigurationSearchRequest,
};
pub use descriptor::{Capabilities, Descriptor, InterruptSpec, Specs, Streaming};
pub use error_body::{AgentErrors, ErrorBody, ErrorDefinition};
pub use manifest::Manifest;
pub use message::{Block, Message, MessageContent};
pub use number::{AfterSeconds, Limit, Offset, TtlSeconds};
pub use object::Object;
pub use output::{RunError, RunInterrupt, RunOutput, RunResult};
pub use request::{RunCreate, RunSearchRequest};
pub use request_words::{
    CallbackEvent, CallbackTo, CancelAction, IfExists, IfNotExists, MultitaskStrategy,
    OnCompletion, OnDisconnect, StreamMode, StreamModes,
};
pub use run::{Run, RunStatus, RunWaitResponse};
pub use schema::{
    ConfigSchema, InputSchema, InterruptPayloadSchema, OutputSchema, ResumePayloadSchema,
    StreamUpdateSchema, ThreadStateSchema,
};
pub use stream::{
    CustomUpdate, ErrorUpdate, InterruptUpdate, RunOutputStream, StreamPayload, ValuesUpdate,
};
pub use thread::{
    Thread, ThreadCheckpoint, ThreadCreate, ThreadPatch, ThreadSearchRequest, ThreadState,
    ThreadStatus,
};
