use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{EventBody, Json};
use crate::json::record::record;
use crate::json::schema::schema;

/// One event of a thread's log: the head, the members of its `type`, and a peer's original if there is one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Event {
    /// The position to resume after: the run number on a run's stream, the thread number on a thread's stream.
    pub id: String,
    /// The number of the event in the thread.
    pub number: u64,
    /// The number of the event in the run. Absent if the event belongs to no run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_number: Option<u64>,
    /// The run. Absent if the event belongs to no run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// When the event happened.
    pub at: String,
    /// The content of the event.
    #[serde(flatten)]
    pub body: EventBody,
    /// The event in the peer's own form, if a peer sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<Original>,
}

record! {
    /// The data that a peer sent, with its dialect.
    pub struct Original {
        /// The dialect.
        dialect: String,
        /// The dialect's version.
        version: u32,
        /// The object that carried the event, without ids that are only valid on the connection.
        #[serde(deserialize_with = "crate::json::present")]
        value?: Json,
        /// The object in base64, if the dialect is not JSON.
        base64?: String,
    }

    /// Sent on a stream as the named event `gap` if the cursor is before the oldest stored event.
    pub struct Gap {
        /// The requested cursor.
        after: u64,
        /// The number of the first event that follows.
        first: u64,
    }
}

/// The members of every event.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "EventHead")]
struct Head {
    /// The position to resume after: the run number on a run's stream, the thread number on a thread's stream.
    id: String,
    /// The type of the event.
    #[serde(rename = "type")]
    kind: String,
    /// The number of the event in the thread.
    number: u64,
    /// The number of the event in the run. Absent if the event belongs to no run.
    run_number: Option<u64>,
    /// The run. Absent if the event belongs to no run.
    run_id: Option<String>,
    /// When the event happened.
    at: String,
    /// The event in the peer's own form, if a peer sent it.
    original: Option<Original>,
}

// === impl Event ===

impl<'de> Deserialize<'de> for Event {
    /// Reads the head first, then the members of its type. Both are read from the text, so that JSON members stay as written.
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
