//! The native API, `/api/v1`, as data.
//!
//! Requests are strict: an unknown member is an error.
//! Responses leave out empty members; times are RFC 3339 in UTC with microseconds.

mod agent;
mod agent_form;
mod answer;
mod change;
mod checkpoint;
mod delivery;
mod draw;
mod event;
mod event_body;
mod event_forms;
mod fidelity;
mod input;
mod interrupt;
mod list;
pub mod local;
mod message;
mod metadata;
mod problem;
mod run;
mod run_request;
mod status;
mod thread;
mod token;

pub use crate::json::Json;
pub use agent::{Agent, AgentCommand, AgentInput, AgentInputKind, DeclaredInterrupt, LastFailure};
pub use agent_form::AgentForm;
pub use answer::{AnswerCreate, AnswerGiven};
pub use change::{ListChange, ListChangeKind};
pub use checkpoint::Checkpoint;
pub use delivery::{CallbackKeys, CallbackTarget, Delivery};
pub use draw::{Draw, Drawing, Drawn};
pub use event::{Event, Gap, Original};
pub use event_body::{
    EventBody, InterruptRaised, InterruptResolved, MessageCompleted, MessageDelta, MessagePart,
    MessageStarted, Nothing, PlanEntry, RuleApplied, RunAudit, RunCancelling, RunCreated, RunEnded,
    RunResult, StateCustom, StateOutput, StatePlan, StatePlanRemoved, StatePlanUpdated,
    StateSubagent, StateValues, ThoughtText, ThreadCreated, ThreadHeadMoved, ThreadMetadata,
    ThreadRunRemoved, ToolEnded, ToolStarted, ToolUpdated,
};
pub use event_forms::{EventForms, ProtocolForm};
pub use fidelity::{FidelityRow, FidelityVerdict};
pub use input::{InputMessage, InputPart, RunInput};
pub use interrupt::{Effect, Interrupt, PermissionOption, Resolution, ResolutionKind, Survives};
pub use list::List;
pub use message::{BlobLink, ContentEncoding, Message, Part};
pub use metadata::{Citation, OtherMetadata, PartMetadata, Trajectory};
pub use problem::Problem;
pub use run::{
    Outcome, ParentRun, Run, RunCreate, RunError, RunMode, RunStatus, StartedBy, Strategy,
    WhenWaiting,
};
pub use run_request::{RequestCode, RunRequests};
pub use status::{
    AgentDifference, AgentProcess, AgentState, ConnectedClient, Node, OpenSession, ProcessStderr,
    RuntimeState, Status, StoreState, ThreadClient, ThreadHandOver,
};
pub use thread::{Thread, ThreadCopy, ThreadCreate, ThreadPatch, ThreadState};
pub use token::{
    Caller, LoginApproval, LoginBegin, LoginBegun, LoginCode, LoginSecret, LoginState, LoginView,
    PageSession, RightName, SignIn, SignInLink, SignInOwner, Ticket, Token, TokenCreate,
    TokenCreated,
};
