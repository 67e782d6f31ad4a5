//! A thread's state at its checkpoints: the last set value on the path, or the messages on it.
//!
//! For an agent of messages that declares no state, the messages are the state, even at a checkpoint without a value that follows one with a value.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use trilogue_domain::agent::InputKind;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, AgentName, CheckpointKey, Json, Message, Scope, ThreadId};
use trilogue_store::rows::{CheckpointRow, RunRow, ThreadRow};
use trilogue_store::{PathReader, Store};

use super::reader::weight;
use super::{HistorySource, MessageReader, client_entries, inline, reference, said_at};
use crate::agent_registry::AgentRegistry;
use crate::request::StateContent;

/// The state at a checkpoint, found but not yet read.
#[derive(Debug)]
pub(crate) enum FoundState {
    Value(Json),
    Messages(MessageReader),
}

/// The part of a path that was followed, from its beginning.
#[derive(Debug, Default)]
struct Walk {
    value: Option<Set>,
    /// The messages so far, up to the last wanted state that is derived from them.
    messages: Vec<Message>,
    /// The size of these messages.
    bytes: usize,
    found: HashMap<CheckpointKey, WalkState>,
}

#[derive(Debug)]
enum WalkState {
    Value(Json),
    /// The first `count` messages. `bytes` exceeds the limit of the walk if it did not read all of them.
    Messages {
        count: usize,
        bytes: usize,
    },
}

/// A checkpoint on a path, without its value.
#[derive(Debug)]
struct PathLink {
    row: CheckpointRow,
    /// Whether it sets a state itself.
    has_set: bool,
    /// The state that it sets, if a wanted checkpoint shows it.
    set: Option<Set>,
}

#[derive(Clone, Debug)]
enum Set {
    Here(Json),
    /// At this address; fetched on demand.
    There(Arc<str>),
}

/// The kind of state that a thread keeps from one run to the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KeptState {
    /// A state that this agent or a client has set.
    Set { by: Option<AgentName> },
    /// The messages.
    Said,
}

/// Returns the kind of state at a checkpoint; `None` if its runs have left neither a state nor the messages of an agent of messages.
pub(crate) async fn state_kind_at(
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
        // The kind of an unregistered agent is unknown; its run has set no state.
        let says =
            |run: RunRow| agents.get(&run.agent).is_none_or(|agent| is_of_messages(agent.card()));
        if run.is_some_and(says) {
            return Ok(Some(KeptState::Said));
        }
    }
    Ok(None)
}

/// Returns the state at a checkpoint, still to be read. Without a checkpoint the state is empty.
pub(crate) async fn at(
    source: HistorySource<'_>,
    agents: &AgentRegistry,
    thread: &ThreadRow,
    at: Option<CheckpointKey>,
) -> Result<FoundState> {
    if at.is_none() {
        return Ok(FoundState::Messages(MessageReader::default()));
    }
    let mut path = PathReader::new(source.store, source.scope, &thread.id, at);
    let mut is_first = true;
    while let Some(row) = path.next().await? {
        if is_first && is_said(source, agents, &row, Set::of(&row).is_some()).await? {
            break;
        }
        is_first = false;
        if let Some(set) = Set::of(&row) {
            return set.read(source).await.map(FoundState::Value);
        }
    }
    MessageReader::open(source, &thread.id, at, None).await.map(FoundState::Messages)
}

/// Whether the messages are this agent's state.
pub(crate) fn is_of_messages(card: &AgentCard) -> bool {
    card.input == InputKind::Chat && card.state_schema.is_none()
}

/// Whether the state at a checkpoint is its messages, even if a state was set before it.
async fn is_said(
    source: HistorySource<'_>,
    agents: &AgentRegistry,
    row: &CheckpointRow,
    has_set: bool,
) -> Result<bool> {
    let (false, Some(run)) = (has_set, row.run) else { return Ok(false) };
    let Some(run) = source.store.run_by_key(run).await? else { return Ok(true) };
    // The kind of an unregistered agent is unknown; its run has set no state.
    Ok(agents.get(&run.agent).is_none_or(|agent| is_of_messages(agent.card())))
}

