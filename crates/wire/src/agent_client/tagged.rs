//! Declares enums of objects in which one member names the variant.

use std::borrow::Cow;

use schemars::Schema;
use serde_json::{Value, json};

use crate::json::{Path, Violation, refusal};
use crate::json::{scan, text};

/// Declares an enum of objects in which the member `by` names the variant. An unknown variant is kept unchanged.
///
/// Variants after `plain` have no such member. `read by` names the function that reads an object without a known variant.
macro_rules! tagged {
    (
        $(#[$attr:meta])*
        pub enum $name:ident by $tag:literal {
            $( $(#[$doc:meta])* $variant:ident($inner:ty) = $word:literal; )*
        }
    ) => {
        $crate::agent_client::tagged::tagged! {
            $(#[$attr])*
            pub enum $name by $tag {
                $( $(#[$doc])* $variant($inner) = $word; )*
            } plain {
            } read by Self::read_unknown
        }

        impl $name {
            pub fn kind(&self) -> &str {
                match self {
                    $( Self::$variant(_) => $word, )*
                    Self::Other(opaque) => &opaque.kind,
                }
            }

            fn read_unknown(
                json: &str,
                kind: Option<std::borrow::Cow<'_, str>>,
                at: &$crate::json::Path<'_>,
            ) -> Result<Self, $crate::json::Violation> {
                let kind = kind.ok_or_else(|| at.key($tag).violation("is missing"))?;
                let json = $crate::json::Read::read(json, at)?;
                Ok(Self::Other($crate::agent_client::Opaque { kind: kind.into_owned(), json }))
            }
        }
    };
    (
        $(#[$attr:meta])*
        pub enum $name:ident by $tag:literal {
            $( $(#[$doc:meta])* $variant:ident($inner:ty) = $word:literal; )*
        } plain {
            $( $(#[$pdoc:meta])* $pvariant:ident($pinner:ty); )*
        } read by $fallback:path
    ) => {
        $(#[$attr])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum $name {
            $( $(#[$doc])* $variant($inner), )*
            $( $(#[$pdoc])* $pvariant($pinner), )*
            Other($crate::agent_client::Opaque),
        }

        impl $crate::json::Read for $name {
            fn read(
                json: &str,
                at: &$crate::json::Path<'_>,
            ) -> Result<Self, $crate::json::Violation> {
                use $crate::agent_client::object::Object;
                let kind = $crate::agent_client::tagged::kind(json, $tag, at)?;
                match kind.as_deref() {
                    $( Some($word) => <$inner>::read_members(json, $tag, at).map(Self::$variant), )*
                    _ => $fallback(json, kind, at),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                use $crate::agent_client::object::Object as _;
                match self {
                    $(
                        Self::$variant(inner) => {
                            let mut map = to.serialize_map(None)?;
                            map.serialize_entry($tag, $word)?;
                            inner.write_members(&mut map)?;
                            map.end()
                        }
                    )*
                    $( Self::$pvariant(inner) => inner.serialize(to), )*
                    Self::Other(opaque) => opaque.serialize(to),
                }
            }
        }

        impl $crate::jsonrpc::Payload for $name {}

        $crate::json::schema::schema!($name = stringify!($name), |generator| {
            $crate::agent_client::tagged::schema($tag, vec![
                $( (Some($word), generator.subschema_for::<$inner>().into()), )*
                $( (None, generator.subschema_for::<$pinner>().into()), )*
            ])
        });
    };
}
pub(super) use tagged;

pub(super) fn kind<'a>(
    json: &'a str,
    tag: &str,
    at: &Path<'_>,
) -> Result<Option<Cow<'a, str>>, Violation> {
    if !json.starts_with('{') {
        return Err(refusal("an object", json, at));
    }
    let Some(member) = scan::member(json, tag) else { return Ok(None) };
    match text::decode(member.value) {
        Some(kind) => Ok(Some(kind)),
        None => Err(refusal("a string", member.value, &at.key(tag))),
    }
}

pub(super) fn schema(tag: &str, kinds: Vec<(Option<&str>, Value)>) -> Schema {
    let kinds: Vec<Value> = kinds
        .into_iter()
        .map(|(word, inner)| match word {
            Some(word) => json!({
                "type": "object",
                "properties": { tag: { "const": word } },
                "required": [tag],
                "allOf": [inner],
            }),
            None => inner,
        })
        .collect();
    Schema::try_from(json!({ "anyOf": kinds })).unwrap_or_default()
}
