use super::{Interrupt, Json, Message, RunInput};
use crate::json::record::record;

record! {
    /// One execution of an agent.
    pub struct Run {
        /// The id of the run.
        id: String,
        /// The thread of the run.
        thread_id: String,
        /// The agent.
        agent: String,
        /// The status of the run.
        status: RunStatus,
        /// When the run was accepted.
        created_at: String,
        /// The principal that created the run.
        created_by?: String,
        /// When the agent was first started.
        started_at?: String,
        /// When the run ended.
        ended_at?: String,
        /// The earliest time at which the run starts.
        not_before?: String,
        /// How the run ended. Absent while it has not.
        outcome?: Outcome,
        /// The metadata of the run: an object.
        metadata: Json,
        /// The configuration of the run.
        config?: Json,
        /// The run whose agent called this run's agent. This run ends with the turn of that run at the latest.
        parent?: ParentRun,
        /// Who started the run, if no request did.
        started_by?: StartedBy,
        /// The agent's messages, oldest first. Only in responses about a single run.
        output?: Vec<Message>,
        /// The agent's result value, if it gave one. Only in responses about a single run.
        result?: Json,
        /// The pending interrupts, oldest first. Only in responses about a single run.
        interrupts?: Vec<Interrupt>,
    }

    /// Who started a run that no request created.
    pub enum StartedBy {
        /// The agent, by working while no prompt was open.
        Agent,
    }

    /// A run whose agent called another agent.
    pub struct ParentRun {
        /// The id of the run.
        run_id: String,
        /// The id of its thread.
        thread_id: String,
    }

    /// The status of a run.
    pub enum RunStatus: Hash {
        /// The run waits for its turn or its time.
        Queued,
        /// The agent is running.
        Running,
        /// The run waits for the answer to an interrupt.
        Interrupted,
        /// Cancellation was requested, and the run has not ended yet.
        Cancelling,
        /// The agent finished.
        Completed,
        /// The agent or the server failed.
        Failed,
        /// The run was cancelled.
        Cancelled,
        /// A question got no answer in time.
        TimedOut,
    }

    /// How a run ended.
    pub struct Outcome {
        /// `completed`, `failed`, `cancelled` or `timed_out`.
        status: RunStatus,
        /// Why the run was cancelled or timed out, as a stable code.
        reason?: String,
        /// Why the run failed.
        error?: RunError,
    }

    /// Why a run failed.
    pub struct RunError {
        /// A stable code: one of the server's, or the agent's own.
        code: String,
        /// What happened.
        message: String,
        /// Whether the same request may succeed later.
        transient: bool = default,
        /// The agent's own details.
        data?: Json,
    }

    /// A run to create.
    pub strict struct RunCreate {
        /// The agent to run.
        agent: String,
        /// The input of the run.
        input: RunInput,
        /// The thread of the run. Without this and without `create_thread`, the run gets a new thread that is not listed.
        thread_id?: String,
        /// Whether to create the thread if it does not exist. Without `thread_id`, the server makes the id.
        create_thread: bool = default,
        /// The metadata of a created thread.
        thread_metadata?: Json,
        /// The id of the run, unique in the tenant. The server makes one by default.
        id?: String,
        /// The agent's configuration for this run.
        config?: Json,
        /// The metadata of the run: an object.
        metadata?: Json,
        /// How the response is sent. The default is `wait`.
        mode: RunMode = default,
        /// What to do if another run has the turn of the thread.
        /// By default the run waits for its turn. If the other run waits for an answer and keeps the turn, the request fails with `thread_waiting`.
        strategy?: Strategy,
        /// What to do if another run waits for an answer and has given up its turn. The default is `start`.
        when_waiting: WhenWaiting = default,
        /// The earliest time at which the run may start (RFC 3339).
        not_before?: String,
    }

    /// How the response to a new run is sent.
    pub enum RunMode: Default {
        /// The response is sent when the run has ended or waits for an answer.
        #[default]
        Wait,
        /// The response is sent at once, with status 202.
        Async,
        /// The response is the run's event stream.
        Stream,
    }

    /// What a new run does if another run has the turn of the thread.
    pub enum Strategy {
        /// Refuse the new run.
        Reject,
        /// Cancel the run that has the turn, and keep its results.
        Interrupt,
        /// Cancel the run that has the turn, and remove its results.
        Rollback,
        /// Wait for the turn.
        Enqueue,
    }

    /// What a new run does if another run waits for an answer and has given up its turn.
    pub enum WhenWaiting: Default {
        /// Start the new run. The waiting run stays and can be answered.
        #[default]
        Start,
        /// Start the new run. The waiting run is cancelled with the reason `run_superseded`.
        Supersede,
        /// Refuse the new run with `thread_waiting`.
        Refuse,
    }
}

// === impl Run ===

impl Run {
    /// Returns the text of the agent's messages; empty in lists, which leave out the output.
    pub fn text(&self) -> String {
        self.output.iter().flatten().map(Message::text).collect()
    }
}

// === impl RunCreate ===

impl RunCreate {
    /// Returns a request to run this agent with this input and default values.
    pub fn new(agent: impl Into<String>, input: impl Into<RunInput>) -> Self {
        Self {
            agent: agent.into(),
            input: input.into(),
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
