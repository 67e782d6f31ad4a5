//! The words of a run's request.

use std::fmt;

use schemars::{JsonSchema, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::schema::schema;
use crate::json::words::words;

words! {
    /// How output is streamed.
    pub enum StreamMode: Default {
        /// As a growing whole: each event replaces the previous one.
        #[default]
        Values = "values";
        /// As the agent's own updates.
        Custom = "custom";
    }

    /// What happens to a run if its creator disconnects while it waits or reads.
    pub enum OnDisconnect: Default {
        /// The run is cancelled.
        #[default]
        Cancel = "cancel";
        /// The run continues.
        Continue = "continue";
    }

    /// What happens to the thread of a stateless run after its end.
    pub enum OnCompletion: Default {
        /// The thread is deleted.
        #[default]
        Delete = "delete";
        /// The thread stays as an ordinary thread.
        Keep = "keep";
    }

    /// What happens if the thread of a run does not exist.
    pub enum IfNotExists: Default {
        /// The thread is created.
        Create = "create";
        /// The run is refused.
        #[default]
        Reject = "reject";
    }

    /// What happens if the id of a new resource exists.
    pub enum IfExists: Default {
        /// The request is refused.
        #[default]
        Raise = "raise";
        /// The existing resource is returned unchanged.
        DoNothing = "do_nothing";
    }

    /// What a new run does if its thread is busy.
    pub enum MultitaskStrategy: Default {
        /// The new run is refused.
        #[default]
        Reject = "reject";
        /// The other runs are cancelled and removed.
        Rollback = "rollback";
        /// The other runs are cancelled.
        Interrupt = "interrupt";
        /// The new run waits for the other runs.
        Enqueue = "enqueue";
    }

    /// How a run is cancelled.
    pub enum CancelAction: Default {
        /// The run stops. Its results stay.
        #[default]
        Interrupt = "interrupt";
        /// The run stops and is removed with its results.
        Rollback = "rollback";
    }

    /// The events of a callback.
    pub enum CallbackEvent: Default {
        /// The run has ended or waits.
        #[default]
        Status = "status";
        /// The output has grown.
        Values = "values";
        /// An update of the agent's own kind.
        Custom = "custom";
    }
}

/// The requested modes, without duplicates and in order. If empty, the server chooses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamModes(Vec<StreamMode>);

/// The callback of a run: an address, or an object with `url` and `events`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CallbackTo {
    /// The address.
    pub url: String,
    /// The events to call for. The default is [`CallbackEvent::Status`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<CallbackEvent>>,
}

// === impl StreamModes ===

impl StreamModes {
    /// Returns these modes without duplicates.
    pub fn new(modes: impl IntoIterator<Item = StreamMode>) -> Self {
        let mut all = Vec::with_capacity(2);
        for mode in modes {
            if !all.contains(&mode) {
                all.push(mode);
            }
        }
        Self(all)
    }

    pub fn has(&self, mode: StreamMode) -> bool {
        self.0.contains(&mode)
    }

    pub fn as_slice(&self) -> &[StreamMode] {
        &self.0
    }
}

impl Serialize for StreamModes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if let [only] = self.0.as_slice() {
            return only.serialize(to);
        }
        let mut items = to.serialize_seq(Some(self.0.len()))?;
        self.0.iter().try_for_each(|mode| items.serialize_element(mode))?;
        items.end()
    }
}

impl<'de> Deserialize<'de> for StreamModes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ModesVisitor)
    }
}

struct ModesVisitor;

impl<'de> Visitor<'de> for ModesVisitor {
    type Value = StreamModes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"values\", \"custom\" or an array of these")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<StreamModes, E> {
        let other = || E::unknown_variant(text, StreamMode::WORDS);
        StreamMode::parse(text).map(|mode| StreamModes(vec![mode])).ok_or_else(other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<StreamModes, A::Error> {
        let mut modes = Vec::new();
        while let Some(mode) = items.next_element()? {
            modes.push(mode);
        }
        Ok(StreamModes::new(modes))
    }
}

schema!(inline StreamModes = "StreamModes", |generator| {
    let mode = generator.subschema_for::<StreamMode>();
    json_schema!({ "anyOf": [{ "type": "array", "items": mode }, mode] })
});

// === impl CallbackTo ===

impl<'de> Deserialize<'de> for CallbackTo {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(CallbackVisitor)
    }
}

struct CallbackVisitor;

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct CallbackMembers {
    /// The address.
    url: String,
    /// The events to call for. The default is `["status"]`.
    #[serde(default)]
    events: Option<Vec<CallbackEvent>>,
}

impl<'de> Visitor<'de> for CallbackVisitor {
    type Value = CallbackTo;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address or an object with \"url\"")
    }

    fn visit_str<E>(self, text: &str) -> Result<CallbackTo, E> {
        Ok(CallbackTo { url: text.to_owned(), events: None })
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<CallbackTo, A::Error> {
        let read = CallbackMembers::deserialize(MapAccessDeserializer::new(members))?;
        Ok(CallbackTo { url: read.url, events: read.events })
    }
}

schema!(CallbackTo = "CallbackTo", |generator| {
    let object = generator.subschema_for::<CallbackMembers>();
    json_schema!({
        "description": "Where and of what a run's client is called back: an address, or an object with `url` and `events`.",
        "anyOf": [{ "type": "string", "format": "uri" }, object]
    })
});
