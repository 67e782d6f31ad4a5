use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Interrupt, Json, Outcome, Part, Resolution};
use crate::json::schema::schema;

macro_rules! bodies {
    ($($(#[$meta:meta])* $variant:ident($body:ty) = $name:literal,)*) => {
        /// What happened, told apart by `type`.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize)]
        #[serde(tag = "type")]
        pub enum EventBody {
            $($(#[$meta])* #[serde(rename = $name)] $variant($body),)*
            /// A type that this version does not know; nothing of it is kept but its name.
            #[serde(skip)]
            Unknown(String),
        }

        impl EventBody {
            /// Every type that this version knows.
            pub const TYPES: &'static [&'static str] = &[$($name,)*];

            #[must_use]
            pub fn name(&self) -> &str {
                match self { $(Self::$variant(_) => $name,)* Self::Unknown(name) => name }
            }

            pub(super) fn read(name: &str, event: &str) -> Result<Self, serde_json::Error> {
                match name {
                    $($name => serde_json::from_str(event).map(Self::$variant),)*
                    other => Ok(Self::Unknown(other.to_owned())),
                }
            }

            pub(super) fn schemas(generator: &mut SchemaGenerator, head: &Schema) -> Schema {
                let variants = [$(variant($name, head, &generator.subschema_for::<$body>()),)*];
                json_schema!({ "oneOf": variants })
            }
        }
    };
}

bodies! {
    /// The run was accepted; its input follows as messages, or stands in `input`.
    RunCreated(RunCreated) = "run.created",
    /// The agent was started.
    RunStarted(Nothing) = "run.started",
    /// The last pending interrupt was answered and the agent goes on.
    RunResumed(Nothing) = "run.resumed",
    /// Somebody asked the run to stop.
    RunCancelling(RunCancelling) = "run.cancelling",
    /// The agent's answer as a value.
    RunResult(RunResult) = "run.result",
    /// The run ended. The last event of a run.
    RunEnded(RunEnded) = "run.ended",
    /// A message begins.
    MessageStarted(MessageStarted) = "message.started",
    /// Text that continues the message's open text part, or opens one.
    MessageDelta(MessageDelta) = "message.delta",
    /// A whole part.
    MessagePart(MessagePart) = "message.part",
    /// The message is complete.
    MessageCompleted(MessageCompleted) = "message.completed",
    /// Reasoning that is shown but is no part of any message.
    MessageThought(ThoughtText) = "message.thought",
    /// A tool call begins.
    ToolStarted(ToolStarted) = "tool.started",
    /// Something new about a tool call that goes on.
    ToolUpdated(ToolUpdated) = "tool.updated",
    /// A tool call has ended.
    ToolEnded(ToolEnded) = "tool.ended",
    /// The run waits.
    InterruptRaised(InterruptRaised) = "interrupt.raised",
    /// The wait is over.
    InterruptResolved(InterruptResolved) = "interrupt.resolved",
    /// A permission rule decided before anybody was asked.
    InterruptRuleApplied(RuleApplied) = "interrupt.rule_applied",
    /// The thread's state as the agent sets it.
    StateValues(StateValues) = "state.values",
    /// The agent's output so far, whole.
    StateOutput(StateOutput) = "state.output",
    /// The agent's plan, whole.
    StatePlan(StatePlan) = "state.plan",
    /// The agent's own update.
    StateCustom(StateCustom) = "state.custom",
    /// The thread was created.
    ThreadCreated(ThreadCreated) = "thread.created",
    /// The thread's metadata changed.
    ThreadMetadata(ThreadMetadata) = "thread.metadata",
    /// The thread's head moved.
    ThreadHeadMoved(ThreadHeadMoved) = "thread.head_moved",
    /// A run was removed with all its events; the log has a gap.
    ThreadRunRemoved(ThreadRunRemoved) = "thread.run_removed",
    /// A peer's event that our vocabulary has no word for: only `original` says what it is.
    Opaque(Nothing) = "opaque",
}

/// Nothing beyond the head.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Nothing {}

/// See [`EventBody::RunCreated`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunCreated {
    /// The agent that will run.
    pub agent: String,
    /// The input as one JSON value, where it was given so.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::json::present"
    )]
    pub input: Option<Json>,
}

