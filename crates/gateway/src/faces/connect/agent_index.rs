//! The agents as this protocol shows them: indexed by all their names and rendered once.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use trilogue_domain::{AgentCard, AgentName};
use trilogue_mapping::connect as mapping;
use trilogue_runtime::Runtime;

use super::view;

/// The agents, loaded on first use and again after an agent has joined.
#[derive(Debug, Default)]
pub(super) struct AgentIndex(RwLock<Arc<AgentTable>>);

#[derive(Debug, Default)]
struct AgentTable {
    count: usize,
    by_name: HashMap<AgentName, IndexedAgent>,
    /// By every text that can be an `agent_id` of a request, ids in lower case.
    by_text: HashMap<String, AgentName>,
}

/// An agent with its rendered form.
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

    /// Returns the agent of a run. For an agent that is not served any more, only its name is known.
    pub(super) fn of_run(&self, runtime: &Runtime, name: &AgentName) -> IndexedAgent {
        let served = self.current(runtime).by_name.get(name).cloned();
        served.unwrap_or_else(|| IndexedAgent::of(view::card_of(runtime, name)))
    }

    /// Returns the present agents. Agents never leave, so an equal number means that the table is current.
    fn current(&self, runtime: &Runtime) -> Arc<AgentTable> {
        let cards = runtime.all_agents();
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
        // If one text names two agents, the name under which one is served comes first, then an id; otherwise the first agent wins.
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
