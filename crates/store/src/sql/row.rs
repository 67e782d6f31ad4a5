use trilogue_domain::ThreadKey;

use super::connection::SqlError;
use crate::core::damaged;
use crate::core::table::{Column, TableRow};

/// A value that every engine reads from a column.
pub(crate) trait SqlValue:
    rusqlite::types::FromSql + tokio_postgres::types::FromSqlOwned
{
}

impl<T: rusqlite::types::FromSql + tokio_postgres::types::FromSqlOwned> SqlValue for T {}

/// A row of a statement's result.
pub(crate) trait SqlRow {
    type Error: SqlError;

    fn value<T: SqlValue>(&self, index: usize) -> Result<T, Self::Error>;

    /// Text that a peer may have chosen.
    fn free_text(&self, index: usize) -> Result<String, Self::Error>;

    /// The bytes of a column. `None` if it has none.
    fn bytes(&self, index: usize) -> Option<&[u8]>;

    /// Whether a column has exactly this value.
    fn is(&self, index: usize, expected: &Column<'_>) -> bool;
}

/// Reads a row from [`super::SqlConnection::columns`] and checks it.
pub(crate) fn take<R: TableRow, S: SqlRow>(row: &S) -> Result<R, S::Error> {
    let thread = thread_of(row);
    let mismatch = |thread| {
        let message = format!("a stored {} row does not match its columns", R::NAME);
        S::Error::damaged(thread, damaged(message))
    };
    let body = row.bytes(2).ok_or_else(|| mismatch(thread))?;
    let decoded = R::decode(body).map_err(|error| S::Error::damaged(thread, error))?;
    let fits = decoded.thread() == thread
        && decoded.key().is_none_or(|key| row.is(1, &Column::Integer(key)))
        && decoded.columns().as_ref().iter().enumerate().all(|(index, one)| row.is(index + 3, one));
    if fits { Ok(decoded) } else { Err(mismatch(decoded.thread())) }
}

/// The thread of a row that was read from [`super::SqlConnection::columns`].
pub(crate) fn thread_of(row: &impl SqlRow) -> Option<ThreadKey> {
    row.value::<Option<i64>>(0).ok().flatten().map(ThreadKey)
}
