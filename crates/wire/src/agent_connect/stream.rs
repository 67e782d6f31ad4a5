use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::output::{Kind, text_of};
use super::{
    Json, Message, Object, OutputSchema, RunError, RunInterrupt, RunStatus, StreamUpdateSchema,
};
use crate::json::record::record;

record! {
    /// One event of a stream.
    pub struct RunOutputStream {
        /// The id of the event: unique in the run, and increasing.
        id: String,
        /// Always `agent_event`.
        event: String,
        /// The content of the event.
        data: StreamPayload,
    }
}

/// The content of an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum StreamPayload {
    /// The output so far. It replaces the previous one.
    Values(ValuesUpdate),
    /// An update of the agent's own kind.
    Custom(CustomUpdate),
    /// The run waits for an answer.
    Interrupt(InterruptUpdate),
    /// The run failed.
    Error(ErrorUpdate),
}

record! {
    /// The output so far. It replaces the previous one.
    #[schemars(rename = "ValueRunResultUpdate")]
    pub struct ValuesUpdate {
        /// The id of the run.
        run_id: String,
        /// `pending`, and `success` for the last one.
        status: RunStatus,
        /// The output.
        #[schemars(with = "OutputSchema")]
        values: Json,
        /// The agent's messages so far.
        messages?: Vec<Message>,
        /// The same as `values`, under the name in the protocol's document.
        result?: Json,
    }

    /// An update of the agent's own kind.
    #[schemars(rename = "CustomRunResultUpdate")]
    pub struct CustomUpdate {
        /// The id of the run.
        run_id?: String,
        /// `pending`.
        status: RunStatus,
        /// The update.
        #[schemars(with = "StreamUpdateSchema")]
        update: Object,
        /// The kind of the update, if the agent names one.
        kind?: String,
    }

    /// The run waits for an answer. The last event of its stream.
    #[schemars(rename = "ValueRunInterruptUpdate")]
    pub struct InterruptUpdate {
        /// The id of the run.
        run_id: String,
        /// `interrupted`.
        status: RunStatus,
        /// The question.
        #[serde(flatten)]
        asked: RunInterrupt,
    }

    /// The run failed. The last event of its stream.
    #[schemars(rename = "ValueRunErrorUpdate")]
    pub struct ErrorUpdate {
        /// `error` or `timeout`.
        status: RunStatus,
        /// The error.
        #[serde(flatten)]
        error: RunError,
    }
}

// === impl ValuesUpdate ===

impl ValuesUpdate {
    /// Returns the text so far, like [`RunResult::text`](super::RunResult::text).
    pub fn text(&self) -> String {
        text_of(self.messages.as_deref(), Some(&self.values))
    }
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
    /// Returns the status of the run at this event.
    pub fn status(&self) -> RunStatus {
        match self {
            Self::Values(update) => update.status,
            Self::Custom(update) => update.status,
            Self::Interrupt(update) => update.status,
            Self::Error(update) => update.status,
        }
    }
}
