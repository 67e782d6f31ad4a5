use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Json;
use crate::json::record::record;

record! {
    /// A conversation with one log.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Thread {
        /// Its id.
        id: String,
        /// Its metadata: an object.
        metadata: Json,
        /// When it was created.
        created_at: String,
        /// When something but its log changed last.
        updated_at: String,
        /// Whether it exists for one run only and is not listed.
        #[serde(default)]
        ephemeral: bool,
        /// Its title: the one that somebody gave it, else its agent's, else the first line of its first user message.
        title?: String,
        /// The name of the server that owns it, where several share the store and it is alive.
        node?: String,
        /// Why it is closed, where its stored data is damaged. Such a thread can only be erased.
        damage?: String,
        /// The checkpoint that its history leads to. Only where one thread is asked for.
        head?: String,
        /// Its state at the head, where agents keep one. Only where one thread is asked for.
        values?: Json,
    }

    /// A thread to create.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ThreadCreate {
        /// Its id, unique in the tenant; made by the server when absent.
        id?: String,
        /// Its metadata: an object.
        metadata?: Json,
    }

    /// A change of a thread.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ThreadPatch {
        /// Members to set in the metadata; `null` removes one.
        metadata?: Json,
        /// The new state, as a new checkpoint.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "crate::json::present"
        )]
        values: Option<Json>,
        /// The checkpoint that the new one follows; the head when absent.
        from?: String,
    }

    /// A thread as of one of its events.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct ThreadState {
        /// The number of the last event that counts; 0 when the log is empty.
        number: u64,
        /// Its metadata then.
        metadata?: Json,
        /// Its state then, where agents keep one.
        values?: Json,
        /// The run that had set `values` and had not ended: they become the thread's when it completes.
        run_id?: String,
    }

    /// The copy to make of a thread.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ThreadCopy {
        /// The copy's id; made by the server when absent.
        id?: String,
        /// The copy's metadata; that of the thread when absent.
        metadata?: Json,
        /// The message that the copy ends with; the whole history when absent.
        until_message?: String,
        /// The number of an event: the copy ends with the last message that was complete then. Excludes `until_message`.
        until_event?: u64,
    }
}
