//! The agents of each node. A node publishes them in its row of the table `nodes`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use trilogue_domain::{ThreadKey, lock};

use super::connection::Connection;
use super::error::PostgresError;
use super::liveness::is_alive;
use super::row;
use crate::core::agent_difference::{NodeAgents, differences};
use crate::port::{AgentDifference, NodeAddress, NodeAgent};

/// `agents` maps the name of each agent to its digest, if nodes compare it, and to the other texts that mean the agent. NULL if a node has not published its agents, as an older version does not.
pub(super) const ADD_COLUMN: &str = "ALTER TABLE nodes ADD COLUMN agents JSONB";

/// The agents that this node and the others have published.
#[derive(Debug, Default)]
pub(super) struct PublishedAgents {
    /// The agents of this node, in the form of the column. `None` until it publishes them.
    own: Mutex<Option<String>>,
    /// Whether the node's row has them.
    is_stored: AtomicBool,
    /// The names of agents that live nodes have and this one does not.
    foreign: Mutex<Vec<String>>,
    /// The live nodes by their ids.
    live: Mutex<BTreeMap<String, NodeProfile>>,
    /// The differences between nodes that were logged last.
    logged: Mutex<Vec<AgentDifference>>,
}

#[derive(Debug)]
struct NodeProfile {
    name: String,
    version: String,
    /// `None` until the node publishes them.
    agents: Option<Vec<NodeAgent>>,
}

/// Other live nodes that take threads. `$1` is this node's id, `$2` the seconds after which a node is dead.
macro_rules! others {
    () => {
        concat!(
            "FROM nodes WHERE id <> $1 AND NOT draining AND ",
            $crate::postgres::liveness::is_alive!("$2")
        )
    };
}

const TELL: &str = "UPDATE nodes SET agents = $2::text::jsonb WHERE id = $1";
const ALIVE: &str = concat!(
    "SELECT id, name, version, agents::text FROM nodes WHERE id = $1 OR ",
    is_alive!("$2"),
    " ORDER BY name"
);
/// A random node of those that have it, so that the requests are spread.
const WITH_AGENT: &str = concat!(
    "SELECT name, address ",
    others!(),
    " AND (agents ? $3 OR EXISTS (SELECT 1 FROM jsonb_each(agents) one",
    " WHERE one.value->'also' ? $3 OR one.value->'also' ? lower($3)))",
    " ORDER BY random() LIMIT 1"
);
/// A node that has all agents of the open runs of a thread.
const WITH_AGENTS_OF: &str = concat!(
    "SELECT name, address ",
    others!(),
    " AND agents ?& (SELECT array_agg(DISTINCT agent) FROM runs",
    " WHERE thread = $3 AND ended_at IS NULL) ORDER BY name LIMIT 1"
);
/// Whether a thread has an open run of an agent that is not among these.
const LACKED: &str = concat!(
    "SELECT 1 FROM runs, (SELECT $2::text::jsonb AS agents) own",
    " WHERE thread = $1 AND ended_at IS NULL AND NOT own.agents ? agent LIMIT 1"
);

// === impl PublishedAgents ===

impl PublishedAgents {
    /// The agents of this node, in the form of the column. `None` until it publishes them.
    pub(super) fn own(&self) -> Option<String> {
        lock(&self.own).clone()
    }

    /// The agents that live nodes have and this one does not, as of the last sign of life.
    pub(super) fn foreign(&self) -> Vec<String> {
        lock(&self.foreign).clone()
    }

    /// The name of the live node with this id, as of the last sign of life. `None` while this node is the only one.
    pub(super) fn node_name(&self, id: &str) -> Option<String> {
        let live = lock(&self.live);
        live.get(id).filter(|_| live.len() > 1).map(|node| node.name.clone())
    }

    /// Whether the node with this id is alive and does not have an agent, as of the last sign of life.
    pub(super) fn lacks(&self, id: &str, agent: &str) -> bool {
        let live = lock(&self.live);
        let told = live.get(id).and_then(|node| node.agents.as_ref());
        told.is_some_and(|agents| !agents.iter().any(|it| it.name == agent))
    }
}

/// Publishes this node's agents to the other nodes.
pub(super) async fn publish(
    conn: &Connection,
    told: &PublishedAgents,
    id: &str,
    agents: &[NodeAgent],
) -> Result<(), PostgresError> {
    *lock(&told.own) = Some(column(agents));
    store(conn, told, id).await
}

