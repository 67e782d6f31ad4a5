use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Interrupt, Json, Message, RunInput};
use crate::json::record::record;

record! {
    /// One execution of an agent.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Run {
        /// Its id.
        id: String,
        /// The thread it runs on.
        thread_id: String,
        /// The agent.
        agent: String,
        /// Where it is.
        status: RunStatus,
        /// When it was accepted.
        created_at: String,
        /// The principal in whose name it was begun.
        created_by?: String,
        /// When its agent was first started.
        started_at?: String,
        /// When it ended.
        ended_at?: String,
        /// Not before this time.
        not_before?: String,
        /// How it ended; absent while it has not.
        outcome?: Outcome,
        /// Its metadata: an object.
        metadata: Json,
        /// The configuration it was given.
        config?: Json,
        /// The run whose agent called this one's. This run ends with that one's turn at the latest.
        parent?: ParentRun,
        /// What the agent said, oldest first. Only where one run is waited for or asked for.
        output?: Vec<Message>,
        /// The agent's answer as a value, where it gave one. Only where one run is waited for or asked for.
        result?: Json,
        /// The interrupts that are pending, oldest first. Only where one run is waited for or asked for.
        interrupts?: Vec<Interrupt>,
    }
}

record! {
    /// The run whose agent called another agent.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct ParentRun {
        /// The run.
        run_id: String,
        /// Its thread.
        thread_id: String,
    }
}

/// Where a run is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It waits for its turn or its time.
    Queued,
    /// The agent works.
    Running,
    /// It waits for the answer to an interrupt.
    Interrupted,
    /// It was asked to stop and has not yet.
    Cancelling,
    /// The agent finished.
    Completed,
    /// The agent or the server failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Nobody answered in time.
    TimedOut,
}

record! {
    /// How a run ended.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Outcome {
        /// `completed`, `failed`, `cancelled` or `timed_out`.
        status: RunStatus,
        /// Why it was cancelled or timed out, as a stable code.
        reason?: String,
        /// Why it failed.
        error?: RunError,
    }
}

/// Why a run failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunError {
    /// A stable code: one of ours, or the agent's own.
    pub code: String,
    /// What happened.
    pub message: String,
    /// Whether the same request may succeed later.
    #[serde(default)]
    pub transient: bool,
    /// The agent's own details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
}

record! {
    /// A run to create.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct RunCreate {
        /// The agent.
        agent: String,
        /// What the agent is given.
        input: RunInput,
        /// The thread to run on. Without one and without `create_thread` the run gets a thread of its own that is not listed.
        thread_id?: String,
        /// Whether to create the thread when there is none; with an id of the server's where `thread_id` is absent.
        #[serde(default)]
        create_thread: bool,
        /// Metadata of a thread that is created.
        thread_metadata?: Json,
        /// The run's id, unique in the tenant; made by the server when absent.
        id?: String,
        /// Settings of the agent for this run.
        config?: Json,
        /// Metadata of the run: an object.
        metadata?: Json,
        /// How to be told; `wait` when absent.
        #[serde(default)]
        mode: RunMode,
        /// What to do when another run has the thread's turn.
        /// When absent the run waits for its turn, but is refused with `thread_waiting` where the other waits for an answer and keeps the turn.
        strategy?: Strategy,
        /// What to do when another run waits for an answer and has given up the turn; `start` when absent.
        #[serde(default)]
        when_waiting: WhenWaiting,
        /// Do not start before this time (RFC 3339).
        not_before?: String,
    }
}

/// How the caller of a new run is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunMode {
    /// The response comes when the run has ended or waits for an answer.
    #[default]
    Wait,
    /// The response comes at once, with status 202.
    Async,
    /// The response is the run's event stream.
    Stream,
}

/// What a new run does when another has the thread's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Refuse the new run.
    Reject,
    /// Cancel the run that has the turn and keep what it did.
    Interrupt,
    /// Cancel the run that has the turn and remove what it did.
    Rollback,
    /// Wait for the turn.
    Enqueue,
}

/// What a new run does when another waits for an answer and has given up the turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenWaiting {
    /// It starts; the waiting run stays and can be answered.
    #[default]
    Start,
    /// It starts; the waiting run is cancelled with the reason `run_superseded`.
    Supersede,
    /// It is refused with `thread_waiting`.
    Refuse,
}

// === impl RunCreate ===

impl RunCreate {
    /// A run of this agent with this input, and everything else as it is by default.
    pub fn new(agent: impl Into<String>, input: RunInput) -> Self {
        Self {
            agent: agent.into(),
            input,
            thread_id: None,
            create_thread: false,
            thread_metadata: None,
            id: None,
            config: None,
            metadata: None,
            mode: RunMode::default(),
            strategy: None,
            when_waiting: WhenWaiting::default(),
            not_before: None,
        }
    }
}

// === impl RunStatus ===

impl RunStatus {
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::TimedOut)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Interrupted => "interrupted",
            Self::Cancelling => "cancelling",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
        }
    }
}
