use super::object::object;
use crate::json::words::words;

object! {
    /// The whole plan. It replaces the previous one.
    pub struct Plan {
        entries: Vec<PlanEntry> = "entries" as fitting_there;
    }

    pub struct PlanEntry {
        content: String = "content";
        priority: PlanEntryPriority = "priority";
        status: PlanEntryStatus = "status";
    }
}

words! {
    pub enum PlanEntryPriority {
        High = "high";
        Medium = "medium";
        Low = "low";
    }

    pub enum PlanEntryStatus {
        Pending = "pending";
        InProgress = "in_progress";
        Completed = "completed";
    }
}
