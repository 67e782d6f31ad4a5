use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{InterruptPayloadSchema, Json, Message, OutputSchema};
use crate::json::or_default;
use crate::json::record::record;

/// What came of a run.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum RunOutput {
    /// It ended well.
    Result(RunResult),
    /// It waits for an answer.
    Interrupt(RunInterrupt),
    /// It failed, was cancelled, or its time was over.
    Error(RunError),
}

record! {
    /// What an agent answered.
    #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct RunResult {
        /// The output.
        #[schemars(with = "Option<OutputSchema>")]
        values?: Json,
        /// What the agent said.
        messages?: Vec<Message>,
        /// The same as `values`, by the name that the protocol's document has for it.
        result?: Json,
    }

    /// What a run asks.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct RunInterrupt {
        /// The payload under the name of the interrupt's type.
        #[schemars(with = "InterruptPayloadSchema")]
        interrupt: Json,
        /// The interrupt's type.
        interrupt_type?: String,
        /// The payload alone.
        interrupt_payload?: Json,
        /// The interrupt's id: an answer that names it cannot meet another one.
        interrupt_id?: String,
        /// The JSON Schema of the answer, where there is one.
        resume_schema?: Json,
    }

    /// Why a run failed.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct RunError {
        /// The run.
        run_id: String,
        /// The number of the kind of error.
        errcode: i64,
        /// What happened, for people.
        description: String,
        /// The stable code.
        code?: String,
        /// Whether the same request may succeed later.
        #[serde(default, deserialize_with = "or_default")]
        transient: bool,
        /// Details, by the schema that the code's definition names.
        data?: Json,
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

/// What tells variants apart. Their members hold JSON as it was written, which a tagged enum's own reader cannot keep.
#[derive(Deserialize)]
pub(super) struct Kind {
    #[serde(rename = "type")]
    pub(super) kind: String,
}
