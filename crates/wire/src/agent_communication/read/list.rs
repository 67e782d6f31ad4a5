use serde::Deserialize;

use super::super::{AgentManifest, AgentsList, Event, EventsList, Run, RunsList};
use super::given::Given;
use super::leaf::{List, Object, Text};
use super::message::each;
use super::{At, Read, Violation};

/// A list of agents as it was sent.
#[derive(Debug, Deserialize)]
pub struct AgentsDraft {
    #[serde(default)]
    agents: Given<List<<AgentManifest as Read>::Draft>>,
}

/// A list of events as it was sent.
#[derive(Debug, Deserialize)]
pub struct EventsDraft {
    #[serde(default)]
    events: Given<List<<Event as Read>::Draft>>,
}

/// A page of runs as it was sent.
#[derive(Debug, Deserialize)]
pub struct RunsDraft {
    #[serde(default)]
    runs: Given<List<<Run as Read>::Draft>>,
    #[serde(default)]
    next: Given<Text>,
}

// === impl AgentsList ===

impl Read for AgentsList {
    type Draft = Object<AgentsDraft>;
    fn finish(Object(draft): Object<AgentsDraft>, at: &At<'_>) -> Result<Self, Violation> {
        let agents = at.key("agents");
        Ok(Self { agents: each(draft.agents.required(&agents)?, &agents)? })
    }
}

// === impl EventsList ===

impl Read for EventsList {
    type Draft = Object<EventsDraft>;
    fn finish(Object(draft): Object<EventsDraft>, at: &At<'_>) -> Result<Self, Violation> {
        let events = at.key("events");
        Ok(Self { events: each(draft.events.required(&events)?, &events)? })
    }
}

// === impl RunsList ===

impl Read for RunsList {
    type Draft = Object<RunsDraft>;
    fn finish(Object(draft): Object<RunsDraft>, at: &At<'_>) -> Result<Self, Violation> {
        let runs = at.key("runs");
        Ok(Self {
            runs: each(draft.runs.required(&runs)?, &runs)?,
            next: draft.next.optional().map(|text| text.0),
        })
    }
}
