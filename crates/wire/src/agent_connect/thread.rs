use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{IfExists, Json, Limit, Message, Object, Offset, ThreadStateSchema, Time};
use crate::json::words::words;
use crate::json::{object_only, or_default};

/// A conversation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Thread {
    /// Its id.
    pub thread_id: String,
    /// When it was created.
    pub created_at: Time,
    /// When it changed last.
    pub updated_at: Time,
    /// Anything to find it by.
    #[serde(default, deserialize_with = "or_default")]
    pub metadata: Object,
    /// Where it stands.
    pub status: ThreadStatus,
    /// Its state; absent where it has none yet, or none that is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ThreadStateSchema>")]
    pub values: Option<Json>,
    /// What was said on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Message>>,
}

words! {
    /// Where a thread stands.
    pub enum ThreadStatus {
        /// Nothing runs on it.
        Idle = "idle";
        /// A run is pending.
        Busy = "busy";
        /// Its newest run waits for an answer.
        Interrupted = "interrupted";
        /// Its newest run failed.
        Error = "error";
    }
}

/// A state of a thread.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ThreadState {
    /// Which one.
    pub checkpoint: ThreadCheckpoint,
    /// The state.
    #[schemars(with = "ThreadStateSchema")]
    pub values: Json,
    /// What was said up to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Message>>,
    /// How it came to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

/// Names a state of a thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct ThreadCheckpoint {
    /// Its id.
    pub checkpoint_id: String,
}

/// Asks for a thread.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ThreadCreate {
    /// Its id; made by the server where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Anything to find it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// What happens when the id is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_exists: Option<IfExists>,
}

/// Changes a thread.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ThreadPatch {
    /// The state that the new one follows; the newest where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<ThreadCheckpoint>,
    /// Members to set; `null` removes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// The new state, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ThreadStateSchema>")]
    pub values: Option<Json>,
    /// The messages of the new state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Message>>,
}

/// Looks threads up: all members that are there have to match.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ThreadSearchRequest {
    /// Members that its metadata has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// Members that its state has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Object>,
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ThreadStatus>,
    /// The most threads of the answer; 10 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// How many matches are passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
}

// === impl ThreadCheckpoint ===

#[derive(Deserialize)]
struct Named {
    checkpoint_id: String,
}

impl<'de> Deserialize<'de> for ThreadCheckpoint {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        object_only(from).map(|Named { checkpoint_id }| Self { checkpoint_id })
    }
}
