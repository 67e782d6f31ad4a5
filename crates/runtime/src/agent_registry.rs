//! The registry of served agents. Agents can join while the server runs, but never leave.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use elsa::sync::{FrozenMap, FrozenVec};
use tokio::sync::Notify;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{AgentName, Scope, TenantId, ThreadId, ThreadKey};

use crate::backend::Backend;
use crate::services::Services;
use crate::session::ThreadContext;

pub(crate) const MAX_AGENTS: usize = 1_024;

/// How long an erasure waits for agents to remove their data of the thread.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(10);

/// The agents by name, and the names in the order in which they joined.
#[derive(Default)]
pub(crate) struct AgentRegistry {
    by_name: FrozenMap<AgentName, Box<Arc<dyn Backend>>>,
    order: FrozenVec<Box<AgentName>>,
    /// Notified when an agent has joined.
    pub(crate) joined: Notify,
}

// === impl AgentRegistry ===

impl AgentRegistry {
    pub(crate) fn of(agents: Vec<Arc<dyn Backend>>) -> Self {
        let served = Self::default();
        for agent in agents {
            served.insert(agent);
        }
        served
    }

    /// Adds an agent; fails with `already_exists` if its name is taken, `overloaded` if there are too many agents.
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
        self.joined.notify_one();
        Ok(())
    }

    fn insert(&self, agent: Arc<dyn Backend>) {
        let name = agent.card().name.clone();
        self.by_name.insert(name.clone(), Box::new(agent));
        self.order.push(Box::new(name));
    }

    pub(crate) fn get(&self, name: &AgentName) -> Option<&Arc<dyn Backend>> {
        self.by_name.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.order.iter().filter_map(|name| self.get(name))
    }

    pub(crate) fn backend(&self, name: &AgentName) -> Result<&Arc<dyn Backend>> {
        self.get(name).ok_or_else(|| {
            let cards = self.iter().filter(|agent| agent.is_listed()).map(|agent| agent.card());
            let mut names: Vec<_> = cards.map(|card| card.name.as_str()).collect();
            names.sort_unstable();
            Error::new(Code::AgentNotFound, format!("agent '{name}' not found"))
                .hint(format!("the agents are: {}", names.join(", ")))
                .without_agent(name.as_str())
        })
    }

    /// Notifies agents with sessions of their own that a thread is erased. A slow agent finishes in the background.
    pub(crate) async fn forget(
        &self,
        services: &Arc<Services>,
        (key, thread, tenant): (ThreadKey, &ThreadId, &TenantId),
    ) {
        let forgetting: Vec<_> = self
            .with_sessions(services, (key, thread, tenant))
            .map(|(agent, context)| {
                tokio::spawn(async move {
                    if let Some(sessions) = agent.sessions() {
                        sessions.forget(&context).await;
                    }
                })
            })
            .collect();
        if forgetting.is_empty() {
            return;
        }
        let all = async {
            for one in forgetting {
                if one.await.is_err() {
                    tracing::error!(%thread, "an agent could not forget an erased thread");
                }
            }
        };
        if tokio::time::timeout(FORGOTTEN_WITHIN, all).await.is_err() {
            tracing::warn!(%thread, "an agent takes long to forget an erased thread");
        }
    }

    /// Notifies agents with sessions of their own that a thread gets no further run. Returns at once.
    pub(crate) fn close_sessions(
        &self,
        services: &Arc<Services>,
        thread: (ThreadKey, &ThreadId, &TenantId),
    ) {
        for (agent, context) in self.with_sessions(services, thread) {
            tokio::spawn(async move {
                if let Some(sessions) = agent.sessions() {
                    sessions.close(&context).await;
                }
            });
        }
    }

    /// Returns the agents with sessions of their own, each with its context for this thread.
    fn with_sessions(
        &self,
        services: &Arc<Services>,
        (key, thread, tenant): (ThreadKey, &ThreadId, &TenantId),
    ) -> impl Iterator<Item = (Arc<dyn Backend>, ThreadContext)> {
        self.iter().filter(|agent| agent.sessions().is_some()).map(move |agent| {
            let context = ThreadContext {
                services: Arc::clone(services),
                thread: key,
                id: thread.clone(),
                scope: Scope { tenant: tenant.clone(), owner: None },
                agent: agent.card().name.clone(),
                parent: None,
            };
            (Arc::clone(agent), context)
        })
    }
}

impl fmt::Debug for AgentRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|agent| &agent.card().name)).finish()
    }
}
