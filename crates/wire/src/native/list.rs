use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One page of a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub struct List<T> {
    /// The items.
    pub items: Vec<T>,
    /// The cursor of the next page: send it as `after`. `null` on the last page.
    #[serde(default)]
    pub next: Option<String>,
}
