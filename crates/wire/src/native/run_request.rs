use schemars::JsonSchema;
use serde::Serialize;

/// The request that made a run, as code that makes another one like it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct RunRequests {
    /// One for each protocol and client.
    pub items: Vec<RequestCode>,
}

/// A request as code. It reads the token from `TRILOGUE_TOKEN`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct RequestCode {
    /// The protocol, as in the table of fidelity.
    pub protocol: String,
    /// What it is for: `curl`, the name of a package, or the form of a message.
    pub name: String,
    /// What becomes of it, for people.
    pub about: String,
    /// The code.
    pub code: String,
}
