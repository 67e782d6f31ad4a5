//! A bound on all children together: the child that has been idle longest is stopped to make room for another.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use metrics::counter;
use tokio::time::Instant;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::lock;

use super::tree::Census;
use super::{Child, Children, Layers};

/// Counts starts that the budget refused.
const REFUSED: &str = "trilogue_agent_processes_refused_total";
/// Counts idle processes that were stopped to make room for others.
const STOPPED: &str = "trilogue_agent_processes_stopped_total";

/// The most that the children of a server may use together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    pub max_processes: usize,
    /// The memory of all children and their descendants, in bytes.
    pub max_memory_bytes: u64,
}

/// The memory use of a child.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildUsage {
    /// The name of its agent.
    pub name: String,
    pub pid: u32,
    /// The memory of the child and its descendants, in bytes.
    pub memory_bytes: u64,
    /// Whether it is not in use.
    pub is_idle: bool,
    /// The layers of its sandbox.
    pub layers: Layers,
}

/// A child that can be stopped while it is idle.
pub(crate) trait IdleChild: Send + Sync {
    /// Returns the child; `None` if it is a connection, which uses nothing of the budget.
    fn child(&self) -> Option<&Child>;
    /// Returns when it became idle, or `None` while it is in use.
    fn idle_since(&self) -> Option<Instant>;
    /// Whether it may come back to a tool call.
    fn has_open_calls(&self) -> bool;
    /// Takes it out of service, so that it gets no more work. Returns `false` if it is in use.
    fn retire(&self) -> bool;
    /// Stops it, and logs why.
    fn stop(&self) -> BoxFuture<'_, ()>;
}

// === impl Budget ===

impl Default for Budget {
    fn default() -> Self {
        Self { max_processes: 64, max_memory_bytes: 8 * 1024 * 1024 * 1024 }
    }
}

// === impl Children ===

impl Children {
    /// Sets the bound on all children together. It applies to later starts.
    pub fn set_budget(&self, budget: Budget) {
        *lock(&self.budget) = budget;
    }

    /// Returns the number of idle children.
    #[must_use]
    pub fn idle_count(&self) -> usize {
        self.idle_children().iter().filter(|child| child.idle_since().is_some()).count()
    }

    /// Returns the memory use of each child, ordered by name and process id. It blocks: it reads files of the system.
    #[must_use]
    pub fn usage(&self) -> Vec<ChildUsage> {
        let all = self.all();
        if all.is_empty() {
            return Vec::new();
        }
        let idle = self.idle_children();
        let idle = idle.iter().filter(|child| child.idle_since().is_some());
        let idle: HashSet<_> = idle.filter_map(|child| Some(child.child()?.instance())).collect();
        let census = Census::take();
        let usage = all.iter().filter_map(|child| {
            let pid = child.pid()?;
            Some(ChildUsage {
                name: child.name().to_owned(),
                pid,
                memory_bytes: census.resident_bytes(&HashSet::from([pid])),
                is_idle: idle.contains(&child.instance()),
                layers: child.layers(),
            })
        });
        let mut usage: Vec<_> = usage.collect();
        usage.sort_by(|one, two| (&one.name, one.pid).cmp(&(&two.name, two.pid)));
        usage
    }

    /// Registers a child that may be stopped to make room for others while it is idle.
    pub(crate) fn may_stop(&self, child: Weak<dyn IdleChild>) {
        let mut idle = lock(&self.idle);
        idle.retain(|known| known.strong_count() > 0);
        idle.push(child);
    }

    /// Stops idle children until there is room for one more child. Stops the child that has been idle longest first, and those with open tool calls last.
    /// Errors: `overloaded` if all children are in use.
    pub(crate) async fn make_room(&self) -> Result<()> {
        while let Some(excess) = self.excess().await {
            let mut idle: Vec<_> = self
                .idle_children()
                .into_iter()
                .filter_map(|child| Some(((child.has_open_calls(), child.idle_since()?), child)))
                .collect();
            idle.sort_by_key(|(rank, _)| *rank);
            let Some((_, idle)) = idle.into_iter().find(|(_, child)| child.retire()) else {
                counter!(REFUSED).increment(1);
                return Err(Error::new(Code::Overloaded, excess).hint(
                    "wait until an agent is idle, or raise `runtime.max_agent_processes` or `runtime.max_agent_memory`",
                ));
            };
            counter!(STOPPED).increment(1);
            tracing::info!(reason = excess, "stopping an idle process of an agent");
            let Some(child) = idle.child() else { continue };
            let instance = child.instance();
            let mut running = self.running.subscribe();
            idle.stop().await;
            // The wait fails only if the sender is dropped, and `self` holds the sender.
            drop(running.wait_for(|running| !running.children.contains_key(&instance)).await);
        }
        Ok(())
    }

    /// Returns a message that names the exhausted limit, or `None` if there is room.
    async fn excess(&self) -> Option<String> {
        let Budget { max_processes, max_memory_bytes } = *lock(&self.budget);
        let leaders: HashSet<u32> = {
            let running = self.running.borrow();
            if running.children.len() + running.starting >= max_processes {
                return Some(format!("all {max_processes} processes of agents are in use"));
            }
            running.children.values().filter_map(Child::pid).collect()
        };
        if leaders.is_empty() {
            return None;
        }
        // A census reads files of the system and blocks.
        let used = tokio::task::spawn_blocking(move || Census::take().resident_bytes(&leaders));
        let used = used.await.ok()?;
        (used >= max_memory_bytes).then(|| {
            let [used, most] = [used, max_memory_bytes].map(|bytes| bytes / (1024 * 1024));
            format!("the processes of agents use {used} MiB, and at most {most} MiB are allowed")
        })
    }

    fn idle_children(&self) -> Vec<Arc<dyn IdleChild>> {
        lock(&self.idle).iter().filter_map(Weak::upgrade).collect()
    }
}
