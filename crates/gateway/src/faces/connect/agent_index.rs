//! The agents as this protocol names them: found by any of their names, and made ready for showing once.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use trilogue_domain::{AgentCard, AgentName};
use trilogue_mapping::connect as mapping;
use trilogue_runtime::Runtime;

use super::view;

/// The agents, read when they are first asked for, and again when one has joined.
#[derive(Debug, Default)]
pub(super) struct AgentIndex(RwLock<Arc<AgentTable>>);

#[derive(Debug, Default)]
struct AgentTable {
    count: usize,
    by_name: HashMap<AgentName, IndexedAgent>,
    /// By everything that an `agent_id` of a request may be, ids in lower case.
    by_text: HashMap<String, AgentName>,
}

/// An agent, made ready for showing.
#[derive(Clone, Debug)]
pub(super) struct IndexedAgent {
    pub(super) card: Arc<AgentCard>,
    pub(super) id: Arc<str>,
}

// === impl AgentIndex ===

impl AgentIndex {
    pub(super) fn find(&self, runtime: &Runtime, text: &str) -> Option<IndexedAgent> {
        let known = self.current(runtime);
        let found = known.by_text.get(text);
        let name = found.or_else(|| known.by_text.get(&text.to_ascii_lowercase()))?;
        known.by_name.get(name).cloned()
    }

    /// The agent of a run; next to nothing is known of one that is not served any more.
    pub(super) fn of_run(&self, runtime: &Runtime, name: &AgentName) -> IndexedAgent {
        let served = self.current(runtime).by_name.get(name).cloned();
        served.unwrap_or_else(|| IndexedAgent::of(view::card_of(runtime, name)))
    }

    /// The agents that there are now. None ever leaves, so that their number says whether these are all.
    fn current(&self, runtime: &Runtime) -> Arc<AgentTable> {
        let cards = runtime.registered();
        let known = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        if known.count == cards.len() {
            return known;
        }
        let known = Arc::new(AgentTable::of(&cards));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&known);
        known
    }
}

// === impl AgentTable ===

impl AgentTable {
    fn of(cards: &[&AgentCard]) -> Self {
        let (mut by_name, mut by_text) = (HashMap::new(), HashMap::new());
        let agents: Vec<_> = cards.iter().map(|card| IndexedAgent::of((*card).clone())).collect();
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

// === impl IndexedAgent ===

impl IndexedAgent {
    fn of(card: AgentCard) -> Self {
        let id = mapping::agent_id(&card);
        Self { card: Arc::new(card), id: Arc::from(id) }
    }
}
