use super::Json;
use crate::json::record::record;

record! {
    /// A state of a thread on the path to its head.
    pub struct Checkpoint {
        /// The id of the checkpoint.
        id: String,
        /// The previous checkpoint on the path.
        parent_id?: String,
        /// The run that made the checkpoint. Absent if a patch made it, or if the run was removed.
        run_id?: String,
        /// The thread number of the last event that the checkpoint includes.
        position: u64,
        /// The state. Absent if it is derived from the messages on the path.
        values?: Json,
        /// When the checkpoint was made.
        created_at: String,
    }
}
