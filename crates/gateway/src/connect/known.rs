//! The agents as this protocol names them: found by any of their names, and made ready for showing once.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use trilogue_domain::{AgentCard, AgentName};
use trilogue_mapping::connect as mapping;
use trilogue_runtime::Runtime;

use super::view;

/// The agents, read when they are first asked for; they do not change while the server runs.
#[derive(Debug, Default)]
pub(crate) struct KnownAgents(OnceLock<Known>);

#[derive(Debug)]
struct Known {
    by_name: HashMap<AgentName, KnownAgent>,
    /// By everything that an `agent_id` of a request may be, ids in lower case.
    by_text: HashMap<String, AgentName>,
}

/// An agent, made ready for showing.
#[derive(Clone, Debug)]
pub(crate) struct KnownAgent {
    pub(crate) card: Arc<AgentCard>,
    /// Its id on this face.
    pub(crate) id: Arc<str>,
}

// === impl KnownAgents ===

impl KnownAgents {
    /// The agent that a request names.
    pub(crate) fn find<'a>(&'a self, runtime: &Runtime, text: &str) -> Option<&'a KnownAgent> {
        let known = self.0.get_or_init(|| Known::of(runtime));
        let found = known.by_text.get(text);
        let name = found.or_else(|| known.by_text.get(&text.to_ascii_lowercase()))?;
        known.by_name.get(name)
    }

    /// The agent of a run; next to nothing is known of one that is not served any more.
    pub(crate) fn of_run(&self, runtime: &Runtime, name: &AgentName) -> KnownAgent {
        let known = self.0.get_or_init(|| Known::of(runtime));
        let served = known.by_name.get(name).cloned();
        served.unwrap_or_else(|| KnownAgent::of(view::card_of(runtime, name)))
    }
}

// === impl Known ===

impl Known {
    fn of(runtime: &Runtime) -> Self {
        let (mut by_name, mut by_text) = (HashMap::new(), HashMap::new());
        let agents: Vec<_> =
            runtime.registered().into_iter().cloned().map(KnownAgent::of).collect();
        // Of two agents that one text names, the name under which one is served counts most, then an id; else the first.
        for agent in &agents {
            let title = mapping::name(&agent.card).to_owned();
            by_text.entry(title).or_insert_with(|| agent.card.name.clone());
        }
        for agent in &agents {
            by_text.insert(agent.id.to_ascii_lowercase(), agent.card.name.clone());
        }
        for agent in agents {
            let name = agent.card.name.clone();
            by_text.insert(name.as_str().to_owned(), name.clone());
            by_name.insert(name, agent);
        }
        Self { by_name, by_text }
    }
}

// === impl KnownAgent ===

impl KnownAgent {
    fn of(card: AgentCard) -> Self {
        let id = mapping::agent_id(&card);
        Self { card: Arc::new(card), id: Arc::from(id) }
    }
}
