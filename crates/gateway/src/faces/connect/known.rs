//! The agents as this protocol names them: found by any of their names, and made ready for showing once.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use trilogue_domain::{AgentCard, AgentName};
use trilogue_mapping::connect as mapping;
use trilogue_runtime::Runtime;

use super::view;

/// The agents, read when they are first asked for, and again when one has joined.
#[derive(Debug, Default)]
pub(crate) struct KnownAgents(RwLock<Arc<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// How many agents there were.
    count: usize,
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
    pub(crate) fn find(&self, runtime: &Runtime, text: &str) -> Option<KnownAgent> {
        let known = self.known(runtime);
        let found = known.by_text.get(text);
        let name = found.or_else(|| known.by_text.get(&text.to_ascii_lowercase()))?;
        known.by_name.get(name).cloned()
    }

    /// The agent of a run; next to nothing is known of one that is not served any more.
    pub(crate) fn of_run(&self, runtime: &Runtime, name: &AgentName) -> KnownAgent {
        let served = self.known(runtime).by_name.get(name).cloned();
        served.unwrap_or_else(|| KnownAgent::of(view::card_of(runtime, name)))
    }

    /// The agents that there are now. None ever leaves, so that their number says whether these are all.
    fn known(&self, runtime: &Runtime) -> Arc<Known> {
        let cards = runtime.registered();
        let known = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        if known.count == cards.len() {
            return known;
        }
        let known = Arc::new(Known::of(&cards));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&known);
        known
    }
}

// === impl Known ===

impl Known {
    fn of(cards: &[&AgentCard]) -> Self {
        let (mut by_name, mut by_text) = (HashMap::new(), HashMap::new());
        let agents: Vec<_> = cards.iter().map(|card| KnownAgent::of((*card).clone())).collect();
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
        Self { count: cards.len(), by_name, by_text }
    }
}

// === impl KnownAgent ===

impl KnownAgent {
    fn of(card: AgentCard) -> Self {
        let id = mapping::agent_id(&card);
        Self { card: Arc::new(card), id: Arc::from(id) }
    }
}
