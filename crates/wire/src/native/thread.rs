use super::{Json, ThreadClient};
use crate::json::record::record;

record! {
    /// A conversation with one log.
    pub struct Thread {
        /// The id of the thread.
        id: String,
        /// The metadata of the thread: an object.
        metadata: Json,
        /// When the thread was created.
        created_at: String,
        /// When the thread last changed, except for its log.
        updated_at: String,
        /// Whether the thread exists for one run only and is not listed.
        ephemeral: bool = default,
        /// The title of the thread: the user's, otherwise the agent's, otherwise the first line of the first user message.
        title?: String,
        /// The name of the live server that owns the thread, if several servers share the store. Absent while none owns it, such as after its server was drained.
        node?: String,
        /// Why the thread is closed, if its stored data is damaged. Such a thread can only be erased.
        damage?: String,
        /// The checkpoint at the end of the history. Only in responses about a single thread.
        head?: String,
        /// The state at the head, if the agents keep one. Only in responses about a single thread.
        values?: Json,
        /// The clients of the Agent Client Protocol that have the thread open on this server, at most 100 of them. Only in responses about a single thread.
        clients: Vec<ThreadClient> = default unless "Vec::is_empty",
    }

    /// A thread to create.
    pub strict struct ThreadCreate: Default {
        /// The id of the thread, unique in the tenant. The server makes one by default.
        id?: String,
        /// The metadata of the thread: an object.
        metadata?: Json,
    }

    /// A change of a thread.
    pub strict struct ThreadPatch: Default {
        /// Members to set in the metadata. `null` removes a member.
        metadata?: Json,
        /// The new state, as a new checkpoint.
        #[serde(deserialize_with = "crate::json::present")]
        values?: Json,
        /// The checkpoint that the new one follows. The default is the head.
        from?: String,
    }

    /// A thread at one of its events.
    pub struct ThreadState {
        /// The number of the last event that is included; 0 if the log is empty.
        number: u64,
        /// The metadata at that event.
        metadata?: Json,
        /// The state at that event, if the agents keep one.
        values?: Json,
        /// The run that had set `values` and had not ended. The thread takes the values over when the run completes.
        run_id?: String,
    }

    /// The copy to make of a thread.
    pub strict struct ThreadCopy: Default {
        /// The id of the copy. The server makes one by default.
        id?: String,
        /// The metadata of the copy. The default is the metadata of the thread.
        metadata?: Json,
        /// The last message of the copy. By default the whole history is copied.
        until_message?: String,
        /// The number of an event. The copy ends with the last message that was complete at this event. Excludes `until_message`.
        until_event?: u64,
    }
}
