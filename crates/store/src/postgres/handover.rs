//! Threads that change their node on purpose: a draining node gives up its threads, and a single thread moves to a requested node.
//!
//! The epoch stays the same. It grows when the next owner takes the thread; after that, the previous owner can write nothing.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Code, Error, Result};

use super::append::{HEAD, head};
use super::connection::Connection;
use super::database::Database;
use super::error::PostgresError;
use super::liveness::{self, is_alive};
use super::{PostgresStore, row};
use crate::port::Nodes;

/// A live node that takes threads. The choice depends on the thread, so that the threads are spread.
const STAND_IN: &str = concat!(
    "SELECT name, address FROM nodes WHERE id <> $1 AND NOT draining AND ",
    is_alive!("$2"),
    " ORDER BY md5(id || $3::bigint) LIMIT 1"
);
const GIVE_UP: &str =
    "UPDATE heads SET owner_node = '' WHERE thread = $1 AND owner_node = $2 AND epoch = $3";
const GIVE: &str = concat!(
    "UPDATE heads SET owner_node = nodes.id FROM nodes",
    " WHERE thread = $1 AND owner_node = $2 AND epoch = $3 AND nodes.name = $4 AND NOT draining AND ",
    is_alive!("$5")
);
const GIVE_UP_ALL: &str =
    "UPDATE heads SET owner_node = '' WHERE owner_node = $1 AND thread <> ALL($2)";

#[async_trait]
impl Nodes for PostgresStore {
    fn is_draining(&self) -> bool {
        self.database.is_draining()
    }

    async fn set_draining(&self, draining: bool) -> Result<()> {
        let database = &self.database;
        let Some(node) = &database.node else {
            return Err(Error::new(Code::InvalidRequest, "this server is not a node of the store")
                .hint("name it with [cluster] name"));
        };
        // Before the sign of life, which publishes it.
        node.is_draining.store(draining, Ordering::Release);
        // This way the others learn it at once, not with the next sign of life.
        liveness::sign(database, node).await.map_err(|fail| database.settle(fail))
    }

    async fn check_takes(&self, thread: ThreadKey) -> Result<()> {
        if !self.database.is_draining() {
            return Ok(());
        }
        let database = &self.database;
        let found = database.read(|conn| async move { stand_in(&conn, database, thread).await });
        found.await?.map_or(Ok(()), Err)
    }

    async fn hand_over(&self, thread: ThreadKey, epoch: u64, to: Option<&str>) -> Result<()> {
        let database = &self.database;
        let give = |conn| async move { give(&conn, database, thread, epoch, to).await };
        // Retried like a look-up, because a second call does nothing.
        database.read(give).await
    }

    async fn hand_over_all_but(&self, but: &[ThreadKey]) -> Result<u64> {
        let database = &self.database;
        let (me, _) = database.ownership();
        let but: Vec<i64> = but.iter().map(|thread| thread.0).collect();
        let but = &but;
        // Retried like a look-up: a second call only gives up what is still owned.
        database
            .read(|conn| async move { row::execute(&conn, GIVE_UP_ALL, &[&me, but]).await })
            .await
    }
}

/// Gives a thread up. A second call does nothing.
async fn give(
    conn: &Connection,
    database: &Database,
    thread: ThreadKey,
    epoch: u64,
    to: Option<&str>,
) -> Result<(), PostgresError> {
    let ((me, dead), epoch) = (database.ownership(), epoch.cast_signed());
    // The epoch in the condition protects a thread that was given up and taken again since the call.
    let given = match to {
        None => row::execute(conn, GIVE_UP, &[&thread.0, &me, &epoch]).await?,
        Some(name) => row::execute(conn, GIVE, &[&thread.0, &me, &epoch, &name, &dead]).await?,
    };
    if given > 0 {
        return Ok(());
    }
    let owner = head(conn, thread, HEAD).await?.owner;
    match to {
        Some(name) if owner == me => {
            let name = name.escape_debug();
            Err(Error::new(Code::NotFound, format!("no node '{name}' takes threads"))
                .hint("`trilogue nodes` lists them")
                .into())
        }
        // An earlier try has given it up.
        _ if owner != me => Ok(()),
        _ => Err(Error::new(Code::OwnershipLost, "another server has taken the thread meanwhile")
            .hint("send the request again")
            .into()),
    }
}

/// The error that names the node that takes a thread instead of this one. `None` if no node does.
pub(super) async fn stand_in(
    conn: &Connection,
    database: &Database,
    thread: ThreadKey,
) -> Result<Option<Error>, PostgresError> {
    let (me, dead) = database.ownership();
    let found = row::query_opt(conn, STAND_IN, &[&me, &dead, &thread.0]).await?;
    let takes =
        |name: &str| format!("this node hands its threads over; the node '{name}' takes it");
    Ok(found.map(|row| row::node_address(&row).elsewhere(takes)))
}

// === impl Database ===

impl Database {
    pub(super) fn is_draining(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.is_draining.load(Ordering::Acquire))
    }

    /// Whether other nodes do the due work, because this one drains.
    pub(super) async fn leaves_work(&self, conn: &Connection) -> Result<bool, PostgresError> {
        if !self.is_draining() {
            return Ok(false);
        }
        Ok(stand_in(conn, self, ThreadKey(0)).await?.is_some())
    }
}
