use serde::{Serialize, Serializer};

use super::Json;

/// An unknown variant, kept unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opaque {
    pub kind: String,
    pub json: Json,
}

// === impl Opaque ===

impl Serialize for Opaque {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(to)
    }
}
