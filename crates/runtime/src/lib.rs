//! Thread owners, runs, interrupts and queue workers.
//!
//! Every change is a command to the thread's owner.
//! Faces, timers and callbacks never append.
//!
//! # Invariants
//! - An event reaches a client only after it is durable, and only through the log.
//! - `running` is durable before an agent sees its input, except for a native agent called synchronously without idempotency key.
//! - A panic in one run is caught in that run.

mod agent_registry;
mod agent_started;
mod answer;
pub mod audit;
pub mod backend;
mod call_chains;
mod callback;
mod calls;
pub mod client;
mod context;
mod copy;
mod creator;
mod delivery_slots;
mod drain;
mod execute;
mod external_ports;
pub mod handle;
mod handover;
mod history;
mod in_place;
mod log_search;
mod monitor;
mod owner;
mod part;
mod passed_question;
mod peers;
mod presence;
mod provenance;
mod replace;
pub mod request;
mod row_changes;
mod run_end;
mod services;
pub mod session;
pub mod shares;
mod shown;
mod state;
mod step;
mod subagent;
mod subagent_member;
mod subagent_report;
mod submit;
mod thread_change;
mod turn;
mod workers;

pub use backend::{Availability, Backend, Input, ProcessFailure, Rewind};
pub use client::{AttachGuard, CONTROLLER_GONE, CallError, Client, ClientProfile, ControlView};
pub use context::{CallRequest, ChildOutcome, ChildRun, MemoryState, RunContext};
pub use handle::{Runtime, cancel_open_runs};
pub use history::{ConversationReader, NewestMessages, ReferenceReader, StateAt, StateReader};
pub use in_place::work_in_place;
pub use monitor::{AgentRunCounts, EndedRuns, OpenRunCounts, metric_names};
pub use passed_question::PassedQuestion;
pub use presence::{ActivePresence, Presence};
pub use request::{
    AnswerKey, AnswerTo, DrainReport, HandOverAll, NewThread, Options, RunCaller, RunRequest,
    RuntimeStatus, SettledReceiver, StateContent, Submitted, ThreadChoice, ThreadPatch,
    WhenHolding, WhenWaiting,
};
pub use row_changes::RowNews;
pub use session::{NewSubagent, Sessions, SubagentThread, ThreadContext};
pub use step::lost_failure;
pub use subagent_member::{PARENT_THREAD_MEMBER, is_subagent, without_subagent};
pub use submit::editor_member;
pub use turn::{EmitError, Ending, Stopped, Turn};
