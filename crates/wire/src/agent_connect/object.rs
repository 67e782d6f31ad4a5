use schemars::json_schema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::Json;
use crate::json::schema::schema;

/// A JSON object, kept as it was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(transparent)]
pub struct Object(Json);

// === impl Object ===

impl Object {
    pub fn new(json: Json) -> Option<Self> {
        json.as_str().trim_start().starts_with('{').then_some(Self(json))
    }

    pub fn as_json(&self) -> &Json {
        &self.0
    }

    pub fn into_json(self) -> Json {
        self.0
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl Default for Object {
    fn default() -> Self {
        Self(Json::from_value(&serde_json::Value::Object(serde_json::Map::new())))
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(Json::deserialize(from)?).ok_or_else(|| de::Error::custom("must be an object"))
    }
}

schema!(inline Object = "Object", |_| json_schema!({ "type": "object" }));