async fn store(conn: &Connection, told: &PublishedAgents, id: &str) -> Result<(), PostgresError> {
    let Some(own) = told.own() else { return Ok(()) };
    // Before the write: if it fails, the next sign of life stores the list.
    told.is_stored.store(false, Ordering::Release);
    row::execute(conn, TELL, &[&id, &own]).await?;
    // Another list may have been published meanwhile.
    let is_newest = lock(&told.own).as_ref() == Some(&own);
    told.is_stored.store(is_newest, Ordering::Release);
    Ok(())
}

/// Reads what the nodes have published. Logs their differences if these have changed.
pub(super) async fn look(
    conn: &Connection,
    told: &PublishedAgents,
    (id, dead_after): (&str, f64),
) -> Result<(), PostgresError> {
    if !told.is_stored.load(Ordering::Acquire) {
        store(conn, told, id).await?;
    }
    let found = row::query(conn, ALIVE, &[&id, &dead_after]).await?;
    let live = found.iter().map(|row| {
        let (name, version) = (row.get(1), row.get(2));
        (row.get(0), NodeProfile { name, version, agents: agents(row.get(3)) })
    });
    let live: BTreeMap<String, NodeProfile> = live.collect();
    // A node that has not published its agents counts as lacking none.
    let own = live.get(id).and_then(|own| own.agents.as_ref());
    let own: Option<BTreeSet<_>> = own.map(|own| own.iter().map(|agent| &agent.name).collect());
    let lists = live.values().filter_map(|it| Some((it, it.agents.as_deref()?)));
    if let Some(own) = own {
        let all: BTreeSet<_> =
            lists.clone().flat_map(|(_, agents)| agents).map(|agent| &agent.name).collect();
        *lock(&told.foreign) = all.difference(&own).map(|name| (*name).clone()).collect();
    }
    let lists = lists.map(|(NodeProfile { name, version, .. }, agents)| NodeAgents {
        node: name,
        version,
        agents,
    });
    let mut lists: Vec<_> = lists.collect();
    lists.sort_unstable_by_key(|list| list.node);
    log(told, differences(&lists));
    *lock(&told.live) = live;
    Ok(())
}

fn log(told: &PublishedAgents, now: Vec<AgentDifference>) {
    let mut logged = lock(&told.logged);
    for difference in now.iter().filter(|it| !logged.contains(it)) {
        let variants: Vec<_> = difference.variants.iter().map(|names| names.join(", ")).collect();
        tracing::warn!(
            agent = difference.agent,
            on = variants.join(" | "),
            missing_on = difference.missing_on.join(", "),
            "the servers that share the store do not agree about an agent"
        );
    }
    for before in logged.iter().filter(|it| !now.iter().any(|new| new.agent == it.agent)) {
        tracing::info!(agent = before.agent, "the servers agree about an agent again");
    }
    *logged = now;
}

pub(super) async fn with_agent(
    conn: &Connection,
    (id, dead_after): (&str, f64),
    agent: &str,
) -> Result<Option<NodeAddress>, PostgresError> {
    let params: &row::Params<'_> = &[&id, &dead_after, &agent];
    Ok(row::query_opt(conn, WITH_AGENT, params).await?.map(|row| row::node_address(&row)))
}

/// Fails with `thread_elsewhere` if another live node has all agents of the thread's open runs and this one lacks some.
pub(super) async fn check_take_over(
    conn: &Connection,
    told: &PublishedAgents,
    (id, dead_after): (&str, f64),
    thread: ThreadKey,
) -> Result<(), PostgresError> {
    let Some(own) = told.own() else { return Ok(()) };
    if row::query_opt(conn, LACKED, &[&thread.0, &own]).await?.is_none() {
        return Ok(());
    }
    let params: &row::Params<'_> = &[&id, &dead_after, &thread.0];
    let Some(other) = row::query_opt(conn, WITH_AGENTS_OF, params).await? else { return Ok(()) };
    let has = |name: &str| format!("the node '{name}' has the agents of the thread");
    Err(row::node_address(&other).elsewhere(has).into())
}

fn column(agents: &[NodeAgent]) -> String {
    let entry = |agent: &NodeAgent| {
        (agent.name.clone(), json!({ "digest": agent.digest, "also": agent.also }))
    };
    Value::Object(agents.iter().map(entry).collect()).to_string()
}

/// Reads the column. A form that this version does not know counts as no agents.
pub(super) fn agents(column: Option<&str>) -> Option<Vec<NodeAgent>> {
    let by_name: BTreeMap<String, Value> = serde_json::from_str(column?).unwrap_or_default();
    let agent = |(name, entry): (String, Value)| {
        let also = entry["also"].as_array().into_iter().flatten();
        NodeAgent {
            name,
            digest: entry["digest"].as_str().map(str::to_owned),
            also: also.filter_map(|text| text.as_str().map(str::to_owned)).collect(),
        }
    };
    Some(by_name.into_iter().map(agent).collect())
}
