use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Json;

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
