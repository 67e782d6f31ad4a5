use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use crate::json::object::{last_of_each, members_of};
use crate::json::{Path, Read, Violation};

/// Values by name, in the order in which they arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map<T>(pub Vec<(String, T)>);

// === impl Map ===

impl<T> Map<T> {
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Map<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> FromIterator<(String, T)> for Map<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl<T: Read> Read for Map<T> {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        let found =
            members_of(json, at)?.map(|member| (member.key.into_owned(), member.value)).collect();
        let read = last_of_each(found).into_iter().map(|(key, value)| {
            let value = T::read(value, &at.key(&key))?;
            Ok((key, value))
        });
        read.collect::<Result<_, _>>().map(Self)
    }
}

impl<T: Serialize> Serialize for Map<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<T: JsonSchema> JsonSchema for Map<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("MapOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({ "type": "object", "additionalProperties": value })
    }
}
