use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::output::Kind;
use super::{
    Json, Message, Object, OutputSchema, RunError, RunInterrupt, RunStatus, StreamUpdateSchema,
};
use crate::json::record::record;

/// One event of a stream.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunOutputStream {
    /// Its id: unique in the run, and growing.
    pub id: String,
    /// Always `agent_event`.
    pub event: String,
    /// What it says.
    pub data: StreamPayload,
}

/// What an event of a stream says.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum StreamPayload {
    /// The output so far, which replaces the one before.
    Values(ValuesUpdate),
    /// An update of the agent's own.
    Custom(CustomUpdate),
    /// The run waits for an answer.
    Interrupt(InterruptUpdate),
    /// The run failed.
    Error(ErrorUpdate),
}

record! {
    /// The output so far, which replaces the one before.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
    #[schemars(rename = "ValueRunResultUpdate")]
    pub struct ValuesUpdate {
        /// The run.
        run_id: String,
        /// `pending`, and `success` with the last one.
        status: RunStatus,
        /// The output.
        #[schemars(with = "OutputSchema")]
        values: Json,
        /// What the agent has said.
        messages?: Vec<Message>,
        /// The same as `values`, by the name that the protocol's document has for it.
        result?: Json,
    }

    /// An update of the agent's own.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
    #[schemars(rename = "CustomRunResultUpdate")]
    pub struct CustomUpdate {
        /// The run.
        run_id?: String,
        /// `pending`.
        status: RunStatus,
        /// The update.
        #[schemars(with = "StreamUpdateSchema")]
        update: Object,
        /// Its kind, where the agent has named one.
        kind?: String,
    }
}

/// The run waits for an answer. The last event of its stream.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ValueRunInterruptUpdate")]
pub struct InterruptUpdate {
    /// The run.
    pub run_id: String,
    /// `interrupted`.
    pub status: RunStatus,
    /// What it asks.
    #[serde(flatten)]
    pub asked: RunInterrupt,
}

/// The run failed. The last event of its stream.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ValueRunErrorUpdate")]
pub struct ErrorUpdate {
    /// `error` or `timeout`.
    pub status: RunStatus,
    /// Why.
    #[serde(flatten)]
    pub error: RunError,
}

// === impl StreamPayload ===

impl<'de> Deserialize<'de> for StreamPayload {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let whole = Json::deserialize(from)?;
        let kind: Kind = whole.read().map_err(de::Error::custom)?;
        match kind.kind.as_str() {
            "values" => whole.read().map(Self::Values),
            "custom" => whole.read().map(Self::Custom),
            "interrupt" => {
                let asked = whole.read().map_err(de::Error::custom)?;
                whole.read().map(|Head { run_id, status }| {
                    Self::Interrupt(InterruptUpdate { run_id, status, asked })
                })
            }
            "error" => {
                let error = whole.read().map_err(de::Error::custom)?;
                whole.read().map(|Status { status }| Self::Error(ErrorUpdate { status, error }))
            }
            other => {
                let known = &["values", "custom", "interrupt", "error"];
                return Err(de::Error::unknown_variant(other, known));
            }
        }
        .map_err(de::Error::custom)
    }
}

#[derive(Deserialize)]
struct Head {
    run_id: String,
    status: RunStatus,
}

#[derive(Deserialize)]
struct Status {
    status: RunStatus,
}

impl StreamPayload {
    /// Where the run stands by this event.
    pub fn status(&self) -> RunStatus {
        match self {
            Self::Values(update) => update.status,
            Self::Custom(update) => update.status,
            Self::Interrupt(update) => update.status,
            Self::Error(update) => update.status,
        }
    }
}