/// See [`EventBody::RunCancelling`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunCancelling {
    /// Why, as a stable code, where there is more to say than that somebody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// See [`EventBody::RunResult`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// The value.
    pub value: Json,
}

/// See [`EventBody::RunEnded`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunEnded {
    /// How.
    pub outcome: Outcome,
}

/// See [`EventBody::MessageStarted`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MessageStarted {
    /// The message.
    pub message_id: String,
    /// Who sends it: `user`, `agent` or `agent/NAME`.
    pub role: String,
}

/// See [`EventBody::MessageDelta`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MessageDelta {
    /// The message.
    pub message_id: String,
    /// The text.
    pub text: String,
}

/// See [`EventBody::MessagePart`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MessagePart {
    /// The message.
    pub message_id: String,
    /// The part.
    pub part: Part,
}

/// See [`EventBody::MessageCompleted`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MessageCompleted {
    /// The message.
    pub message_id: String,
}

/// See [`EventBody::MessageThought`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ThoughtText {
    /// The text.
    pub text: String,
}

/// See [`EventBody::ToolStarted`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ToolStarted {
    /// The call's id, unique in the run.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// What a person reads.
    pub title: String,
    /// What the tool is given.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::json::present"
    )]
    pub input: Option<Json>,
    /// The message that triggered it: the agent's own before it in the same run, else the user's. Absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

/// See [`EventBody::ToolUpdated`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ToolUpdated {
    /// The call.
    pub call_id: String,
    /// Content that it has produced.
    pub content: Vec<Part>,
}

/// See [`EventBody::ToolEnded`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ToolEnded {
    /// The call.
    pub call_id: String,
    /// `completed` or `failed`.
    pub status: String,
    /// What the tool gave back.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::json::present"
    )]
    pub output: Option<Json>,
}

/// See [`EventBody::InterruptRaised`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct InterruptRaised {
    /// What is asked.
    pub interrupt: Interrupt,
}

/// See [`EventBody::InterruptResolved`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct InterruptResolved {
    /// The interrupt.
    pub interrupt_id: String,
    /// How it ended.
    pub resolution: Resolution,
}

/// See [`EventBody::InterruptRuleApplied`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RuleApplied {
    /// The rule's name.
    pub rule: String,
    /// Whether it allowed.
    pub allowed: bool,
}

/// See [`EventBody::StateValues`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StateValues {
    /// The state.
    pub values: Json,
}

/// See [`EventBody::StateOutput`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StateOutput {
    /// The output so far; the next one and finally the run's result replace it.
    pub output: Json,
}

/// See [`EventBody::StatePlan`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StatePlan {
    /// The entries.
    pub entries: Vec<PlanEntry>,
}

/// One entry of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlanEntry {
    /// What is to be done.
    pub content: String,
    /// `pending`, `in_progress` or `completed`.
    pub status: String,
}

/// See [`EventBody::StateCustom`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StateCustom {
    /// Its kind.
    pub kind: String,
    /// Its data.
    pub data: Json,
}

/// See [`EventBody::ThreadCreated`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ThreadCreated {
    /// Its id.
    pub thread_id: String,
    /// Its metadata.
    pub metadata: Json,
    /// The thread it was copied from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_from: Option<String>,
}

/// See [`EventBody::ThreadMetadata`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ThreadMetadata {
    /// All of it.
    pub metadata: Json,
}

/// See [`EventBody::ThreadHeadMoved`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ThreadHeadMoved {
    /// The new head.
    pub checkpoint_id: String,
    /// Why: `completion`, `patch`, `rollback`, `copy` or `replacement`.
    pub by: String,
}

/// See [`EventBody::ThreadRunRemoved`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ThreadRunRemoved {
    /// The run that was removed.
    pub removed_run_id: String,
    /// Why: `deleted`, `rolled_back`, `retention` or `erased`.
    pub reason: String,
}

fn variant(name: &str, head: &Schema, body: &Schema) -> Schema {
    json_schema!({
        "title": name,
        "properties": { "type": { "const": name } },
        "required": ["type"],
        "allOf": [head, body],
    })
}

schema!(EventBody = "EventBody", |generator| Self::schemas(generator, &Schema::default()));
