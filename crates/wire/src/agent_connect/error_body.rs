use super::Json;
use crate::json::or_default;
use crate::json::record::record;

record! {
    /// Why a request failed.
    pub struct ErrorBody {
        /// The stable code.
        code: String,
        /// The number of the error.
        errcode: u32,
        /// What happened, for people.
        description: String,
        /// Whether the same request may succeed later.
        transient: bool,
        /// Details. The definition of the code names their schema.
        data?: Json,
        /// The same text as `description`, under the name that other servers use.
        detail: String = default from "or_default",
        /// The same text as `description`, under the name that other servers use.
        message: String = default from "or_default",
    }

    /// The definition of an error.
    pub struct ErrorDefinition {
        /// The stable code.
        code: String,
        /// The unique number of the error. Numbers of agents begin at 10000.
        errcode: u32,
        /// The condition, for people.
        description: String = default from "or_default",
        /// Whether the same request may succeed later.
        transient: bool = default from "or_default",
        /// The HTTP status of a response with this error.
        http_status?: u16,
        /// The JSON Schema of the details.
        schema?: Json,
    }

    /// An agent's own errors.
    pub struct AgentErrors {
        /// The id of the agent.
        agent_id: String,
        /// The errors of the agent.
        errors: Vec<ErrorDefinition>,
    }
}
