use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Interrupt, Json, Outcome, Part, Resolution};
use crate::json::record::record;
use crate::json::schema::schema;

/// Declares the bodies of events: an enum, and a structure for each variant with members.
macro_rules! bodies {
    ($($(#[$meta:meta])* $variant:ident($body:ident) = $name:literal $({ $($member:tt)* })? $(;)?)*) => {
        /// The content of an event. `type` selects the variant.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize)]
        #[serde(tag = "type")]
        pub enum EventBody {
            $($(#[$meta])* #[serde(rename = $name)] $variant($body),)*
            /// A type that this version does not know. Only its name is kept.
            #[serde(skip)]
            Unknown(String),
        }

        impl EventBody {
            /// All types that this version knows.
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
            pub struct $body {
                $($member)*
            }
        })?)*
    };
}

bodies! {
    /// The run was accepted. Its input follows as messages, or is in `input`.
    RunCreated(RunCreated) = "run.created" {
        /// The agent that will run.
        agent: String,
        /// The input as one JSON value, if the request has one.
        #[serde(deserialize_with = "crate::json::present")]
        input?: Json,
        /// Who requested the run. Absent in copies of a thread.
        audit?: RunAudit,
    }
    /// The agent was started.
    RunStarted(Nothing) = "run.started";
    /// The last pending interrupt was answered, and the agent continues.
    RunResumed(Nothing) = "run.resumed";
    /// Cancellation of the run was requested.
    RunCancelling(RunCancelling) = "run.cancelling" {
        /// The reason as a stable code, if it is more specific than a request to cancel.
        reason?: String,
    }
    /// The agent's result value.
    RunResult(RunResult) = "run.result" {
        /// The value.
        value: Json,
    }
    /// The run ended. The last event of a run.
    RunEnded(RunEnded) = "run.ended" {
        /// The outcome of the run.
        outcome: Outcome,
    }
    /// A message begins.
    MessageStarted(MessageStarted) = "message.started" {
        /// The id of the message.
        message_id: String,
        /// The author: `user`, `agent` or `agent/NAME`.
        role: String,
    }
    /// Text that continues the message's open text part, or begins one.
    MessageDelta(MessageDelta) = "message.delta" {
        /// The id of the message.
        message_id: String,
        /// The text.
        text: String,
    }
    /// A whole part.
    MessagePart(MessagePart) = "message.part" {
        /// The id of the message.
        message_id: String,
        /// The part.
        part: Part,
    }
    /// The message is complete.
    MessageCompleted(MessageCompleted) = "message.completed" {
        /// The id of the message.
        message_id: String,
    }
    /// Reasoning that is shown but belongs to no message.
    MessageThought(ThoughtText) = "message.thought" {
        /// The id of the thought. All its pieces share it. Absent in logs of older versions.
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
        /// The title for people.
        title: String,
        /// The input of the tool.
        #[serde(deserialize_with = "crate::json::present")]
        input?: Json,
        /// The message that triggered the call: the agent's previous message in the same run, otherwise the user's. Absent if unknown.
        message_id?: String,
    }
    /// A tool call has new content.
    ToolUpdated(ToolUpdated) = "tool.updated" {
        /// The id of the call.
        call_id: String,
        /// The content that the call has produced.
        content: Vec<Part>,
    }
    /// A tool call has ended.
    ToolEnded(ToolEnded) = "tool.ended" {
        /// The id of the call.
        call_id: String,
        /// `completed` or `failed`.
        status: String,
        /// The output of the tool.
        #[serde(deserialize_with = "crate::json::present")]
        output?: Json,
    }
    /// The run waits.
    InterruptRaised(InterruptRaised) = "interrupt.raised" {
        /// The question.
        interrupt: Interrupt,
    }
    /// The interrupt was resolved.
    InterruptResolved(InterruptResolved) = "interrupt.resolved" {
        /// The id of the interrupt.
        interrupt_id: String,
        /// How it ended.
        resolution: Resolution,
    }
    /// A permission rule decided, so no question was asked.
    InterruptRuleApplied(RuleApplied) = "interrupt.rule_applied" {
        /// The rule's name.
        rule: String,
        /// Whether the rule allowed the action.
        allowed: bool,
        /// The owner of the rule: `settings` for the agent's settings, `run` for the request of the run.
        origin?: String,
    }
    /// The thread's state as the agent sets it.
    StateValues(StateValues) = "state.values" {
        /// The state.
        values: Json,
    }
    /// The agent's output so far, as a whole.
    StateOutput(StateOutput) = "state.output" {
        /// The output so far. The next one replaces it, and finally the run's result.
        output: Json,
    }
    /// The agent's whole plan.
    StatePlan(StatePlan) = "state.plan" {
        /// The entries.
        entries: Vec<PlanEntry>,
    }
    /// A whole plan that has an id. It replaces the plan with the same id.
    StatePlanUpdated(StatePlanUpdated) = "state.plan_updated" {
        /// The id of the plan, chosen by the agent.
        plan_id: String,
        /// The entries of a list of tasks. Absent for a document.
        entries?: Vec<PlanEntry>,
        /// The whole document, as Markdown. Absent for a list of tasks.
        markdown?: String,
        /// The absolute path of the file that contains the document.
        path?: String,
    }
    /// A plan that has an id was removed.
    StatePlanRemoved(StatePlanRemoved) = "state.plan_removed" {
        /// The id of the plan.
        plan_id: String,
    }
    /// A sub-agent of the thread's agent, as it is now. It replaces the earlier description of the same thread.
    StateSubagent(StateSubagent) = "state.subagent" {
        /// The thread of the sub-agent.
        thread_id: String,
        /// The title for people.
        title?: String,
        /// Its role or purpose, for people.
        description?: String,
        /// What it does: `running`, `idle`, `requires_action` or `unknown`. Absent if its agent has not reported that.
        state?: String,
        /// Why an idle sub-agent stopped, in the agent's word, such as `end_turn`, `cancelled` or `error`.
        stop_reason?: String,
        /// Whether its work can be cancelled alone.
        can_cancel: bool,
    }
    /// An update of the agent's own kind.
    StateCustom(StateCustom) = "state.custom" {
        /// The kind of the update.
        kind: String,
        /// The data of the update.
        data: Json,
    }
    /// The thread was created.
    ThreadCreated(ThreadCreated) = "thread.created" {
        /// The id of the thread.
        thread_id: String,
        /// The metadata of the thread.
        metadata: Json,
        /// The thread that it was copied from.
        copied_from?: String,
    }
    /// The thread's metadata changed.
    ThreadMetadata(ThreadMetadata) = "thread.metadata" {
        /// The whole metadata.
        metadata: Json,
    }
    /// The thread's head moved.
    ThreadHeadMoved(ThreadHeadMoved) = "thread.head_moved" {
        /// The new head.
        checkpoint_id: String,
        /// The cause: `completion`, `patch`, `rollback`, `copy` or `replacement`.
        by: String,
    }
    /// A run was removed with all its events. The log has a gap.
    ThreadRunRemoved(ThreadRunRemoved) = "thread.run_removed" {
        /// The run that was removed.
        removed_run_id: String,
        /// The cause: `deleted`, `rolled_back`, `retention` or `erased`.
        reason: String,
    }
    /// A peer's event that this API has no type for. Only `original` has its content.
    Opaque(Nothing) = "opaque";
}

record! {
    /// Who requested a run.
    pub struct RunAudit {
        /// The principal for which the run acts.
        principal: String,
        /// The thread of the run.
        thread_id: String,
        /// The id of the token of the request. Absent if no token is needed.
        token_id?: String,
        /// The sender of the request: `network`, `local_socket`, or `agent` for an agent or one of its programs.
        source: String,
        /// Whether the creator could answer the run's questions. Only then may the run's settings keep the agent from asking.
        can_answer: bool,
    }
}

/// No members beyond the head.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Nothing {}

record! {
    /// One entry of a plan.
    pub struct PlanEntry {
        /// The task.
        content: String,
        /// `pending`, `in_progress` or `completed`.
        status: String,
    }
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
