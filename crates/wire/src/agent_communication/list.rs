use super::object::object;
use super::{AgentManifest, Event, Run};
use crate::json::member::{optional, required};

object! {
    pub struct AgentsList: Default {
        agents: Vec<AgentManifest> = required;
    }

    pub struct EventsList: Default {
        /// Oldest first.
        events: Vec<Event> = required;
    }

    /// A page of runs. A Trilogue extension.
    pub struct RunsList: Default {
        runs: Vec<Run> = required;
        /// The cursor of the next page; `null` on the last page.
        next: Option<String> = optional;
    }
}
