use std::collections::BTreeMap;

use super::Object;
use crate::json::record::record;

record! {
    /// The authentication schemes for callers.
    pub struct Authentication: Default {
        /// The agent. Absent for the whole server.
        agent_id?: String,
        /// Whether authentication is required.
        required: bool,
        /// The alternatives, each as an OpenAPI security requirement. `{}` allows a caller without credentials.
        security: Vec<BTreeMap<String, Vec<String>>>,
        /// The schemes that the alternatives name: OpenAPI security scheme objects.
        schemes: BTreeMap<String, Object>,
        /// The permissions of this request's credentials. Absent without valid credentials.
        permissions?: Vec<String>,
    }
}
