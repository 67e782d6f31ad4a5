use std::fmt;

use schemars::Schema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::json::schema::schema;

/// One JSON value, kept as it was written, including member order and number spelling.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

// === impl Json ===

impl Json {
    pub fn parse(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(Self)
    }

    pub fn from_value(value: &serde_json::Value) -> Self {
        Self::parse(value.to_string()).unwrap_or_else(|_| Self::null())
    }

    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned())
    }

    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    pub fn into_string(self) -> String {
        Box::<str>::from(self.0).into_string()
    }

    pub fn to_value(&self) -> serde_json::Value {
        serde_json::from_str(self.0.get()).unwrap_or(serde_json::Value::Null)
    }

    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0.get())
    }
}

impl PartialEq for Json {
    /// Compares the text as it was written.
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

schema!(inline Json = "Json", |_| Schema::default());

/// Reads a member that is present, so that `null` is a value and does not count as absent.
pub(crate) fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(from).map(Some)
}
