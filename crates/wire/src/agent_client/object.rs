//! How objects are declared: once, and from that follow the type, its reading, its writing and its schema.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::ser::SerializeMap;
use serde_json::{Map as JsonMap, Value, json};

use super::read::{At, Violation};
use super::{Extra, Json, Patch};

/// An object whose members can be read and written beside the member that names its kind.
pub(super) trait Object: Sized {
    /// Reads the object. Its member `tag` is somebody else's.
    fn read_members(json: &str, tag: &str, at: &At<'_>) -> Result<Self, Violation>;

    /// Writes the members.
    fn write_members<M: SerializeMap>(&self, to: &mut M) -> Result<(), M::Error>;
}

/// A member that may be absent.
pub(super) trait Member {
    /// Whether it is left out.
    fn is_absent(&self) -> bool;

    /// What it is where it is there.
    fn schema(generator: &mut SchemaGenerator) -> Schema;
}

/// Declares an object: the members that must be there, then those that may. Each has a mode, which says how much it may be wrong.
/// Every object also has `_meta`, and keeps the members that the protocol has no word for.
macro_rules! object {
    (
        $(#[$attr:meta])*
        pub struct $name:ident {
            $( $(#[$rdoc:meta])* $r:ident: $rt:ty = $rw:literal as $rm:ident; )*
        } may {
            $( $(#[$odoc:meta])* $o:ident: $ot:ty = $ow:literal as $om:ident; )*
        }
        $(check $check:path;)?
    ) => {
        $(#[$attr])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name {
            $( $(#[$rdoc])* pub $r: $rt, )*
            $( $(#[$odoc])* pub $o: $ot, )*
            /// What implementations attach.
            pub meta: Option<$crate::agent_client::Meta>,
            /// Members that the protocol has no word for.
            pub extra: $crate::agent_client::Extra,
        }

        impl $name {
            /// With what must be there and nothing else.
            #[must_use]
            pub fn new($($r: impl Into<$rt>),*) -> Self {
                Self {
                    $( $r: $r.into(), )*
                    $( $o: Default::default(), )*
                    meta: None,
                    extra: $crate::agent_client::Extra::new(),
                }
            }
        }

        impl $crate::agent_client::object::Object for $name {
            fn read_members(
                json: &str,
                tag: &str,
                at: &$crate::agent_client::read::At<'_>,
            ) -> Result<Self, $crate::agent_client::read::Violation> {
                use $crate::agent_client::read::mode;
                if !json.starts_with('{') {
                    return Err($crate::agent_client::read::refusal("an object", json, at));
                }
                $( let mut $r = None; )*
                $( let mut $o = None; )*
                let (mut meta, mut extra) = (None, Vec::new());
                for member in $crate::jsonrpc::scan::members(json) {
                    match &*member.key {
                        $( $rw => $r = Some(member.value), )*
                        $( $ow => $o = Some(member.value), )*
                        $crate::agent_client::Meta::KEY => meta = Some(member.value),
                        key if key == tag => {}
                        _ => extra.push((member.key, member.value)),
                    }
                }
                let read = Self {
                    $( $r: mode::$rm($r, &at.key($rw))?, )*
                    $( $o: mode::$om($o, &at.key($ow))?, )*
                    meta: mode::lenient(meta, at)?,
                    extra: $crate::agent_client::object::unknown(extra),
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

        impl $crate::agent_client::Read for $name {
            fn read(
                json: &str,
                at: &$crate::agent_client::read::At<'_>,
            ) -> Result<Self, $crate::agent_client::read::Violation> {
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

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut properties = serde_json::Map::new();
                $( properties.insert($rw.to_owned(), generator.subschema_for::<$rt>().into()); )*
                $(
                    let schema = <$ot as $crate::agent_client::object::Member>::schema(generator);
                    properties.insert($ow.to_owned(), schema.into());
                )*
                let meta = generator.subschema_for::<$crate::agent_client::Meta>();
                properties.insert($crate::agent_client::Meta::KEY.to_owned(), meta.into());
                $crate::agent_client::object::schema(&properties, &[$($rw),*])
            }
        }
    };
}
pub(super) use object;

/// Writes what every object has.
pub(super) fn write_rest<M: SerializeMap>(
    to: &mut M,
    meta: Option<&super::Meta>,
    extra: &Extra,
) -> Result<(), M::Error> {
    if let Some(meta) = meta {
        to.serialize_entry(super::Meta::KEY, meta)?;
    }
    for (name, value) in extra.iter() {
        to.serialize_entry(name, value)?;
    }
    Ok(())
}

/// The schema of an object that may have more members.
pub(super) fn schema(properties: &JsonMap<String, Value>, required: &[&str]) -> Schema {
    let mut schema = json!({ "type": "object", "properties": properties });
    if let (Some(members), false) = (schema.as_object_mut(), required.is_empty()) {
        members.insert("required".to_owned(), required.into());
    }
    Schema::try_from(schema).unwrap_or_default()
}

/// Members that nobody has a word for, carried as they came.
pub(super) fn unknown(members: Vec<(Cow<'_, str>, &str)>) -> Extra {
    let members = last_of_each(members).into_iter();
    let carried =
        members.filter_map(|(key, value)| Some((key.into_owned(), Json::parse(value).ok()?)));
    Extra(carried.collect())
}

/// The members without those that come again later.
pub(super) fn last_of_each<K: Eq + Hash, V>(members: Vec<(K, V)>) -> Vec<(K, V)> {
    if members.len() < 2 {
        return members;
    }
    let last: HashMap<&K, usize> =
        members.iter().enumerate().map(|(place, (key, _))| (key, place)).collect();
    if last.len() == members.len() {
        return members;
    }
    let keep: Vec<bool> =
        members.iter().enumerate().map(|(place, (key, _))| last.get(key) == Some(&place)).collect();
    members.into_iter().zip(keep).filter_map(|(member, keep)| keep.then_some(member)).collect()
}

// === impl Object ===

impl<T: Object> Object for Box<T> {
    fn read_members(json: &str, tag: &str, at: &At<'_>) -> Result<Self, Violation> {
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