/// Returns the states at the first of these checkpoints, in order, as many as have at most `max_bytes` together. Reads the path to the newest once.
pub(crate) async fn of(
    source: HistorySource<'_>,
    agents: &AgentRegistry,
    thread: &ThreadRow,
    checkpoints: &[CheckpointRow],
    max_bytes: usize,
) -> Result<Vec<StateContent>> {
    let Some(newest) = checkpoints.iter().map(|row| row.key).max() else {
        return Ok(Vec::new());
    };
    let mut walk = Walk::default();
    walk.follow(source, agents, thread, newest, checkpoints, max_bytes).await?;
    let (mut states, mut left) = (Vec::new(), max_bytes);
    for row in checkpoints {
        let state = match walk.found.remove(&row.key) {
            Some(WalkState::Value(value)) => Some(StateContent::Value(value)),
            Some(WalkState::Messages { count, bytes }) => {
                let said = walk.messages.get(..count).filter(|_| bytes <= left);
                said.map(|said| StateContent::Messages(said.to_vec()))
            }
            // The checkpoint is on another branch, or listed twice.
            None => at(source, agents, thread, Some(row.key)).await?.within(source, left).await?,
        };
        let Some(state) = state else { break };
        let Some(rest) = left.checked_sub(state.weight()) else { break };
        left = rest;
        states.push(state);
    }
    Ok(states)
}

/// Returns the path to a checkpoint, newest first, with those states that a wanted checkpoint shows.
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

// === impl FoundState ===

impl FoundState {
    /// Reads the whole state.
    pub(crate) async fn read(self, source: HistorySource<'_>) -> Result<StateContent> {
        match self {
            Self::Value(value) => Ok(StateContent::Value(value)),
            Self::Messages(messages) => messages.rest(source).await.map(StateContent::Messages),
        }
    }

    /// Reads the whole state; returns `None` if it has more than `max_bytes`.
    pub(crate) async fn within(
        self,
        source: HistorySource<'_>,
        max_bytes: usize,
    ) -> Result<Option<StateContent>> {
        match self {
            Self::Value(value) => {
                let fits = value.as_bytes().len() <= max_bytes;
                Ok(fits.then_some(StateContent::Value(value)))
            }
            Self::Messages(messages) => {
                let said = messages.within(source, max_bytes).await?;
                Ok(said.map(|(messages, _)| StateContent::Messages(messages)))
            }
        }
    }
}

// === impl Walk ===

impl Walk {
    /// Finds the states at those of the checkpoints that are on the path to `newest`, and reads messages up to `max_bytes`.
    async fn follow(
        &mut self,
        source: HistorySource<'_>,
        agents: &AgentRegistry,
        thread: &ThreadRow,
        newest: CheckpointKey,
        wanted: &[CheckpointRow],
        max_bytes: usize,
    ) -> Result<()> {
        let wanted: HashSet<_> = wanted.iter().map(|row| row.key).collect();
        let is_wanted = |key: CheckpointKey| wanted.contains(&key);
        let path = links(source, thread, newest, &wanted).await?;
        // Messages are read only if a wanted state is derived from them.
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
        let brought = reference::read(source, entries).await?;
        for (place, PathLink { row, set, .. }) in path.into_iter().rev().enumerate() {
            self.value = set.or_else(|| self.value.take());
            if place < last_said && self.bytes <= max_bytes {
                let given: Vec<_> = client_entries(&row, &thread.id).collect();
                let mut added =
                    said_at(source.store, row.thread, row.run, &given, &brought).await?;
                inline(source.store, row.thread, &mut added).await?;
                self.bytes += added.iter().map(weight).sum::<usize>();
                self.messages.extend(added);
            }
            if is_wanted(row.key) {
                let state = match &self.value {
                    Some(set) if !said.contains(&row.key) => {
                        WalkState::Value(set.clone().read(source).await?)
                    }
                    _ => WalkState::Messages { count: self.messages.len(), bytes: self.bytes },
                };
                self.found.insert(row.key, state);
            }
        }
        Ok(())
    }
}

// === impl Set ===

impl Set {
    /// Returns the state that a checkpoint itself sets.
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
