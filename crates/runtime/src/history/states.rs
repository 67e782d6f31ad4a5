//! A thread's state at its checkpoints: the value set last on the path, or the messages on it.
//!
//! For an agent of messages that declares no state, the messages are the state: also at a checkpoint without a value behind one that has one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use trilogue_domain::agent::InputKind;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, CheckpointKey, Json, Message};
use trilogue_store::rows::{CheckpointRow, ThreadRow};

use super::{HistorySource, path, reference, said_at};
use crate::agent_registry::AgentRegistry;
use crate::request::StateOf;

/// A path from its beginning, as far as it was followed.
#[derive(Debug, Default)]
struct Walk {
    value: Option<Set>,
    /// The messages so far, up to the last wanted state that is derived from them.
    messages: Vec<Message>,
}

#[derive(Clone, Debug)]
enum Set {
    Here(Json),
    /// At this address; fetched on demand.
    There(Arc<str>),
}

/// The state at a checkpoint; without one there is nothing yet.
pub(crate) async fn at(
    source: HistorySource<'_>,
    agents: &AgentRegistry,
    thread: &ThreadRow,
    at: Option<CheckpointKey>,
) -> Result<StateOf> {
    let path = path(source.store, source.scope, &thread.id, at).await?;
    let set = path.iter().find_map(Set::of);
    match (set, path.first()) {
        (Some(set), Some(row)) if !is_said(source, agents, row).await? => {
            set.read(source).await.map(StateOf::Value)
        }
        _ => super::messages(source, &thread.id, at).await.map(StateOf::Messages),
    }
}

/// Whether the messages are this agent's state.
pub(crate) fn is_of_messages(card: &AgentCard) -> bool {
    card.input == InputKind::Chat && card.state_schema.is_none()
}

/// Whether the state at a checkpoint is its messages, whatever was set before it.
async fn is_said(
    source: HistorySource<'_>,
    agents: &AgentRegistry,
    row: &CheckpointRow,
) -> Result<bool> {
    let (None, Some(run)) = (Set::of(row), row.run) else { return Ok(false) };
    let Some(run) = source.store.run_by_key(run).await? else { return Ok(true) };
    // The kind of an unregistered agent is unknown; its run has set nothing.
    Ok(agents.get(&run.agent).is_none_or(|agent| is_of_messages(agent.card())))
}

/// The states at these checkpoints, in their order. The path to the newest is read once.
pub(crate) async fn of(
    source: HistorySource<'_>,
    agents: &AgentRegistry,
    thread: &ThreadRow,
    checkpoints: &[CheckpointRow],
) -> Result<Vec<StateOf>> {
    let Some(newest) = checkpoints.iter().map(|row| row.key).max() else {
        return Ok(Vec::new());
    };
    let mut found = on_path(source, agents, thread, newest, checkpoints).await?;
    let mut states = Vec::with_capacity(checkpoints.len());
    for row in checkpoints {
        let state = match found.remove(&row.key) {
            Some(state) => state,
            // The checkpoint is on another branch, or listed twice.
            None => at(source, agents, thread, Some(row.key)).await?,
        };
        states.push(state);
    }
    Ok(states)
}

/// The states at those of the checkpoints that are on the path to `newest`.
async fn on_path(
    source: HistorySource<'_>,
    agents: &AgentRegistry,
    thread: &ThreadRow,
    newest: CheckpointKey,
    wanted: &[CheckpointRow],
) -> Result<HashMap<CheckpointKey, StateOf>> {
    let path = path(source.store, source.scope, &thread.id, Some(newest)).await?;
    let is_wanted = |key: CheckpointKey| wanted.iter().any(|row| row.key == key);
    // Messages are read only where a wanted state is derived from them.
    let (mut said, mut last_said, mut is_set) = (HashSet::new(), 0, false);
    for (place, row) in path.iter().rev().enumerate() {
        is_set |= Set::of(row).is_some();
        if is_wanted(row.key) && (!is_set || is_said(source, agents, row).await?) {
            said.insert(row.key);
            last_said = place + 1;
        }
    }
    let entries = path.iter().rev().take(last_said).filter_map(|row| row.client_history.as_ref());
    let elsewhere = reference::read(source, entries.flat_map(|given| &given.entries)).await?;
    let mut walk = Walk::default();
    let mut found = HashMap::new();
    for (place, row) in path.iter().rev().enumerate() {
        walk.value = Set::of(row).or(walk.value);
        if place < last_said {
            walk.messages.extend(said_at(source.store, thread, row, &elsewhere).await?);
        }
        if is_wanted(row.key) {
            let state = match said.contains(&row.key) {
                true => StateOf::Messages(walk.messages.clone()),
                false => walk.state(source).await?,
            };
            found.insert(row.key, state);
        }
    }
    Ok(found)
}

// === impl Walk ===

impl Walk {
    async fn state(&self, source: HistorySource<'_>) -> Result<StateOf> {
        match &self.value {
            Some(set) => set.clone().read(source).await.map(StateOf::Value),
            None => Ok(StateOf::Messages(self.messages.clone())),
        }
    }
}

// === impl Set ===

impl Set {
    /// The state that a checkpoint itself sets.
    fn of(row: &CheckpointRow) -> Option<Self> {
        let address = || row.client_history.as_ref().and_then(|given| given.state.clone());
        row.value.clone().map(Self::Here).or_else(|| address().map(Self::There))
    }

    async fn read(self, source: HistorySource<'_>) -> Result<Json> {
        match self {
            Self::Here(value) => Ok(value),
            Self::There(address) => reference::read_state(source.external, &address).await,
        }
    }
}
