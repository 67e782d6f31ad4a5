use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Object;
use crate::json::record::record;

record! {
    /// How a caller shows who it is.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct Authentication {
        /// The agent; absent where the whole server is meant.
        agent_id?: String,
        /// Whether a caller has to.
        required: bool,
        /// The alternatives, each an OpenAPI security requirement; `{}` is a caller without credentials.
        security: Vec<BTreeMap<String, Vec<String>>>,
        /// The schemes that are named there: OpenAPI security scheme objects.
        schemes: BTreeMap<String, Object>,
        /// What the credentials of this request permit; absent where it has none that are valid.
        permissions?: Vec<String>,
    }
}
