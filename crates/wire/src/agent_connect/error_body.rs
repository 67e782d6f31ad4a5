use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Json;
use crate::json::or_default;
use crate::json::record::record;

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The stable code.
    pub code: String,
    /// The number of the error.
    pub errcode: u32,
    /// What happened, for people.
    pub description: String,
    /// Whether the same request may succeed later.
    pub transient: bool,
    /// Details. The definition of the code names their schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
    /// The same text as `description`, under the name that other servers use.
    #[serde(default, deserialize_with = "or_default")]
    pub detail: String,
    /// The same text as `description`, under the name that other servers use.
    #[serde(default, deserialize_with = "or_default")]
    pub message: String,
}

record! {
    /// The definition of an error.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct ErrorDefinition {
        /// The stable code.
        code: String,
        /// The unique number of the error. Numbers of agents begin at 10000.
        errcode: u32,
        /// The condition, for people.
        #[serde(default, deserialize_with = "or_default")]
        description: String,
        /// Whether the same request may succeed later.
        #[serde(default, deserialize_with = "or_default")]
        transient: bool,
        /// The HTTP status of a response with this error.
        http_status?: u16,
        /// The JSON Schema of the details.
        schema?: Json,
    }
}

/// An agent's own errors.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentErrors {
    /// The id of the agent.
    pub agent_id: String,
    /// The errors of the agent.
    pub errors: Vec<ErrorDefinition>,
}
