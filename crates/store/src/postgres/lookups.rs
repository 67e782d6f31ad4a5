use trilogue_domain::{CheckpointKey, MessageId, Scope, ThreadId, ThreadKey};

use super::connection::Connection;
use super::database::Database;
use super::error::PostgresError;
use super::row::{self, one};
use crate::core::health::OwnedRow;
use crate::core::table::TableRow;
use crate::rows::{CheckpointRow, MessageRow, RunRow, ThreadRow};

/// The keys of a path from a checkpoint back, with their positions on it.
const PATH: &str = concat!(
    "WITH RECURSIVE path(key, parent, step) AS (",
    "SELECT key, parent, 1::bigint FROM checkpoints WHERE key = $1 AND thread = $2",
    " UNION ALL SELECT c.key, c.parent, path.step + 1 FROM path",
    " JOIN checkpoints c ON c.key = path.parent AND c.thread = $2 WHERE path.step < $3)",
    // A damaged link can lead in a circle.
    " CYCLE key SET is_circle USING way",
    " SELECT key, step FROM path WHERE NOT is_circle"
);

pub(super) async fn by_id<R: TableRow + OwnedRow>(
    conn: &Connection,
    database: &Database,
    scope: &Scope,
    id: &str,
) -> Result<Option<R>, PostgresError> {
    let rest = "WHERE tenant = $1 AND id = $2";
    let found = one(conn, rest, &[&scope.tenant.as_str(), &id]).await?;
    Ok(database.health.visible(scope, found)?)
}

pub(super) async fn thread_of(
    conn: &Connection,
    database: &Database,
    scope: &Scope,
    key: ThreadKey,
) -> Result<Option<ThreadRow>, PostgresError> {
    let found = one::<ThreadRow>(conn, "WHERE key = $1", &[&key.0]).await?;
    Ok(database.health.visible(scope, found)?)
}

/// The message of a thread with this id, if the scope sees its run.
pub(super) async fn message(
    conn: &Connection,
    database: &Database,
    scope: &Scope,
    thread: &ThreadId,
    id: &MessageId,
) -> Result<Option<MessageRow>, PostgresError> {
    // The run decides whether the scope sees the message: the thread may belong to another principal.
    let tenant = Scope::of_tenant(&scope.tenant);
    let thread = by_id::<ThreadRow>(conn, database, &tenant, thread.as_str()).await?;
    let Some(thread) = thread else { return Ok(None) };
    let rest = "WHERE thread = $1 AND id = $2";
    let found = one::<MessageRow>(conn, rest, &[&thread.key.0, &id.as_str()]).await?;
    let Some(row) = found else { return Ok(None) };
    let run = one::<RunRow>(conn, "WHERE key = $1", &[&row.run.0]).await?;
    if !run.is_some_and(|run| scope.can_see(&run.tenant, &run.principal)) {
        return Ok(None);
    }
    Ok(Some(row))
}

/// The path of a thread that the scope sees, newest first.
pub(super) async fn path(
    conn: &Connection,
    database: &Database,
    scope: &Scope,
    id: &ThreadId,
    from: Option<CheckpointKey>,
    limit: usize,
) -> Result<Vec<CheckpointRow>, PostgresError> {
    let Some(thread) = by_id::<ThreadRow>(conn, database, scope, id.as_str()).await? else {
        return Ok(Vec::new());
    };
    let first = from.or(thread.head).filter(|_| limit > 0);
    let Some(first) = first else { return Ok(Vec::new()) };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let sql = format!(
        "SELECT {} FROM ({PATH}) AS path JOIN checkpoints ON checkpoints.key = path.key ORDER BY path.step",
        row::columns::<CheckpointRow>()
    );
    let found = row::query(conn, &sql, &[&first.0, &thread.key.0, &limit]).await?;
    found.iter().map(row::take).collect()
}
