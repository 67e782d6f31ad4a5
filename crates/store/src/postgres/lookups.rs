use trilogue_domain::{CheckpointKey, Scope, ThreadId};

use super::connection::Connection;
use super::database::Database;
use super::error::PostgresError;
use super::row;
use crate::rows::{CheckpointRow, ThreadRow};
use crate::sql::lookups::by_id;

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

/// The path of a thread that the scope sees, newest first.
pub(super) async fn path(
    conn: &Connection,
    database: &Database,
    scope: &Scope,
    id: &ThreadId,
    from: Option<CheckpointKey>,
    limit: usize,
) -> Result<Vec<CheckpointRow>, PostgresError> {
    let Some(thread) = by_id::<ThreadRow, _>(conn, &database.health, scope, id.as_str()).await?
    else {
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
