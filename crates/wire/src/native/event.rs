use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{EventBody, Json};
use crate::json::schema::schema;

/// One event of a thread's log: the head, the members that its `type` has, and a peer's original where there is one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Event {
    /// The position to resume after: the run number on a run's stream, the thread number on a thread's.
    pub id: String,
    /// Its number in the thread.
    pub number: u64,
    /// Its number in the run, when it belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_number: Option<u64>,
    /// The run, when it belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// When it happened.
    pub at: String,
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
    /// The peer's own form, where a peer sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<Original>,
}

/// What a peer sent, and in which language.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Original {
    /// The dialect.
    pub dialect: String,
    /// The dialect's version.
    pub version: u32,
    /// The object that carried the event, with connection-bound ids cut out.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::json::present"
    )]
    pub value: Option<Json>,
    /// The same in base64, where the dialect is not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

/// Sent on a stream as the named event `gap`, when the cursor lies before the oldest event that is kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// The cursor that was asked for.
    pub after: u64,
    /// The first number that is given instead.
    pub first: u64,
}

/// The members that every event has.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "EventHead")]
struct Head {
    /// The position to resume after: the run number on a run's stream, the thread number on a thread's.
    id: String,
    /// What happened.
    #[serde(rename = "type")]
    kind: String,
    /// Its number in the thread.
    number: u64,
    /// Its number in the run, when it belongs to one.
    run_number: Option<u64>,
    /// The run, when it belongs to one.
    run_id: Option<String>,
    /// When it happened.
    at: String,
    /// The peer's own form, where a peer sent it.
    original: Option<Original>,
}

// === impl Event ===

impl<'de> Deserialize<'de> for Event {
    /// Reads the head first and then the members of its type, both from the text, so that JSON members stay as written.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Json::deserialize(from)?;
        let head: Head = text.read().map_err(de::Error::custom)?;
        let body = EventBody::read(&head.kind, text.as_str()).map_err(de::Error::custom)?;
        Ok(Self {
            id: head.id,
            number: head.number,
            run_number: head.run_number,
            run_id: head.run_id,
            at: head.at,
            body,
            original: head.original,
        })
    }
}

schema!(Event = "Event", |generator| {
    let head = generator.subschema_for::<Head>();
    EventBody::schemas(generator, &head)
});
