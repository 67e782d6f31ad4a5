use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Json;
use crate::json::record::record;

record! {
    /// A state of a thread on the path to its head.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Checkpoint {
        /// Its id.
        id: String,
        /// The checkpoint before it on the path.
        parent_id?: String,
        /// The run that made it; absent when a patch did, or when the run was removed.
        run_id?: String,
        /// The thread number up to which the log is folded in.
        position: u64,
        /// The state; absent when it is derived from the messages on the path.
        values?: Json,
        /// When it was made.
        created_at: String,
    }
}
