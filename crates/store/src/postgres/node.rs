//! The processes that share a store: which of them owns which threads, and what they publish.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Code, Error};

use super::acknowledged::LostEvents;
use super::agents::{self, PublishedAgents};
use super::connection::Connection;
use super::database::Database;
use super::error::PostgresError;
use super::liveness::{self, is_alive, reachable_time};
use super::row;
use crate::news::PeerNews;
use crate::options::NodeOptions;
use crate::port::{NodeAddress, NodeRow};

/// This process among the nodes.
#[derive(Debug)]
pub(super) struct Node {
    /// Created anew at each start: threads of an earlier life belong to another node.
    pub(super) id: String,
    pub(super) options: NodeOptions,
    /// Whether another process has taken its name, because this one was silent for too long.
    is_replaced: AtomicBool,
    pub(super) published_agents: PublishedAgents,
    /// Whether it hands its threads over and takes no others.
    pub(super) is_draining: AtomicBool,
}

/// How often listeners are notified that messages of other nodes cannot be received.
const DEAF_EVERY: Duration = Duration::from_secs(5);

/// The condition that no other live node owns a thread. [`Database::ownership`] gives the values at these numbers: this node's id, and the seconds after which a node is dead.
macro_rules! not_elsewhere {
    ($thread:literal, $me:literal, $dead:literal) => {
        concat!(
            "NOT EXISTS (SELECT 1 FROM heads JOIN nodes ON nodes.id = heads.owner_node",
            " WHERE heads.thread = ",
            $thread,
            " AND nodes.id <> ",
            $me,
            " AND ",
            $crate::postgres::liveness::is_alive!($dead),
            ")"
        )
    };
}
pub(super) use not_elsewhere;

const REGISTER: &str = concat!(
    "INSERT INTO nodes (id, name, address, version, opening, agents, seen_counted)",
    " VALUES ($1, $2, $3, $4, $5, $6::text::jsonb, ",
    reachable_time!(),
    ") ON CONFLICT DO NOTHING"
);
/// Removes the row of a dead node of this name.
const BURY: &str = concat!("DELETE FROM nodes WHERE name = $1 AND NOT ", is_alive!("$2"));
/// How long the rows of dead nodes are kept: a node that comes back sooner finds its row.
const FORGET: &str = concat!(
    "DELETE FROM nodes WHERE seen_at <= clock_timestamp() - interval '1 day' AND NOT ",
    is_alive!("$1")
);
/// Name and address of a live node.
const LIVE: &str =
    concat!("SELECT nodes.name, nodes.address FROM nodes WHERE id = $1 AND ", is_alive!("$2"));
const NODES: &str = concat!(
    "SELECT id, name, address, version,",
    " extract(epoch FROM clock_timestamp() - seen_at)::float8,",
    is_alive!("$1"),
    ", (SELECT count(DISTINCT runs.thread) FROM runs JOIN heads ON heads.thread = runs.thread",
    " WHERE runs.ended_at IS NULL AND heads.owner_node = nodes.id)",
    ", draining, agents::text FROM nodes ORDER BY name"
);

// === impl Node ===

