use super::Json;
use crate::json::record::record;

record! {
    /// An agent in the form of one protocol.
    pub written struct AgentForm {
        /// The protocol, as in the fidelity table.
        protocol: String,
        /// The name of the document, for people.
        title: String,
        /// The document, as the protocol's own route returns it.
        value: Json,
    }
}
