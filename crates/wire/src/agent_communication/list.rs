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

    /// Our extension: a page of runs.
    #[derive(Default)]
    pub struct RunsList {
        runs: Vec<Run> = required;
        /// Where the next page begins; `null` on the last.
        next: Option<String> = optional;
    }
}
