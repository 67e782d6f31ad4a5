//! The vocabulary of Trilogue: agents, threads, runs, messages, events, interrupts, limits, errors.
//!
//! This crate knows no protocol and performs no I/O.
//! Its types are not serialisable. Wire types are in `trilogue-wire`, the persisted form is in `trilogue-store`, and conversions are written by hand; the wire conversions are in `trilogue-mapping`.

#![warn(missing_docs)]

pub mod agent;
pub mod content;
pub mod error;
pub mod event;
pub mod id;
pub mod interrupt;
pub mod json;
pub mod limits;
mod lock;
pub mod port;
pub mod run;
pub mod safe;
pub mod scope;
pub mod short_id;
pub mod thread;
pub mod time;
pub mod trace;
pub mod transcript;

pub use agent::{
    Abilities, AgentCard, AgentCommand, DeclaredError, DeclaredInterrupt, InputKind,
    SystemPromptAbility,
};
pub use content::{Citation, Content, Message, Part, PartMetadata, Role, Times, Trajectory};
pub use error::{Code, Error, Result, Violation};
pub use event::{Body, Event, Original};
pub use id::{
    AgentName, CheckpointId, CheckpointKey, ConfigurationId, DeliveryId, InterruptId, MessageId,
    PrincipalId, RunId, RunKey, TenantId, ThreadId, ThreadKey, TokenId,
};
pub use interrupt::{Answer, Interrupt, InterruptKind, Resolution, RuleOrigin, Survives};
pub use json::Json;
pub use lock::lock;
pub use run::{
    Callback, Failure, Input, Outcome, ParentRun, Provenance, RequestSource, RunAudit, RunStatus,
    StartedBy, Strategy,
};
pub use scope::{Principal, Right, Rights, Scope};
pub use short_id::{IdKind, ShortId};
pub use thread::{ClientHistory, HeadMove, Reference, SystemPrompt, ThreadActivity};
pub use time::Timestamp;
pub use trace::{RunTrace, TraceContext};
pub use transcript::Transcript;
