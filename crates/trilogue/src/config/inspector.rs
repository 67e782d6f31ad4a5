//! The page in the browser.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Mount;

/// The page in the browser that shows agents, threads and questions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Inspector {
    /// Whether the server serves it.
    pub enabled: bool,
    /// The path of the page, such as `/ui`. Not set: `/`, or `/inspector` if a protocol has the path `/`.
    pub prefix: Option<String>,
}

// === impl Inspector ===

impl Inspector {
    /// What its paths begin with beside these mounts: nothing for the root, else such as `/inspector`. `None` if the server does not serve it.
    #[must_use]
    pub fn path(&self, mounts: &[Mount]) -> Option<String> {
        let prefix = match &self.prefix {
            Some(prefix) => prefix.trim_end_matches('/').to_owned(),
            None if mounts.iter().any(|mount| mount.path().is_empty()) => "/inspector".to_owned(),
            None => String::new(),
        };
        self.enabled.then_some(prefix)
    }
}

impl Default for Inspector {
    fn default() -> Self {
        Self { enabled: true, prefix: None }
    }
}
