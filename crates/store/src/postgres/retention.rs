//! The ended runs that a policy removes, found by one statement.

use trilogue_domain::Timestamp;

use super::connection::Connection;
use super::database::Database;
use super::error::PostgresError;
use super::node::not_elsewhere;
use super::row;
use crate::rows::RetentionPolicy;

/// Runs older than an age. A run with an undelivered callback stays.
const TOO_OLD: &str = concat!(
    "SELECT key FROM runs WHERE ended_at IS NOT NULL",
    " AND (ended_at < $1 OR (stateless AND ended_at < $2))",
    " AND NOT EXISTS (SELECT 1 FROM queue WHERE queue.run = runs.key AND NOT queue.dead)",
    " AND ",
    not_elsewhere!("runs.thread", "$4", "$5"),
    " ORDER BY ended_at, position LIMIT $3"
);
/// Runs that exceed an age or a count, as [`crate::core::retention`] defines it. A run with an undelivered callback counts but stays.
const TOO_MANY: &str = concat!(
    "SELECT key FROM (SELECT key, thread, position, ended_at, stateless,",
    " row_number() OVER (PARTITION BY thread ORDER BY position DESC) AS place_in_thread,",
    " row_number() OVER (PARTITION BY thread ORDER BY ended_at DESC, position DESC) AS end_in_thread,",
    " row_number() OVER (PARTITION BY tenant ORDER BY position DESC) AS place_in_tenant,",
    " row_number() OVER (PARTITION BY tenant ORDER BY ended_at DESC, position DESC) AS end_in_tenant",
    " FROM runs WHERE ended_at IS NOT NULL) AS counted",
    " WHERE (ended_at < $1 OR (stateless AND ended_at < $2)",
    " OR (place_in_thread > $6 AND end_in_thread > $6)",
    " OR (place_in_tenant > $7 AND end_in_tenant > $7))",
    " AND NOT EXISTS (SELECT 1 FROM queue WHERE queue.run = counted.key AND NOT queue.dead)",
    " AND ",
    not_elsewhere!("counted.thread", "$4", "$5"),
    " ORDER BY ended_at, position LIMIT $3"
);

/// Keys of ended runs that the policy removes, oldest first. Leaves out threads that another live node owns.
pub(super) async fn expired(
    conn: &Connection,
    database: &Database,
    policy: &RetentionPolicy,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<i64>, PostgresError> {
    let before = |age: Option<_>| age.map_or(i64::MIN, |age| now.before(age).as_micros());
    let (oldest, oldest_stateless) = (before(policy.max_age), before(policy.max_stateless_age));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (me, dead) = database.ownership();
    let rows = if policy.counts() {
        let most = |count: Option<u64>| {
            count.and_then(|count| i64::try_from(count).ok()).unwrap_or(i64::MAX)
        };
        let (in_thread, in_tenant) =
            (most(policy.max_runs_per_thread), most(policy.max_runs_per_tenant));
        let params: &row::Params<'_> =
            &[&oldest, &oldest_stateless, &limit, &me, &dead, &in_thread, &in_tenant];
        row::query(conn, TOO_MANY, params).await?
    } else {
        row::query(conn, TOO_OLD, &[&oldest, &oldest_stateless, &limit, &me, &dead]).await?
    };
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
