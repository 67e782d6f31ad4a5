use schemars::JsonSchema;
use serde::Serialize;

use super::Json;

/// An agent in the form of one protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct AgentForm {
    /// The protocol, as in the fidelity table.
    pub protocol: String,
    /// The name of the document, for people.
    pub title: String,
    /// The document, as the protocol's own route returns it.
    pub value: Json,
}
