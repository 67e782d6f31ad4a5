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
    /// Details, by the schema that the code's definition names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
    /// The same text as `description`, where other servers have it.
    #[serde(default, deserialize_with = "or_default")]
    pub detail: String,
    /// The same text as `description`, where other servers have it.
    #[serde(default, deserialize_with = "or_default")]
    pub message: String,
}

record! {
    /// What is known of an error before it happens.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct ErrorDefinition {
        /// The stable code.
        code: String,
        /// Its number, which no other error has. Those of agents begin at 10000.
        errcode: u32,
        /// The condition, for people.
        #[serde(default, deserialize_with = "or_default")]
        description: String,
        /// Whether the same request may succeed later.
        #[serde(default, deserialize_with = "or_default")]
        transient: bool,
        /// The status of an answer that carries it.
        http_status?: u16,
        /// The JSON Schema of its details.
        schema?: Json,
    }
}

/// The errors of an agent's own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentErrors {
    /// The agent.
    pub agent_id: String,
    /// Its errors.
    pub errors: Vec<ErrorDefinition>,
}
