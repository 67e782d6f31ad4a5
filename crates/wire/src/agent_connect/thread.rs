use serde::{Deserialize, Deserializer};

use super::{IfExists, Json, Limit, Message, Object, Offset, ThreadStateSchema, Time};
use crate::json::record::record;
use crate::json::words::words;
use crate::json::{object_only, or_default};

record! {
    /// A conversation.
    pub struct Thread {
        /// The id of the thread.
        thread_id: String,
        /// When the thread was created.
        created_at: Time,
        /// When the thread last changed.
        updated_at: Time,
        /// Metadata of any kind, by which the thread can be found.
        metadata: Object = default from "or_default",
        /// The status of the thread.
        status: ThreadStatus,
        /// The state of the thread. Absent if it has no state, or if the state is not shown.
        #[schemars(with = "Option<ThreadStateSchema>")]
        values?: Json,
        /// The messages of the thread.
        messages?: Vec<Message>,
    }
}

words! {
    /// The status of a thread.
    pub enum ThreadStatus {
        /// No run is pending.
        Idle = "idle";
        /// A run is pending.
        Busy = "busy";
        /// The newest run waits for an answer.
        Interrupted = "interrupted";
        /// The newest run failed.
        Error = "error";
    }
}

record! {
    /// A state of a thread.
    pub struct ThreadState {
        /// The id of the state.
        checkpoint: ThreadCheckpoint,
        /// The state.
        #[schemars(with = "ThreadStateSchema")]
        values: Json,
        /// The messages up to this state.
        messages?: Vec<Message>,
        /// How the state was made.
        metadata?: Object,
    }

    /// The id of a state of a thread.
    pub written struct ThreadCheckpoint {
        /// The checkpoint id.
        checkpoint_id: String,
    }

    /// Creates a thread.
    pub struct ThreadCreate: Default {
        /// The id of the thread. The server makes one by default.
        thread_id?: String,
        /// Metadata of any kind, by which the thread can be found.
        metadata?: Object,
        /// What to do if the id exists.
        if_exists?: IfExists,
    }

    /// Changes a thread.
    pub struct ThreadPatch: Default {
        /// The state that the new one follows. The default is the newest.
        checkpoint?: ThreadCheckpoint,
        /// Members to set. `null` removes a member.
        metadata?: Object,
        /// The whole new state.
        #[schemars(with = "Option<ThreadStateSchema>")]
        values?: Json,
        /// The messages of the new state.
        messages?: Vec<Message>,
    }

    /// Searches threads. All given members must match.
    pub struct ThreadSearchRequest: Default {
        /// Members that the metadata must have.
        metadata?: Object,
        /// Members that the state must have.
        values?: Object,
        /// The status of the thread.
        status?: ThreadStatus,
        /// The maximum number of threads in the response. The default is 10.
        limit?: Limit,
        /// The number of matches to skip.
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
