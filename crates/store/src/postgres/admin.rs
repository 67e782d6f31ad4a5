use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tokio::sync::broadcast;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::port::Clock;
use trilogue_domain::time::Timestamp;
use trilogue_domain::{ThreadKey, lock};

use super::news::News;
use super::node::{self, Node};
use super::schema::SCHEMA_VERSION;
use super::{PostgresStore, agents, row};
use crate::core::health::StoreState;
use crate::news::{PeerMessage, PeerNews, Peers};
use crate::port::{Admin, NodeAddress, NodeAgent, NodeRow, Stats};

/// The figures of `status`.
const COUNTS: &str = concat!(
    "SELECT (SELECT count(*) FROM threads), (SELECT count(*) FROM runs),",
    " pg_database_size(current_database()), (SELECT count(*) FROM lost_events),",
    " (SELECT (extract(epoch FROM min(noted_at)) * 1000000)::bigint FROM lost_events)"
);
/// The owners of threads. A thread's own row has its owner only as of its last change of epoch.
const OWNERS: &str = "SELECT thread, owner_node FROM heads WHERE thread = ANY($1)";

#[async_trait]
impl Admin for PostgresStore {
    fn durability(&self) -> &'static str {
        self.database.durability.as_str()
    }

    fn health(&self) -> Result<()> {
        self.database.health.check_write(false)?;
        if let Some(problem) = self.database.node.as_ref().and_then(Node::problem) {
            return Err(problem);
        }
        match self.database.outage.reason() {
            Some(why) => Err(self.database.unavailable(&why)),
            None if self.database.disk_space.is_full() => Err(self.database.disk_full()),
            None => Ok(()),
        }
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.database.clock) as _
    }

    async fn stats(&self) -> Result<Stats> {
        let database = &self.database;
        let found =
            database.read_figures(|conn| async move { row::query_opt(&conn, COUNTS, &[]).await });
        let found = found.await?;
        let count =
            |index| found.as_ref().map_or(0, |row| row.get::<_, i64>(index)).cast_unsigned();
        Ok(Stats {
            threads: count(0),
            runs: count(1),
            bytes: count(2),
            cache_bytes: database.tails.bytes() as u64,
            quarantined: database.health.quarantine.len(),
            lost_commits: count(3),
            lost_at: found.as_ref().and_then(|row| row.get(4)).map(Timestamp::from_micros),
            commits: database.commits.load(Ordering::Relaxed),
            frames: database.frames.load(Ordering::Relaxed),
            schema_version: SCHEMA_VERSION,
        })
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>> {
        let database = &self.database;
        database
            .read_figures(|conn| async move { node::list(&conn, database.node.as_ref()).await })
            .await
    }

    async fn publish_agents(&self, agents: Vec<NodeAgent>) -> Result<()> {
        let database = &self.database;
        let (Some(node), agents) = (&database.node, &agents) else { return Ok(()) };
        database
            .write(|conn| async move {
                agents::publish(&conn, &node.published_agents, &node.id, agents).await
            })
            .await
    }

    async fn node_with_agent(&self, agent: &str) -> Result<Option<NodeAddress>> {
        let database = &self.database;
        let me = database.ownership();
        database.read(|conn| async move { agents::with_agent(&conn, me, agent).await }).await
    }

    async fn owner_names(&self, threads: &[ThreadKey]) -> Result<HashMap<ThreadKey, String>> {
        let Some(node) = self.database.node.as_ref().filter(|_| !threads.is_empty()) else {
            return Ok(HashMap::new());
        };
        let keys: Vec<i64> = threads.iter().map(|thread| thread.0).collect();
        let keys = &keys;
        let found = self
            .database
            .read(|conn| async move { row::query(&conn, OWNERS, &[keys]).await })
            .await?;
        let named = found.iter().filter_map(|row| {
            Some((ThreadKey(row.get(0)), node.published_agents.node_name(row.get(1))?))
        });
        Ok(named.collect())
    }

    async fn backup(&self, _to: &Path) -> Result<()> {
        Err(Error::new(Code::InvalidRequest, "a store in PostgreSQL has no file to copy")
            .hint("back it up with PostgreSQL's own tools, for example pg_dump or pg_basebackup"))
    }

    async fn close(&self) -> Result<()> {
        lock(&self.writers).clear();
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        // Appends that were accepted are written before the pools close.
        while tasks.join_next().await.is_some() {}
        lock(&self.upkeep).abort_all();
        // The second close of a store has nothing to leave.
        if let Some(node) = &self.database.node
            && self.database.health.state() < StoreState::Closed
        {
            let left = match self.database.connect().await {
                Ok(conn) => node::leave(&conn, node).await,
                Err(fail) => Err(fail),
            };
            if let Err(fail) = left {
                let error = self.database.settle(fail);
                tracing::warn!(%error, "this node could not leave the cluster: the others take its threads over when its signs of life are missing");
            }
        }
        self.database.health.worsen(StoreState::Closed, "");
        self.database.room.close();
        self.database.pool.close();
        Ok(())
    }
}

impl Peers for PostgresStore {
    fn has_peers(&self) -> bool {
        self.database.news.as_ref().is_some_and(News::is_connected)
    }

    fn publish(&self, note: PeerMessage) {
        if let Some(news) = &self.database.news {
            news.publish_message(note);
        }
    }

    fn subscribe(&self) -> Option<broadcast::Receiver<PeerNews>> {
        self.database.node.as_ref().map(|_| self.database.peer_news.subscribe())
    }
}
