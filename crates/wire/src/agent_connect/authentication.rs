use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Object;

/// How a caller shows who it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Authentication {
    /// The agent; absent where the whole server is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Whether a caller has to.
    pub required: bool,
    /// The alternatives, each an OpenAPI security requirement; `{}` is a caller without credentials.
    pub security: Vec<BTreeMap<String, Vec<String>>>,
    /// The schemes that are named there: OpenAPI security scheme objects.
    pub schemes: BTreeMap<String, Object>,
    /// What the credentials of this request permit; absent where it has none that are valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Vec<String>>,
}
