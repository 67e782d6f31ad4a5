//! Declares an object once; its type, reading, writing and schema follow from the declaration.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::ser::SerializeMap;
use serde_json::{Map as JsonMap, Value, json};

use super::Patch;
use crate::json::{Path, Violation};

/// Modes of members: how each handles an invalid value.
pub(super) mod member {
    pub(in super::super) use super::super::patch::{patch, patch_fitting};
    pub(in super::super) use crate::json::member::*;
}

/// An object whose members can be read and written next to the member that names its kind.
pub(super) trait Object: Sized {
    /// Reads the object; skips the member `tag`, which names the kind.
    fn read_members(json: &str, tag: &str, at: &Path<'_>) -> Result<Self, Violation>;

    fn write_members<M: SerializeMap>(&self, to: &mut M) -> Result<(), M::Error>;
}

pub(super) trait Member {
    fn is_absent(&self) -> bool;

    fn schema(generator: &mut SchemaGenerator) -> Schema;
}

/// Declares objects, each with its required members first and its optional ones after. The mode of a member decides how an invalid value
/// is handled; the default modes are `required` and `lenient`. Every object also has `_meta`, and keeps undeclared members.
macro_rules! object {
    ($(
        $(#[$attr:meta])*
        pub struct $name:ident $({ $($r:tt)* })? $(may { $($o:tt)* })? $(check $check:path)? $(;)?
    )*) => {
        $( object! { @declare { $(#[$attr])* } $name { $($($r)*)? } { $($($o)*)? } $($check)? } )*
    };
    (@declare { $($attr:tt)* } $name:ident {} $($rest:tt)*) => {
        object! { @define { #[derive(Default)] $($attr)* } $name {} $($rest)* }
    };
    (@declare $($rest:tt)*) => { object! { @define $($rest)* } };
    (
        @define { $($attr:tt)* } $name:ident {
            $( $(#[$rdoc:meta])* $r:ident: $rt:ty = $rw:literal $(as $rm:ident)?; )*
        } {
            $( $(#[$odoc:meta])* $o:ident: $ot:ty = $ow:literal $(as $om:ident)?; )*
        }
        $($check:path)?
    ) => {
        $($attr)*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name {
            $( $(#[$rdoc])* pub $r: $rt, )*
            $( $(#[$odoc])* pub $o: $ot, )*
            pub meta: Option<$crate::agent_client::Meta>,
            pub extra: $crate::json::Extra,
        }

        impl $name {
            pub fn new($($r: impl Into<$rt>),*) -> Self {
                Self {
                    $( $r: $r.into(), )*
                    $( $o: Default::default(), )*
                    meta: None,
                    extra: $crate::json::Extra::new(),
                }
            }
        }

        impl $crate::agent_client::object::Object for $name {
            fn read_members(
                json: &str,
                tag: &str,
                at: &$crate::json::Path<'_>,
            ) -> Result<Self, $crate::json::Violation> {
                use $crate::agent_client::object::member::*;
                let mut unknown = Vec::new();
                $crate::json::object::find_members!(json, at, {
                    $( $r = $rw, )*
                    $( $o = $ow, )*
                    meta = $crate::agent_client::Meta::KEY,
                } else member => if member.key != tag {
                    unknown.push((member.key, member.value));
                });
                let read = Self {
                    $( $r: $crate::json::object::read_member!(required $($rm)?, $r, at, $rw, unknown)?, )*
                    $( $o: $crate::json::object::read_member!(lenient $($om)?, $o, at, $ow, unknown)?, )*
                    meta: lenient(meta, at)?,
                    extra: $crate::json::object::unknown(unknown, at)?,
                };
                $( $check(&read, at)?; )?
                Ok(read)
            }

            fn write_members<M: serde::ser::SerializeMap>(&self, to: &mut M) -> Result<(), M::Error> {
                $( to.serialize_entry($rw, &self.$r)?; )*
                $(
                    if !$crate::agent_client::object::Member::is_absent(&self.$o) {
                        to.serialize_entry($ow, &self.$o)?;
                    }
                )*
                $crate::agent_client::object::write_rest(to, self.meta.as_ref(), &self.extra)
            }
        }

        impl $crate::json::Read for $name {
            fn read(
                json: &str,
                at: &$crate::json::Path<'_>,
            ) -> Result<Self, $crate::json::Violation> {
                $crate::agent_client::object::Object::read_members(json, "", at)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let mut map = serde::Serializer::serialize_map(to, None)?;
                $crate::agent_client::object::Object::write_members(self, &mut map)?;
                serde::ser::SerializeMap::end(map)
            }
        }

        impl $crate::jsonrpc::Payload for $name {}

        $crate::json::schema::schema!($name = stringify!($name), |generator| {
            let mut properties = serde_json::Map::new();
            $( properties.insert($rw.to_owned(), generator.subschema_for::<$rt>().into()); )*
            $(
                let schema = <$ot as $crate::agent_client::object::Member>::schema(generator);
                properties.insert($ow.to_owned(), schema.into());
            )*
            let meta = generator.subschema_for::<$crate::agent_client::Meta>();
            properties.insert($crate::agent_client::Meta::KEY.to_owned(), meta.into());
            $crate::agent_client::object::schema(&properties, &[$($rw),*])
        });
    };
}
pub(super) use object;

pub(super) fn write_rest<M: SerializeMap>(
    to: &mut M,
    meta: Option<&super::Meta>,
    extra: &crate::json::Extra,
) -> Result<(), M::Error> {
    if let Some(meta) = meta {
        to.serialize_entry(super::Meta::KEY, meta)?;
    }
    for (name, value) in extra.iter() {
        to.serialize_entry(name, value)?;
    }
    Ok(())
}

pub(super) fn schema(properties: &JsonMap<String, Value>, required: &[&str]) -> Schema {
    let mut schema = json!({ "type": "object", "properties": properties });
    if let (Some(members), false) = (schema.as_object_mut(), required.is_empty()) {
        members.insert("required".to_owned(), required.into());
    }
    Schema::try_from(schema).unwrap_or_default()
}

// === impl Object ===

impl<T: Object> Object for Box<T> {
    fn read_members(json: &str, tag: &str, at: &Path<'_>) -> Result<Self, Violation> {
        T::read_members(json, tag, at).map(Self::new)
    }

    fn write_members<M: SerializeMap>(&self, to: &mut M) -> Result<(), M::Error> {
        (**self).write_members(to)
    }
}

// === impl Member ===

impl<T: JsonSchema> Member for Option<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

impl<T: JsonSchema> Member for Vec<T> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl Member for bool {
    fn is_absent(&self) -> bool {
        !self
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl<T: JsonSchema + Serialize> Member for Patch<T> {
    fn is_absent(&self) -> bool {
        matches!(self, Self::Unchanged)
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}
