use super::object::object;
use super::tagged::tagged;
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

object! {
    /// A whole plan. It replaces the plan with the same id, even one of another type.
    pub struct PlanUpdate {
        plan: PlanUpdateContent = "plan";
    }

    /// An unknown id is ignored.
    pub struct PlanRemoved {
        plan_id: String = "planId";
    }

    pub struct PlanItems {
        plan_id: String = "planId";
        entries: Vec<PlanEntry> = "entries" as fitting_there;
    }

    pub struct PlanMarkdown {
        plan_id: String = "planId";
        /// The whole plan.
        content: String = "content";
    } may {
        /// The absolute path of the plan's file.
        path: Option<String> = "path";
    }
}

tagged! {
    pub enum PlanUpdateContent by "type" {
        Items(PlanItems) = "items";
        Markdown(PlanMarkdown) = "markdown";
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
