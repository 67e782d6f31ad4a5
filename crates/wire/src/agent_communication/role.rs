use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::json::{Path, Read, Violation, quoted, text_of};

/// The author of a message: `user`, `agent` or `agent/NAME`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Role {
    #[default]
    User,
    Agent,
    /// The agent with this name: one or more letters, digits, `_` and `-`.
    Named(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a role is \"user\", \"agent\" or \"agent/NAME\" with letters, digits, _ and - in NAME")]
pub struct InvalidRole;

// === impl Role ===

impl Role {
    /// Returns `true` if an agent can have this name in a role.
    pub fn is_name(name: &str) -> bool {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    }

    pub(super) fn parse_at(text: &str, at: &Path<'_>) -> Result<Self, Violation> {
        text.parse().map_err(|InvalidRole| {
            at.violation(format!(
                "must be \"user\", \"agent\" or \"agent/NAME\" with letters, digits, _ and - in NAME, not {}",
                quoted(text)
            ))
        })
    }
}

impl Read for Role {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        Self::parse_at(&text_of(json, at)?, at)
    }
}

impl FromStr for Role {
    type Err = InvalidRole;

    fn from_str(text: &str) -> Result<Self, InvalidRole> {
        match text {
            "user" => Ok(Self::User),
            "agent" => Ok(Self::Agent),
            _ => text
                .strip_prefix("agent/")
                .filter(|name| Self::is_name(name))
                .map(|name| Self::Named(name.to_owned()))
                .ok_or(InvalidRole),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str("user"),
            Self::Agent => f.write_str("agent"),
            Self::Named(name) => write!(f, "agent/{name}"),
        }
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
