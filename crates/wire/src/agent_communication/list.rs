use super::object::object;
use super::{AgentManifest, Event, Run};
use crate::json::member::{optional, required};

object! {
    #[derive(Default)]
    pub struct AgentsList {
        agents: Vec<AgentManifest> = required;
    }

    #[derive(Default)]
    pub struct EventsList {
        /// Oldest first.
        events: Vec<Event> = required;
    }

    /// A page of runs. A Trilogue extension.
    #[derive(Default)]
    pub struct RunsList {
        runs: Vec<Run> = required;
        /// The cursor of the next page; `null` on the last page.
        next: Option<String> = optional;
    }
}