impl Node {
    pub(super) fn new(options: NodeOptions) -> Self {
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            options,
            is_replaced: AtomicBool::new(false),
            published_agents: PublishedAgents::default(),
            is_draining: AtomicBool::new(false),
        }
    }

    pub(super) fn dead_after(&self) -> f64 {
        self.options.dead_after.as_secs_f64()
    }

    pub(super) fn heartbeat(&self) -> f64 {
        self.options.heartbeat.as_secs_f64()
    }

    /// Lists the process among the nodes. Waits until an earlier node of its name counts as dead: a killed process is often restarted sooner than that.
    /// Errors: `already_exists` if a live node has the name.
    pub(super) async fn register(
        &self,
        conn: &Connection,
        opening: i64,
    ) -> Result<(), PostgresError> {
        let options = &self.options;
        row::execute(conn, FORGET, &[&self.dead_after()]).await?;
        let began = liveness::reach(conn, self).await?;
        loop {
            // In each round, because the earlier node may count as dead only now.
            row::execute(conn, BURY, &[&options.name, &self.dead_after()]).await?;
            // Names are unique: of two processes that register at once, one inserts its row.
            if self.insert(conn, opening).await? {
                return Ok(());
            }
            // Without other nodes, only this process measures the reachable time.
            let waited = liveness::reach(conn, self).await?.saturating_sub(began);
            if waited >= options.dead_after + options.heartbeat * 2 {
                let message = format!(
                    "another server with the name '{}' uses this store",
                    options.name.escape_debug()
                );
                return Err(Error::new(Code::AlreadyExists, message)
                    .hint("stop it, or give this one a name of its own with [cluster] name")
                    .into());
            }
            tokio::time::sleep(options.heartbeat / 2).await;
        }
    }

    /// Lists the process again after its row was deleted, unless another process has its name now.
    pub(super) async fn register_again(
        &self,
        conn: &Connection,
        opening: i64,
    ) -> Result<(), PostgresError> {
        let is_back = self.insert(conn, opening).await?;
        // Logged once, although each sign of life comes here.
        if !is_back && !self.is_replaced.swap(true, Ordering::AcqRel) {
            tracing::error!(name = self.options.name, "another server has this node's name");
        }
        if is_back {
            self.is_replaced.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Returns whether the row was inserted: no other row has the name.
    async fn insert(&self, conn: &Connection, opening: i64) -> Result<bool, PostgresError> {
        let NodeOptions { name, address, .. } = &self.options;
        let version = env!("CARGO_PKG_VERSION");
        let params: &row::Params<'_> =
            &[&self.id, name, address, &version, &opening, &self.published_agents.own()];
        Ok(row::execute(conn, REGISTER, params).await? > 0)
    }

    /// The node with this id, if it is alive.
    pub(super) async fn live(
        &self,
        conn: &Connection,
        id: &str,
    ) -> Result<Option<NodeAddress>, PostgresError> {
        let found = row::query_opt(conn, LIVE, &[&id, &self.dead_after()]).await?;
        Ok(found.map(|found| row::node_address(&found)))
    }

    /// Why it is no longer a node. `None` while it is one.
    pub(super) fn problem(&self) -> Option<Error> {
        self.is_replaced.load(Ordering::Acquire).then(|| {
            let message = format!(
                "another server has taken the name '{}' while this one was silent",
                self.options.name.escape_debug()
            );
            Error::new(Code::StoreUnavailable, message)
                .hint("stop one of the two, or give it a name of its own with [cluster] name")
        })
    }
}

/// Checks the ends of the logs that have readers here, because messages of other nodes may have been lost.
pub(super) async fn watch(database: std::sync::Arc<Database>) {
    let Some(node) = &database.node else { return };
    let mut look = tokio::time::interval(node.options.poll);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut deaf_told = Instant::now();
    loop {
        look.tick().await;
        let is_deaf = database.news.as_ref().is_none_or(|news| !news.is_connected());
        if is_deaf && deaf_told.elapsed() >= DEAF_EVERY {
            deaf_told = Instant::now();
            // Fails if nothing subscribes, and then nothing has missed a message.
            drop(database.peer_news.send(PeerNews::Missed));
        }
        let threads = database.tails.threads_with_readers();
        if threads.is_empty() {
            continue;
        }
        // A failure must not end this task: readers rely on it when messages are lost.
        if let Err(fail) = look_up(&database, &threads).await {
            // `settle` has noted the outage, and the next tick checks again.
            drop(database.settle(fail));
        }
    }
}

/// Compares logs with the store. A log that had an end and has none now was removed.
async fn look_up(database: &Database, threads: &[(ThreadKey, u64)]) -> Result<(), PostgresError> {
    let conn = database.connect().await?;
    let known: HashMap<_, _> = threads.iter().copied().collect();
    let keys: Vec<i64> = threads.iter().map(|(thread, _)| thread.0).collect();
    let sql = "SELECT thread, last, stamp FROM heads WHERE thread = ANY($1)";
    let found = row::query(&conn, sql, &[&keys]).await?;
    let mut gone: HashSet<_> =
        threads.iter().filter(|(_, last)| *last > 0).map(|(thread, _)| *thread).collect();
    for row in &found {
        let thread = ThreadKey(row.get(0));
        gone.remove(&thread);
        let found = row.get::<_, i64>(1).cast_unsigned();
        if let Some(known) = known.get(&thread).copied().filter(|known| *known > found) {
            let lost = LostEvents { thread, last: known, found };
            // The returned error is for requests. The thread is closed already.
            drop(database.close_thread(&conn, lost).await?);
        }
        database.tails.reconcile_end(thread, found, row.get(2));
    }
    gone.into_iter().for_each(|thread| database.forget(thread));
    Ok(())
}

/// The nodes by name.
pub(super) async fn list(
    conn: &Connection,
    node: Option<&Node>,
) -> Result<Vec<NodeRow>, PostgresError> {
    let dead_after = node.map_or(f64::MAX, Node::dead_after);
    let found = row::query(conn, NODES, &[&dead_after.min(1e9)]).await?;
    Ok(found
        .iter()
        .map(|row| NodeRow {
            id: row.get(0),
            name: row.get(1),
            address: row.get(2),
            version: row.get(3),
            silent_for: Duration::try_from_secs_f64(row.get(4)).unwrap_or_default(),
            is_alive: row.get(5),
            is_this: node.is_some_and(|node| node.id == row.get::<_, &str>(0)),
            open_threads: row.get::<_, i64>(6).cast_unsigned(),
            is_draining: row.get(7),
            agents: agents::agents(row.get(8)),
        })
        .collect())
}

/// Takes the process off the list, so that its threads can be taken over at once.
pub(super) async fn leave(conn: &Connection, node: &Node) -> Result<(), PostgresError> {
    row::execute(conn, "DELETE FROM nodes WHERE id = $1", &[&node.id]).await?;
    Ok(())
}

// === impl Database ===

impl Database {
    /// The values of [`not_elsewhere`]: this node's id, and the seconds after which a node is dead.
    pub(super) fn ownership(&self) -> (&str, f64) {
        self.node.as_ref().map_or(("", 1e9), |node| (node.id.as_str(), node.dead_after()))
    }

    /// The agents that live nodes have and this one does not.
    pub(super) fn foreign_agents(&self) -> Vec<String> {
        self.node.as_ref().map_or_else(Vec::new, |node| node.published_agents.foreign())
    }
}
