//! Settings that are a text or a list of texts.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A list of items in text form. You may write a list of one item without brackets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List<T>(pub Vec<T>);

/// Parses an item from a text, with an error that names what is valid.
pub trait Item: FromStr + fmt::Display {
    /// A noun phrase with an example; completes "expected …".
    const EXPECTED: &'static str;
    /// Whether errors must not repeat an item, not even an invalid one.
    const IS_SECRET: bool = false;
}

// === impl List ===

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: fmt::Display> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(ToString::to_string))
    }
}

impl<'de, T: Item> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<'de, T: Item> de::Visitor<'de> for Visitor<T> {
            type Value = List<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}, or a list of such", T::EXPECTED)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<List<T>, E> {
                Ok(List(vec![parse(text)?]))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<List<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(text) = items.next_element::<Cow<'_, str>>()? {
                    list.push(parse(&text)?);
                }
                Ok(List(list))
            }
        }
        deserializer.deserialize_any(Visitor(PhantomData))
    }
}

fn parse<T: Item, E: de::Error>(text: &str) -> Result<T, E> {
    text.parse().map_err(|_| {
        if T::IS_SECRET {
            return E::custom(format!("the text does not fit, expected {}", T::EXPECTED));
        }
        E::custom(format!("`{}` does not fit, expected {}", text.escape_debug(), T::EXPECTED))
    })
}

impl<T> JsonSchema for List<T> {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("text or list of texts")
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "array"], "items": { "type": "string" } })
    }
}

impl Item for std::net::SocketAddr {
    const EXPECTED: &'static str = "an IP address with a port, such as \"127.0.0.1:7878\"";
}

impl Item for String {
    const EXPECTED: &'static str = "a text";
}
