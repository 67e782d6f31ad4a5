use super::{Event, FidelityRow, Json};
use crate::json::record::record;

record! {
    /// One event in the forms of all protocols.
    pub written struct EventForms {
        /// The event in the form of this API.
        event: Event,
        /// The forms of the other protocols.
        forms: Vec<ProtocolForm>,
    }

    /// One event in the form of one protocol.
    pub written struct ProtocolForm {
        /// The protocol, as in the fidelity table.
        protocol: String,
        /// The name of the form, for people.
        title: String,
        /// The messages or events that clients of the protocol get, in order. Empty if the protocol has no form for the event, or sends it with a later one.
        frames: Vec<Json>,
        /// How the protocol carries the concepts of the event.
        fidelity: Vec<FidelityRow>,
    }
}
