use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Interrupt, Json, Outcome, Part, Resolution};
use crate::json::record::record;
use crate::json::schema::schema;

/// Declares the bodies of events: the enum of all, and a structure for each that carries something.
macro_rules! bodies {
    ($($(#[$meta:meta])* $variant:ident($body:ident) = $name:literal $({ $($member:tt)* })? $(;)?)*) => {
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

        $($(record! {
            #[doc = concat!("What `", $name, "` carries.")]
            #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
            pub struct $body {
                $($member)*
            }
        })?)*
    };
}

bodies! {
    /// The run was accepted; its input follows as messages, or stands in `input`.
    RunCreated(RunCreated) = "run.created" {
        /// The agent that will run.
        agent: String,
        /// The input as one JSON value, where it was given so.
        #[serde(deserialize_with = "crate::json::present")]
        input?: Json,
        /// Who asked for the run. Absent in copies of a thread.
        audit?: RunAudit,
    }
    /// The agent was started.
    RunStarted(Nothing) = "run.started";
    /// The last pending interrupt was answered and the agent goes on.
    RunResumed(Nothing) = "run.resumed";
    /// Somebody asked the run to stop.
    RunCancelling(RunCancelling) = "run.cancelling" {
        /// Why, as a stable code, where there is more to say than that somebody asked.
        reason?: String,
    }
    /// The agent's answer as a value.
    RunResult(RunResult) = "run.result" {
        /// The value.
        value: Json,
    }
    /// The run ended. The last event of a run.
    RunEnded(RunEnded) = "run.ended" {
        /// How.
        outcome: Outcome,
    }
    /// A message begins.
    MessageStarted(MessageStarted) = "message.started" {
        /// The message.
        message_id: String,
        /// Who sends it: `user`, `agent` or `agent/NAME`.
        role: String,
    }
    /// Text that continues the message's open text part, or opens one.
    MessageDelta(MessageDelta) = "message.delta" {
        /// The message.
        message_id: String,
        /// The text.
        text: String,
    }
    /// A whole part.
    MessagePart(MessagePart) = "message.part" {
        /// The message.
        message_id: String,
        /// The part.
        part: Part,
    }
    /// The message is complete.
    MessageCompleted(MessageCompleted) = "message.completed" {
        /// The message.
        message_id: String,
    }
    /// Reasoning that is shown but is no part of any message.
    MessageThought(ThoughtText) = "message.thought" {
        /// The thought's id: all its pieces have it. Absent in what older versions logged.
        message_id?: String,
        /// The text.
        text: String,
    }
    /// A tool call begins.
    ToolStarted(ToolStarted) = "tool.started" {
        /// The call's id, unique in the run.
        call_id: String,
        /// The tool's name.
        tool: String,
        /// What a person reads.
        title: String,
        /// What the tool is given.
        #[serde(deserialize_with = "crate::json::present")]
        input?: Json,
        /// The message that triggered it: the agent's own before it in the same run, else the user's. Absent where that is not known.
        message_id?: String,
    }
    /// Something new about a tool call that goes on.
    ToolUpdated(ToolUpdated) = "tool.updated" {
        /// The call.
        call_id: String,
        /// Content that it has produced.
        content: Vec<Part>,
    }
    /// A tool call has ended.
    ToolEnded(ToolEnded) = "tool.ended" {
        /// The call.
        call_id: String,
        /// `completed` or `failed`.
        status: String,
        /// What the tool gave back.
        #[serde(deserialize_with = "crate::json::present")]
        output?: Json,
    }
    /// The run waits.
    InterruptRaised(InterruptRaised) = "interrupt.raised" {
        /// What is asked.
        interrupt: Interrupt,
    }
    /// The wait is over.
    InterruptResolved(InterruptResolved) = "interrupt.resolved" {
        /// The interrupt.
        interrupt_id: String,
        /// How it ended.
        resolution: Resolution,
    }
    /// A permission rule decided before anybody was asked.
    InterruptRuleApplied(RuleApplied) = "interrupt.rule_applied" {
        /// The rule's name.
        rule: String,
        /// Whether it allowed.
        allowed: bool,
        /// Whose rule it is: `settings` for the agent's settings, `run` for the request of the run.
        origin?: String,
    }
    /// The thread's state as the agent sets it.
    StateValues(StateValues) = "state.values" {
        /// The state.
        values: Json,
    }
    /// The agent's output so far, whole.
    StateOutput(StateOutput) = "state.output" {
        /// The output so far; the next one and finally the run's result replace it.
        output: Json,
    }
    /// The agent's plan, whole.
    StatePlan(StatePlan) = "state.plan" {
        /// The entries.
        entries: Vec<PlanEntry>,
    }
    /// The agent's own update.
    StateCustom(StateCustom) = "state.custom" {
        /// Its kind.
        kind: String,
        /// Its data.
        data: Json,
    }
    /// The thread was created.
    ThreadCreated(ThreadCreated) = "thread.created" {
        /// Its id.
        thread_id: String,
        /// Its metadata.
        metadata: Json,
        /// The thread it was copied from.
        copied_from?: String,
    }
    /// The thread's metadata changed.
    ThreadMetadata(ThreadMetadata) = "thread.metadata" {
        /// All of it.
        metadata: Json,
    }
    /// The thread's head moved.
    ThreadHeadMoved(ThreadHeadMoved) = "thread.head_moved" {
        /// The new head.
        checkpoint_id: String,
        /// Why: `completion`, `patch`, `rollback`, `copy` or `replacement`.
        by: String,
    }
    /// A run was removed with all its events; the log has a gap.
    ThreadRunRemoved(ThreadRunRemoved) = "thread.run_removed" {
        /// The run that was removed.
        removed_run_id: String,
        /// Why: `deleted`, `rolled_back`, `retention` or `erased`.
        reason: String,
    }
    /// A peer's event that our vocabulary has no word for: only `original` says what it is.
    Opaque(Nothing) = "opaque";
}

record! {
    /// Who asked for a run.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct RunAudit {
        /// In whose name it runs.
        principal: String,
        /// The thread on which it runs.
        thread_id: String,
        /// The id of the token that was used. Absent where none is needed.
        token_id?: String,
        /// What sent the request: `network`, `local_socket`, or `agent` for an agent or a program of one.
        source: String,
        /// Whether its creator could answer its questions. Only then its settings may keep the agent from asking.
        can_answer: bool,
    }
}

/// Nothing beyond the head.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Nothing {}

/// One entry of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlanEntry {
    /// What is to be done.
    pub content: String,
    /// `pending`, `in_progress` or `completed`.
    pub status: String,
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
