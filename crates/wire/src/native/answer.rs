use super::{InputPart, Json, Part};
use crate::json::record::record;

record! {
    /// An answer to give. Requires exactly one of `option`, `value`, `message` and `text`.
    pub strict struct AnswerCreate: Default {
        /// The interrupt to answer. If the path names a run, the default is the interrupt that was last shown to the caller.
        /// If the path names an interrupt, this is absent or the same id.
        interrupt_id?: String,
        /// The id of the chosen option of a permission.
        option?: String,
        /// JSON, for `form`, `url` and the agent's own kinds.
        #[serde(deserialize_with = "crate::json::present")]
        value?: Json,
        /// The parts of a message, for `message`.
        message?: Vec<InputPart>,
        /// A plain text message, for `message`.
        text?: String,
        /// More members, as one object. An agent that supports them gets them with the answer.
        extra?: Json,
    }

    /// An answer that was given. Contains exactly one member.
    pub struct AnswerGiven: Default {
        /// The id of the chosen option.
        option?: String,
        /// JSON.
        #[serde(deserialize_with = "crate::json::present")]
        value?: Json,
        /// The parts of a message.
        message?: Vec<Part>,
    }
}

// === impl AnswerCreate ===

impl AnswerCreate {
    /// Returns an answer that chooses this option of a permission.
    pub fn option(id: impl Into<String>) -> Self {
        Self { option: Some(id.into()), ..Self::default() }
    }

    /// Returns an answer in plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// Returns an answer in JSON.
    pub fn value(value: Json) -> Self {
        Self { value: Some(value), ..Self::default() }
    }
}
