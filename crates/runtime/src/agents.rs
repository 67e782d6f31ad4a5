//! The agents that are served. One may join while the server runs; none leaves.

use std::fmt;
use std::sync::Arc;

use elsa::sync::{FrozenMap, FrozenVec};
use trilogue_domain::AgentName;
use trilogue_domain::error::{Code, Error, Result};

use crate::backend::Backend;

/// The most agents that are served at once.
pub(crate) const MAX_AGENTS: usize = 1_024;

/// The agents by name, and the names in the order in which they came.
#[derive(Default)]
pub(crate) struct Agents {
    by_name: FrozenMap<AgentName, Box<Arc<dyn Backend>>>,
    order: FrozenVec<Box<AgentName>>,
}

// === impl Agents ===

impl Agents {
    /// These agents, in this order.
    pub(crate) fn of(agents: Vec<Arc<dyn Backend>>) -> Self {
        let served = Self::default();
        for agent in agents {
            served.insert(agent);
        }
        served
    }

    /// Adds an agent.
    ///
    /// # Errors
    /// `already_exists` where its name is taken, `overloaded` where there are too many.
    pub(crate) fn join(&self, agent: Arc<dyn Backend>) -> Result<()> {
        let name = agent.card().name.clone();
        if self.get(&name).is_some() {
            let message = format!("the agent '{name}' is served already");
            return Err(Error::new(Code::AlreadyExists, message));
        }
        if self.order.len() >= MAX_AGENTS {
            let message = format!("{MAX_AGENTS} agents are served, which is the most");
            return Err(Error::new(Code::Overloaded, message));
        }
        self.insert(agent);
        Ok(())
    }

    fn insert(&self, agent: Arc<dyn Backend>) {
        let name = agent.card().name.clone();
        self.by_name.insert(name.clone(), Box::new(agent));
        self.order.push(Box::new(name));
    }

    /// The agent of this name.
    pub(crate) fn get(&self, name: &AgentName) -> Option<&Arc<dyn Backend>> {
        self.by_name.get(name)
    }

    /// The agents, in the order in which they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.order.iter().filter_map(|name| self.get(name))
    }
}

impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|agent| &agent.card().name)).finish()
    }
}
