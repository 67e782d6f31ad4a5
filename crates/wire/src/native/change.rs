use super::RunStatus;
use crate::json::record::record;

record! {
    /// A change of an item in a list.
    pub struct ListChange {
        /// The kind of change.
        kind: ListChangeKind,
        /// The thread, or the thread of the run or interrupt.
        thread_id: String,
        /// The run, for changes of a run or an interrupt.
        run_id?: String,
        /// The agent, for changes of a run.
        agent?: String,
        /// The current status, for changes of a run.
        status?: RunStatus,
        /// The interrupt, for changes of an interrupt.
        interrupt_id?: String,
        /// Whether the interrupt waits for an answer, for changes of an interrupt.
        pending?: bool,
    }

    /// The kind of a change.
    pub enum ListChangeKind {
        /// A thread is new, or its metadata, runs or head changed.
        Thread,
        /// A thread was removed.
        ThreadRemoved,
        /// A run is new, or its status changed.
        Run,
        /// An interrupt is new, or was resolved.
        Interrupt,
    }
}
