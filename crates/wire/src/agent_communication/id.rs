use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::json::{Path, Read, Violation, quoted, text_of};

/// The id of a run or a session. Reads every form and version of a UUID; writes the canonical form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Uuid(uuid::Uuid);

// === impl Uuid ===

impl Uuid {
    pub fn generate() -> Self {
        Self(uuid::Uuid::new_v4())
    }

    pub const fn get(self) -> uuid::Uuid {
        self.0
    }

    fn parse_at(text: &str, at: &Path<'_>) -> Result<Self, Violation> {
        text.parse().map_err(|_| at.violation(format!("must be a UUID, not {}", quoted(text))))
    }
}

impl From<uuid::Uuid> for Uuid {
    fn from(id: uuid::Uuid) -> Self {
        Self(id)
    }
}

impl From<Uuid> for uuid::Uuid {
    fn from(id: Uuid) -> Self {
        id.0
    }
}

impl Read for Uuid {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        Self::parse_at(&text_of(json, at)?, at)
    }
}

impl FromStr for Uuid {
    type Err = uuid::Error;

    /// Parses the hyphenated, simple, braced and URN form, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        uuid::Uuid::parse_str(text).map(Self)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.as_hyphenated(), f)
    }
}

impl Serialize for Uuid {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut buffer = uuid::Uuid::encode_buffer();
        to.serialize_str(self.0.as_hyphenated().encode_lower(&mut buffer))
    }
}
