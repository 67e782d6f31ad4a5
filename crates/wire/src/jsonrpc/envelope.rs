use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The known members of a message, as they were written. The last of several members with one name counts.
#[derive(Debug, Default)]
pub(super) struct Envelope<'a> {
    pub(super) jsonrpc: Option<&'a RawValue>,
    pub(super) id: Option<&'a RawValue>,
    pub(super) method: Option<&'a RawValue>,
    pub(super) params: Option<&'a RawValue>,
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    #[serde(other)]
    Other,
}

// === impl Envelope ===

impl<'de> Deserialize<'de> for Envelope<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(EnvelopeVisitor)
    }
}

struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
        let mut envelope = Envelope::default();
        while let Some(key) = map.next_key()? {
            let value = map.next_value()?;
            match key {
                Key::Jsonrpc => envelope.jsonrpc = Some(value),
                Key::Id => envelope.id = Some(value),
                Key::Method => envelope.method = Some(value),
                Key::Params => envelope.params = Some(value),
                Key::Result => envelope.result = Some(value),
                Key::Error => envelope.error = Some(value),
                Key::Other => {}
            }
        }
        Ok(envelope)
    }
}
