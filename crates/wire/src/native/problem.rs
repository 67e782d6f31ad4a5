use crate::json::record::record;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

record! {
    /// An error (RFC 9457, `application/problem+json`).
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct Problem {
        /// The URI of the kind of problem: `urn:trilogue:error:` and the code.
        #[serde(rename = "type")]
        kind: String,
        /// The title of the kind of problem.
        title: String,
        /// The HTTP status.
        status: u16,
        /// The stable code. Programs should depend only on this member.
        code: String,
        /// What happened. Names its subject.
        detail: String,
        /// What to do next.
        hint?: String,
        /// The pending interrupt, if an answer did not match it.
        interrupt_id?: String,
        /// Whether the same request may succeed later without a change.
        #[serde(default)]
        transient: bool,
        /// The id of the request in the server's log.
        request_id?: String,
    }
}
