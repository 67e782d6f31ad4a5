use schemars::JsonSchema;
use serde::Serialize;

use super::Json;

/// An agent as the clients of one protocol get it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct AgentForm {
    /// The protocol, as in the table of fidelity.
    pub protocol: String,
    /// What its clients get: a name for people.
    pub title: String,
    /// The document, as the protocol's own route returns it.
    pub value: Json,
}
