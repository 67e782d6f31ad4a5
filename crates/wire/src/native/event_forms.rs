use schemars::JsonSchema;
use serde::Serialize;

use super::{Event, FidelityRow, Json};

/// One event in the forms of all protocols.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct EventForms {
    /// The event in the form of this API.
    pub event: Event,
    /// The forms of the other protocols.
    pub forms: Vec<ProtocolForm>,
}

/// One event in the form of one protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct ProtocolForm {
    /// The protocol, as in the fidelity table.
    pub protocol: String,
    /// The name of the form, for people.
    pub title: String,
    /// The messages or events that clients of the protocol get, in order. Empty if the protocol has no form for the event, or sends it with a later one.
    pub frames: Vec<Json>,
    /// How the protocol carries the concepts of the event.
    pub fidelity: Vec<FidelityRow>,
}
