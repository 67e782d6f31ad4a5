//! The names of the metrics that the runtime records. The gateway describes and shows them.

/// Runs whose agent began to work, by agent.
pub const RUNS_STARTED: &str = "trilogue_runs_started_total";
/// Runs that ended, by agent and outcome.
pub const RUNS_ENDED: &str = "trilogue_runs_ended_total";
/// Runs that failed, by error code; an agent's own codes count as `other`.
pub const RUN_FAILURES: &str = "trilogue_run_failures_total";
/// From the agent's start to the run's end, by agent. It contains the waits for answers.
pub const RUN_SECONDS: &str = "trilogue_run_seconds";
/// From the time at which a run could begin to the agent's start, by agent.
pub const QUEUE_SECONDS: &str = "trilogue_run_queue_seconds";
/// From the agent's start to its first event, by agent.
pub const FIRST_EVENT_SECONDS: &str = "trilogue_run_first_event_seconds";
/// From the agent's start to the beginning of its first message, by agent.
pub const FIRST_MESSAGE_SECONDS: &str = "trilogue_run_first_message_seconds";
/// Questions that agents asked, by agent and kind.
pub const QUESTIONS_ASKED: &str = "trilogue_questions_asked_total";
/// Questions that ended, by agent and kind of end: `answered`, `timed_out`, `cancelled` or `withdrawn`.
pub const QUESTIONS_ENDED: &str = "trilogue_questions_ended_total";
/// From a question to its answer, by agent.
pub const ANSWER_SECONDS: &str = "trilogue_question_answer_seconds";
/// From passing an append to the store until it is durable.
pub const COMMIT_SECONDS: &str = "trilogue_store_commit_seconds";
/// Events of one append.
pub const COMMIT_EVENTS: &str = "trilogue_store_commit_events";
/// Events that were appended.
pub const STORE_EVENTS: &str = "trilogue_store_events_total";
/// Bytes of the frames that were appended.
pub const STORE_BYTES: &str = "trilogue_store_appended_bytes_total";
/// Appends that failed, by error code.
pub const COMMIT_FAILURES: &str = "trilogue_store_commit_failures_total";
