use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::read::{At, Violation, refusal};
use super::{Extra, Json, Read, unknown};
use crate::jsonrpc::{scan::members, text};

/// What implementations attach to an object, in its member `_meta`. Nobody may rely on anything in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Meta(pub Extra);

// === impl Meta ===

impl Meta {
    /// The member's name.
    pub const KEY: &'static str = "_meta";
    /// The names of the W3C trace context, which the protocol reserves.
    pub const TRACE: [&'static str; 3] = ["traceparent", "tracestate", "baggage"];

    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(Extra::new())
    }

    /// What is attached by this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.0.get(name)
    }

    /// The text that is attached by this name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        self.get(name).and_then(|json| text::decode(json.as_str()))
    }

    /// The trace that the message belongs to.
    #[must_use]
    pub fn traceparent(&self) -> Option<Cow<'_, str>> {
        self.text("traceparent")
    }

    /// Attaches something.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: Json) -> Self {
        self.0.set(name, value);
        self
    }

    /// Takes everything off whose name is one of these.
    pub fn strip(&mut self, names: &[&str]) {
        self.0.0.retain(|(name, _)| !names.contains(&name.as_str()));
    }

    /// Whether nothing is attached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Read for Meta {
    fn read(json: &str, at: &At<'_>) -> Result<Self, Violation> {
        if !json.starts_with('{') {
            return Err(refusal("an object", json, at));
        }
        let all = members(json).map(|member| (member.key, member.value)).collect();
        Ok(Self(unknown(all)))
    }
}

impl Serialize for Meta {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl JsonSchema for Meta {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Meta")
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}
