use schemars::Schema;
use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use crate::json::member::optional_fitting;
use crate::json::{Path, Read, Violation};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Patch<T> {
    #[default]
    Unchanged,
    Clear,
    Set(T),
}

/// Reads a member. An invalid value counts as unchanged.
pub(super) fn patch<T: Read>(json: Option<&str>, at: &Path<'_>) -> Result<Patch<T>, Violation> {
    Ok(match json {
        None => Patch::Unchanged,
        Some("null") => Patch::Clear,
        Some(json) => T::read(json, at).map_or(Patch::Unchanged, Patch::Set),
    })
}

/// Reads a list without its invalid items. Another invalid value counts as unchanged.
pub(super) fn patch_fitting<T: Read>(
    json: Option<&str>,
    at: &Path<'_>,
) -> Result<Patch<Vec<T>>, Violation> {
    match json {
        Some("null") => Ok(Patch::Clear),
        json => Ok(optional_fitting(json, at)?.map_or(Patch::Unchanged, Patch::Set)),
    }
}

// === impl Patch ===

impl<T: Serialize> Serialize for Patch<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unchanged | Self::Clear => to.serialize_unit(),
            Self::Set(value) => value.serialize(to),
        }
    }
}

impl<T: JsonSchema> JsonSchema for Patch<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("PatchOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [value, { "type": "null" }] })
    }
}
