use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One page of a listing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub struct List<T> {
    /// The items.
    pub items: Vec<T>,
    /// Give this as `after` for the next page; `null` on the last.
    #[serde(default)]
    pub next: Option<String>,
}
