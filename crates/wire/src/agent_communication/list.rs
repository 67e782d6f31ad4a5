use serde::Serialize;

use super::{AgentManifest, Event, Run};

/// The agents of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct AgentsList {
    /// The agents.
    pub agents: Vec<AgentManifest>,
}

/// The events of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct EventsList {
    /// The events, oldest first.
    pub events: Vec<Event>,
}

/// Our extension: a page of runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct RunsList {
    /// The runs.
    pub runs: Vec<Run>,
    /// Where the next page begins; `null` on the last.
    pub next: Option<String>,
}
