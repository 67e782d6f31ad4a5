use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Json;

/// The address of callbacks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallbackTarget {
    /// The URL, as in the run's request. The query is ignored.
    pub url: String,
}

/// The keys that verify callbacks to one address for one principal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CallbackKeys {
    /// Secrets in the form `whsec_…` of Standard Webhooks. Two while the server's secrets are rotated.
    pub secrets: Vec<String>,
}

/// A callback delivery that failed for good.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    /// The id of the delivery.
    pub id: String,
    /// The number of attempts.
    pub attempts: u32,
    /// The last error.
    pub error: String,
    /// When the delivery was due.
    pub due: String,
    /// The content and the target of the delivery.
    pub reference: Json,
}
