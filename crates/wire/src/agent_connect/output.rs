use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{InterruptPayloadSchema, Json, Message, OutputSchema};
use crate::json::or_default;
use crate::json::record::record;

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum RunOutput {
    /// The run ended well.
    Result(RunResult),
    /// The run waits for an answer.
    Interrupt(RunInterrupt),
    /// The run failed, was cancelled, or timed out.
    Error(RunError),
}

record! {
    /// The output of an agent.
    pub struct RunResult: Default {
        /// The output.
        #[schemars(with = "Option<OutputSchema>")]
        values?: Json,
        /// The agent's messages.
        messages?: Vec<Message>,
        /// The same as `values`, under the name in the protocol's document.
        result?: Json,
    }

    /// The question of a run.
    pub struct RunInterrupt {
        /// The payload, as a member named after the interrupt's type.
        #[schemars(with = "InterruptPayloadSchema")]
        interrupt: Json,
        /// The type of the interrupt.
        interrupt_type?: String,
        /// The payload alone.
        interrupt_payload?: Json,
        /// The id of the interrupt. An answer with this id applies to no other interrupt.
        interrupt_id?: String,
        /// The JSON Schema of the answer, if any.
        resume_schema?: Json,
    }

    /// Why a run failed.
    pub struct RunError {
        /// The id of the run.
        run_id: String,
        /// The number of the error.
        errcode: i64,
        /// What happened, for people.
        description: String,
        /// The stable code.
        code?: String,
        /// Whether the same request may succeed later.
        transient: bool = default from "or_default",
        /// Details. The definition of the code names their schema.
        data?: Json,
    }
}

// === impl RunResult ===

impl RunResult {
    /// Returns the text of the agent's messages, otherwise the `message` of its output; empty if it has neither.
    pub fn text(&self) -> String {
        text_of(self.messages.as_deref(), self.values.as_ref())
    }
}

// === impl RunOutput ===

impl<'de> Deserialize<'de> for RunOutput {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let whole = Json::deserialize(from)?;
        let kind: Kind = whole.read().map_err(de::Error::custom)?;
        match kind.kind.as_str() {
            "result" => whole.read().map(Self::Result),
            "interrupt" => whole.read().map(Self::Interrupt),
            "error" => whole.read().map(Self::Error),
            other => {
                return Err(de::Error::unknown_variant(other, &["result", "interrupt", "error"]));
            }
        }
        .map_err(de::Error::custom)
    }
}

/// Returns the text of these messages, otherwise the `message` of these values.
pub(super) fn text_of(messages: Option<&[Message]>, values: Option<&Json>) -> String {
    match (messages, values) {
        (Some(messages), _) => messages.iter().map(|message| message.content.to_text()).collect(),
        (None, Some(values)) => {
            values.read::<MessageValue>().map_or_else(|_| String::new(), |it| it.message)
        }
        (None, None) => String::new(),
    }
}

/// The text in the values of an agent without messages.
#[derive(Deserialize)]
struct MessageValue {
    message: String,
}

/// The type of a variant. A variant can contain JSON that must stay as it was written, which the reader of a tagged enum cannot do.
#[derive(Deserialize)]
pub(super) struct Kind {
    #[serde(rename = "type")]
    pub(super) kind: String,
}
