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
    #[derive(Default)]
    pub enum StreamMode {
        /// As a whole that grows: each event replaces the one before.
        #[default]
        Values = "values";
        /// As the agent's own updates.
        Custom = "custom";
    }

    /// What happens to a run whose creator hangs up while it waits or reads.
    #[derive(Default)]
    pub enum OnDisconnect {
        /// It is cancelled.
        #[default]
        Cancel = "cancel";
        /// It goes on.
        Continue = "continue";
    }

    /// What happens to the thread that was made for a stateless run.
    #[derive(Default)]
    pub enum OnCompletion {
        /// It goes.
        #[default]
        Delete = "delete";
        /// It stays and is a thread like others.
        Keep = "keep";
    }

    /// What happens when the thread of a run is not there.
    #[derive(Default)]
    pub enum IfNotExists {
        /// It is made.
        Create = "create";
        /// The run is refused.
        #[default]
        Reject = "reject";
    }

    /// What happens when the id of something new is taken.
    #[derive(Default)]
    pub enum IfExists {
        /// The request is refused.
        #[default]
        Raise = "raise";
        /// What is there is answered, unchanged.
        DoNothing = "do_nothing";
    }

    /// What a new run does when its thread is busy.
    #[derive(Default)]
    pub enum MultitaskStrategy {
        /// It is refused.
        #[default]
        Reject = "reject";
        /// The others are cancelled and removed.
        Rollback = "rollback";
        /// The others are cancelled.
        Interrupt = "interrupt";
        /// It waits for its turn.
        Enqueue = "enqueue";
    }

    /// How a run is cancelled.
    #[derive(Default)]
    pub enum CancelAction {
        /// It stops; what it did stays.
        #[default]
        Interrupt = "interrupt";
        /// It stops and goes, with what it did.
        Rollback = "rollback";
    }

    /// Of what a run's client is called back.
    #[derive(Default)]
    pub enum CallbackEvent {
        /// The run has ended or waits.
        #[default]
        Status = "status";
        /// Its output has grown.
        Values = "values";
        /// One of the agent's own updates.
        Custom = "custom";
    }
}

/// The modes that are asked for, each once and in that order; none leaves the choice to the server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamModes(Vec<StreamMode>);

/// Where and of what a run's client is called back: an address, or an object with `url` and `events`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CallbackTo {
    /// The address.
    pub url: String,
    /// Of what; [`CallbackEvent::Status`] where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<CallbackEvent>>,
}

// === impl StreamModes ===

impl StreamModes {
    /// These modes, each once.
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
    /// Of what; `["status"]` where it is absent.
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
