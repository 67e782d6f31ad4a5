//! A thread's state at its checkpoints: the value set last on the path, or the messages on it.
//!
//! For an agent of messages that declares no state, the messages are the state: also at a checkpoint without a value behind one that has one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use trilogue_domain::agent::InputKind;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, AgentName, CheckpointKey, Json, Message, Scope, ThreadId};
use trilogue_store::rows::{CheckpointRow, RunRow, ThreadRow};
use trilogue_store::{PathReader, Store};

use super::{HistorySource, client_entries, reference, said_at};
use crate::agent_registry::AgentRegistry;
use crate::request::StateContent;

/// A path from its beginning, as far as it was followed.
#[derive(Debug, Default)]
struct Walk {
    value: Option<Set>,
    /// The messages so far, up to the last wanted state that is derived from them.
    messages: Vec<Message>,
}

/// A checkpoint on a path, without its value.
#[derive(Debug)]
struct PathLink {
    row: CheckpointRow,
    /// Whether it sets a state itself.
    has_set: bool,
    /// The state that it sets, where a wanted checkpoint shows that.
    set: Option<Set>,
}

#[derive(Clone, Debug)]
enum Set {
    Here(Json),
    /// At this address; fetched on demand.
    There(Arc<str>),
}

/// What a thread keeps from one run to the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KeptState {
    /// The state that this agent has set, or a client.
    Set { by: Option<AgentName> },
    /// What is said.
    Said,
}

/// What the thread keeps at a checkpoint; `None` where its runs have left neither a state nor what an agent of messages said.
pub(crate) async fn kept(
    store: &dyn Store,
    scope: &Scope,
    agents: &AgentRegistry,
    thread: &ThreadId,
    at: CheckpointKey,
) -> Result<Option<KeptState>> {
    let mut path = PathReader::new(store, scope, thread, Some(at));
    while let Some(row) = path.next().await? {
        let run = match row.run {
            Some(run) => store.run_by_key(run).await?,
            None => None,
        };
        if Set::of(&row).is_some() {
            return Ok(Some(KeptState::Set { by: run.map(|run| run.agent) }));
        }
        // The kind of an unregistered agent is unknown; its run has set nothing.
        let says =
            |run: RunRow| agents.get(&run.agent).is_none_or(|agent| is_of_messages(agent.card()));
        if run.is_some_and(says) {
            return Ok(Some(KeptState::Said));
        }
    }
    Ok(None)
}

/// The state at a checkpoint; without one there is nothing yet.
pub(crate) async fn at(
    source: HistorySource<'_>,
    agents: &AgentRegistry,
    thread: &ThreadRow,
    at: Option<CheckpointKey>,
) -> Result<StateContent> {
    if at.is_none() {
        return Ok(StateContent::Messages(Vec::new()));
    }
    let mut path = PathReader::new(source.store, source.scope, &thread.id, at);
    let mut is_first = true;
    while let Some(row) = path.next().await? {
        if is_first && is_said(source, agents, &row, Set::of(&row).is_some()).await? {
            break;
        }
        is_first = false;
        if let Some(set) = Set::of(&row) {
            return set.read(source).await.map(StateContent::Value);
        }
    }
    super::messages(source, &thread.id, at).await.map(StateContent::Messages)
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
    has_set: bool,
) -> Result<bool> {
    let (false, Some(run)) = (has_set, row.run) else { return Ok(false) };
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
) -> Result<Vec<StateContent>> {
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
) -> Result<HashMap<CheckpointKey, StateContent>> {
    let wanted: HashSet<_> = wanted.iter().map(|row| row.key).collect();
    let is_wanted = |key: CheckpointKey| wanted.contains(&key);
    let path = links(source, thread, newest, &wanted).await?;
    // Messages are read only where a wanted state is derived from them.
    let (mut said, mut last_said, mut is_set) = (HashSet::new(), 0, false);
    for (place, PathLink { row, has_set, .. }) in path.iter().rev().enumerate() {
        is_set |= has_set;
        if is_wanted(row.key) && (!is_set || is_said(source, agents, row, *has_set).await?) {
            said.insert(row.key);
            last_said = place + 1;
        }
    }
    let said_links = path.iter().rev().take(last_said);
    let entries = said_links.flat_map(|link| client_entries(&link.row, &thread.id));
    let elsewhere = reference::read(source, entries).await?;
    let mut walk = Walk::default();
    let mut found = HashMap::new();
    for (place, PathLink { row, set, .. }) in path.into_iter().rev().enumerate() {
        walk.value = set.or(walk.value);
        if place < last_said {
            walk.messages.extend(said_at(source.store, thread, &row, &elsewhere).await?);
        }
        if is_wanted(row.key) {
            let state = match said.contains(&row.key) {
                true => StateContent::Messages(walk.messages.clone()),
                false => walk.state(source).await?,
            };
            found.insert(row.key, state);
        }
    }
    Ok(found)
}

/// The path to a checkpoint, newest first, with those states that a wanted checkpoint shows.
async fn links(
    source: HistorySource<'_>,
    thread: &ThreadRow,
    newest: CheckpointKey,
    wanted: &HashSet<CheckpointKey>,
) -> Result<Vec<PathLink>> {
    let mut path = PathReader::new(source.store, source.scope, &thread.id, Some(newest));
    let (mut links, mut is_shown) = (Vec::new(), false);
    while let Some(row) = path.next().await? {
        is_shown |= wanted.contains(&row.key);
        let set = Set::of(&row);
        let has_set = set.is_some();
        let row = CheckpointRow { value: None, ..row };
        links.push(PathLink { row, has_set, set: set.filter(|_| is_shown) });
        is_shown &= !has_set;
    }
    Ok(links)
}

// === impl Walk ===

impl Walk {
    async fn state(&self, source: HistorySource<'_>) -> Result<StateContent> {
        match &self.value {
            Some(set) => set.clone().read(source).await.map(StateContent::Value),
            None => Ok(StateContent::Messages(self.messages.clone())),
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
