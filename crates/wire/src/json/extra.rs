use serde::{Serialize, Serializer};

use super::Json;

/// Undeclared members, in the order in which they arrived.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extra(pub Vec<(String, Json)>);

// === impl Extra ===

impl Extra {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&Json> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Sets a member. Replaces an existing one; adds a new one at the end.
    pub fn set(&mut self, name: impl Into<String>, value: Json) {
        let name = name.into();
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    pub fn take(&mut self, name: &str) -> Option<Json> {
        let place = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(place).1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }
}

impl Serialize for Extra {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}
