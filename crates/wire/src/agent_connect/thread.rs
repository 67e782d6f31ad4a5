use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{IfExists, Json, Limit, Message, Object, Offset, ThreadStateSchema, Time};
use crate::json::record::record;
use crate::json::words::words;
use crate::json::{object_only, or_default};

record! {
    /// A conversation.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Thread {
        /// Its id.
        thread_id: String,
        /// When it was created.
        created_at: Time,
        /// When it changed last.
        updated_at: Time,
        /// Anything to find it by.
        #[serde(default, deserialize_with = "or_default")]
        metadata: Object,
        /// Where it stands.
        status: ThreadStatus,
        /// Its state; absent where it has none yet, or none that is shown.
        #[schemars(with = "Option<ThreadStateSchema>")]
        values?: Json,
        /// What was said on it.
        messages?: Vec<Message>,
    }
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

record! {
    /// A state of a thread.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct ThreadState {
        /// Which one.
        checkpoint: ThreadCheckpoint,
        /// The state.
        #[schemars(with = "ThreadStateSchema")]
        values: Json,
        /// What was said up to it.
        messages?: Vec<Message>,
        /// How it came to be.
        metadata?: Object,
    }
}

/// Names a state of a thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct ThreadCheckpoint {
    /// Its id.
    pub checkpoint_id: String,
}

record! {
    /// Asks for a thread.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct ThreadCreate {
        /// Its id; made by the server where it is absent.
        thread_id?: String,
        /// Anything to find it by.
        metadata?: Object,
        /// What happens when the id is taken.
        if_exists?: IfExists,
    }

    /// Changes a thread.
    #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct ThreadPatch {
        /// The state that the new one follows; the newest where it is absent.
        checkpoint?: ThreadCheckpoint,
        /// Members to set; `null` removes one.
        metadata?: Object,
        /// The new state, whole.
        #[schemars(with = "Option<ThreadStateSchema>")]
        values?: Json,
        /// The messages of the new state.
        messages?: Vec<Message>,
    }

    /// Looks threads up: all members that are there have to match.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct ThreadSearchRequest {
        /// Members that its metadata has.
        metadata?: Object,
        /// Members that its state has.
        values?: Object,
        /// Where it stands.
        status?: ThreadStatus,
        /// The most threads of the answer; 10 where it is absent.
        limit?: Limit,
        /// How many matches are passed over.
        offset?: Offset,
    }
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
