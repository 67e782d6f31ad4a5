use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{InterruptPayloadSchema, Json, Message, OutputSchema};
use crate::json::or_default;

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

/// What an agent answered.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// The output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<OutputSchema>")]
    pub values: Option<Json>,
    /// What the agent said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Message>>,
}

/// What a run asks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunInterrupt {
    /// The payload under the name of the interrupt's type.
    #[schemars(with = "InterruptPayloadSchema")]
    pub interrupt: Json,
    /// The interrupt's type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_type: Option<String>,
    /// The payload alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_payload: Option<Json>,
    /// The interrupt's id: an answer that names it cannot meet another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_id: Option<String>,
    /// The JSON Schema of the answer, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_schema: Option<Json>,
}

/// Why a run failed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunError {
    /// The run.
    pub run_id: String,
    /// The number of the kind of error.
    pub errcode: i64,
    /// What happened, for people.
    pub description: String,
    /// The stable code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Whether the same request may succeed later.
    #[serde(default, deserialize_with = "or_default")]
    pub transient: bool,
    /// Details, by the schema that the code's definition names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
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
