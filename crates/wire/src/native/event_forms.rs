use schemars::JsonSchema;
use serde::Serialize;

use super::{Event, FidelityRow, Json};

/// One event in the forms of all protocols.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct EventForms {
    /// The event as this face has it.
    pub event: Event,
    /// What the clients of each other protocol get.
    pub forms: Vec<ProtocolForm>,
}

/// One event in the form of one protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct ProtocolForm {
    /// The protocol, as in the table of fidelity.
    pub protocol: String,
    /// What its clients get: a name for people.
    pub title: String,
    /// The messages or events that they get for it, in order; none where the protocol has none, or shows it with a later one.
    pub frames: Vec<Json>,
    /// What becomes of what the event is about.
    pub fidelity: Vec<FidelityRow>,
}
