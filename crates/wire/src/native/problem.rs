//! Errors as RFC 9457 problem details.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What went wrong (RFC 9457, `application/problem+json`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Names the kind of problem: `urn:trilogue:error:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code; programs branch on this and on nothing else.
    pub code: String,
    /// What happened, naming the subject.
    pub detail: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The interrupt that is pending, where an answer missed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_id: Option<String>,
    /// Whether the same request may succeed later without a change.
    #[serde(default)]
    pub transient: bool,
    /// Names the request in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}
