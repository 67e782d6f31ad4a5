use super::object::object;
use crate::json::words::words;

object! {
    /// The agent's plan, whole: it replaces the one before.
    pub struct Plan {
        /// Its steps, in order.
        entries: Vec<PlanEntry> = "entries" as fitting_there;
    } may {
    }
}

object! {
    /// A step of a plan.
    pub struct PlanEntry {
        /// What is to be done.
        content: String = "content" as required;
        /// How important it is.
        priority: PlanEntryPriority = "priority" as required;
        /// Where it stands.
        status: PlanEntryStatus = "status" as required;
    } may {
    }
}

words! {
    /// How important a step is.
    pub enum PlanEntryPriority {
        /// The goal hangs on it.
        High = "high";
        /// It matters.
        Medium = "medium";
        /// It would be good.
        Low = "low";
    }
}

words! {
    /// Where a step stands.
    pub enum PlanEntryStatus {
        /// It has not begun.
        Pending = "pending";
        /// It is worked on.
        InProgress = "in_progress";
        /// It is done.
        Completed = "completed";
    }
}
