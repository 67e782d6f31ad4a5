use crate::json::record::record;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

record! {
    /// What went wrong (RFC 9457, `application/problem+json`).
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct Problem {
        /// Names the kind of problem: `urn:trilogue:error:` and the code.
        #[serde(rename = "type")]
        kind: String,
        /// The kind of problem in words.
        title: String,
        /// The HTTP status.
        status: u16,
        /// The stable code; programs branch on this and on nothing else.
        code: String,
        /// What happened, naming the subject.
        detail: String,
        /// What to do next.
        hint?: String,
        /// The interrupt that is pending, where an answer missed it.
        interrupt_id?: String,
        /// Whether the same request may succeed later without a change.
        #[serde(default)]
        transient: bool,
        /// Names the request in the server's log.
        request_id?: String,
    }
}
