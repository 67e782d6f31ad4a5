//! What the server logs.

use std::io::IsTerminal as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the server writes to standard error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// `text` for people, `json` for programs, which is one object per line, or `auto`: `text` on a terminal and in the log file of your own server (`trilogue demo`, or a server that `connect` or `wrap` started), and `json` elsewhere.
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug` or `trace`, or a level per crate, such as `info,trilogue_store=debug`.
    pub level: String,
}

/// The form of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, and JSON elsewhere.
    #[default]
    Auto,
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

// === impl Log ===

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: "info".to_owned() }
    }
}

// === impl LogFormat ===

impl LogFormat {
    /// Whether standard error gets JSON.
    #[must_use]
    pub fn is_json(self) -> bool {
        match self {
            Self::Auto => !std::io::stderr().is_terminal(),
            Self::Text => false,
            Self::Json => true,
        }
    }
}
