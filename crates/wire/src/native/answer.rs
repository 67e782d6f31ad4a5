use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InputPart, Json, Part};
use crate::json::record::record;

record! {
    /// An answer to give. Exactly one of `option`, `value`, `message` and `text` is there.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct AnswerCreate {
        /// The interrupt that is answered. Where the path names a run: the interrupt last shown to the caller when absent.
        /// Where the path names the interrupt: absent, or the same.
        interrupt_id?: String,
        /// The id of the chosen option of a permission.
        option?: String,
        /// JSON, for `form`, `url` and the agent's own kinds.
        #[serde(deserialize_with = "crate::json::present")]
        value?: Json,
        /// A message's parts, for `message`.
        message?: Vec<InputPart>,
        /// A message of plain text, for `message`.
        text?: String,
        /// Further members, as one object: an agent that takes them gets them with the answer.
        extra?: Json,
    }

    /// An answer that was given. Exactly one member is there.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct AnswerGiven {
        /// The id of the chosen option.
        option?: String,
        /// JSON.
        #[serde(deserialize_with = "crate::json::present")]
        value?: Json,
        /// A message's parts.
        message?: Vec<Part>,
    }
}
