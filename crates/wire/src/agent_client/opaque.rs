use serde::{Serialize, Serializer};

use super::Json;

/// A variant that the protocol has no word for, as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opaque {
    /// What it calls itself.
    pub kind: String,
    /// All of it.
    pub json: Json,
}

// === impl Opaque ===

impl Serialize for Opaque {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(to)
    }
}
