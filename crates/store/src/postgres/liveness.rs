//! Signs of life, and the decision which nodes are dead: a node without a sign for `dead_after`, counted while the database could be reached.
//!
//! Each sign of life adds the time since the previous one, of any node, but at most one heartbeat, as [`counted_gap`](crate::core::ownership::counted_gap) specifies.
//! The sum is the reachable time. It does not grow while no node reaches the database.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;
use trilogue_domain::time::Timestamp;

use super::clock::now;
use super::connection::Connection;
use super::database::Database;
use super::error::{PostgresError, Remedy};
use super::node::Node;
use super::{agents, row};

/// How often a process without a cluster asks whether the database answers, and how long it waits for the answer.
const PROBE_EVERY: Duration = Duration::from_secs(1);
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// How many times in a heartbeat a node tries again to give a sign of life that was not stored.
const TRIES_IN_HEARTBEAT: u32 = 4;

/// The reachable time as of now.
macro_rules! reachable_time {
    () => {
        concat!(
            "(SELECT counted + least(greatest(clock_timestamp() - reached_at, interval '0'), step)",
            " FROM reachable_time)"
        )
    };
}
pub(super) use reachable_time;

/// Whether a row of `nodes` is of a live node. This number binds the seconds after which a node is dead.
macro_rules! is_alive {
    ($dead:literal) => {
        concat!(
            "coalesce(nodes.seen_counted > ",
            $crate::postgres::liveness::reachable_time!(),
            " - make_interval(secs => ",
            $dead,
            "), nodes.seen_at > clock_timestamp() - make_interval(secs => ",
            $dead,
            "))"
        )
    };
}
pub(super) use is_alive;

/// Notes that the database was reached. This number binds the heartbeat, in seconds.
macro_rules! reach {
    ($heartbeat:literal) => {
        concat!(
            "UPDATE reachable_time SET step = make_interval(secs => ",
            $heartbeat,
            "), reached_at = clock_timestamp(), counted = counted + least(",
            "greatest(clock_timestamp() - reached_at, interval '0'), make_interval(secs => ",
            $heartbeat,
            "))"
        )
    };
}

/// Returns the reachable time in seconds.
const REACH: &str = concat!(reach!("$1"), " RETURNING extract(epoch FROM counted)::float8");
/// Gives a sign of life, and returns the database's time.
const SIGN: &str = concat!(
    "WITH reached AS (",
    reach!("$3"),
    " RETURNING counted) UPDATE nodes",
    " SET seen_at = clock_timestamp(), seen_counted = reached.counted, draining = $2",
    " FROM reached WHERE id = $1 RETURNING ",
    now!()
);

/// Gives signs of life until the store is closed.
pub(super) async fn live(database: Arc<Database>) {
    let Some(node) = &database.node else { return probe(&database).await };
    let mut beat = tokio::time::interval(node.options.heartbeat);
    // After a pause, one sign is enough: others that were missed would come all at once.
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        // After an outage, the sign must arrive before the others take this node for dead.
        while let Err(fail) = sign(&database, node).await {
            let is_away = fail.remedy() == Remedy::Reconnect;
            let error = database.settle(fail);
            tracing::debug!(%error, "a sign of life was not stored");
            if !is_away {
                break;
            }
            tokio::time::sleep(node.options.heartbeat / TRIES_IN_HEARTBEAT).await;
        }
    }
}

/// Finds out whether the database answers, where no signs of life do: a statement that an old primary never answers ends when the new one is found.
async fn probe(database: &Database) {
    let mut beat = tokio::time::interval(PROBE_EVERY);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let answered = answer_within(database, PROBE_LIMIT, async |conn| {
            Ok(conn.batch_execute("SELECT 1").await?)
        });
        if let Err(fail) = answered.await {
            let error = database.settle(fail);
            tracing::debug!(%error, "the database gave no answer");
        }
    }
}

/// Gives a sign of life.
pub(super) async fn sign(database: &Database, node: &Node) -> Result<(), PostgresError> {
    let limit = node.options.sign_limit();
    answer_within(database, limit, async |conn| sign_on(conn, database, node).await).await
}

/// Asks the database on a connection of its own: look-ups that take long do not hold it up.
async fn answer_within(
    database: &Database,
    limit: Duration,
    ask: impl AsyncFnOnce(&Connection) -> Result<(), PostgresError>,
) -> Result<(), PostgresError> {
    let give_up = tokio::time::Instant::now() + limit;
    let late = |_| PostgresError::Unreachable("it gave no answer in time".to_owned());
    // One limit for both waits, because the sign itself must arrive in time.
    let conn = timeout_at(give_up, database.sign_pool.get()).await.map_err(late)??;
    match timeout_at(give_up, ask(&conn)).await {
        Ok(signed) => {
            // This answer is often the first after an outage, and operations wait for it.
            if signed.is_ok() {
                database.outage.end();
            }
            signed
        }
        Err(elapsed) => {
            // The next sign of life must not wait for this one.
            drop(Connection::take(conn));
            Err(late(elapsed))
        }
    }
}

async fn sign_on(conn: &Connection, database: &Database, node: &Node) -> Result<(), PostgresError> {
    // Before the query, because the clock takes off half of the round trip.
    let asked = Instant::now();
    let draining = node.is_draining.load(Ordering::Acquire);
    let params: &row::Params<'_> = &[&node.id, &draining, &node.heartbeat()];
    if let Some(row) = row::query_opt(conn, SIGN, params).await? {
        database.clock.set(Timestamp::from_micros(row.get(0)), asked);
        return agents::look(conn, &node.published_agents, (&node.id, node.dead_after())).await;
    }
    // The node was silent for so long that its row was deleted. Other nodes take over its threads when these are requested.
    node.register_again(conn, database.keys.opening).await
}

/// Notes that the database was reached, and returns how long it has been reachable.
pub(super) async fn reach(conn: &Connection, node: &Node) -> Result<Duration, PostgresError> {
    let found = row::query_opt(conn, REACH, &[&node.heartbeat()]).await?;
    let seconds = found.map_or(0.0, |row| row.get(0));
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}
