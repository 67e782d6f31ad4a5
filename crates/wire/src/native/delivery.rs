use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Json;

/// Where callbacks are to go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallbackTarget {
    /// The address, as a run names it. The query does not count.
    pub url: String,
}

/// What verifies callbacks to one address in the name of one principal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CallbackKeys {
    /// `whsec_…`, as in Standard Webhooks. Two while the server's secrets are rotated.
    pub secrets: Vec<String>,
}

/// A callback delivery that was given up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    /// Its id.
    pub id: String,
    /// How often it was tried.
    pub attempts: u32,
    /// The last error.
    pub error: String,
    /// When it was due.
    pub due: String,
    /// What was to be delivered where.
    pub reference: Json,
}
