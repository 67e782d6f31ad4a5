use schemars::JsonSchema;
use serde::Serialize;

/// The request of a run as code that creates a similar run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct RunRequests {
    /// One item for each protocol and client.
    pub items: Vec<RequestCode>,
}

/// A request as code. It reads the token from `TRILOGUE_TOKEN`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct RequestCode {
    /// The protocol, as in the fidelity table.
    pub protocol: String,
    /// The client: `curl`, the name of a package, or the form of a message.
    pub name: String,
    /// What the request does, for people.
    pub about: String,
    /// The code.
    pub code: String,
}
