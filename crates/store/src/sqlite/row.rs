//! Rows on a connection: binds them to statements, reads them back, checks their columns.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, ToSql};
use trilogue_domain::ThreadKey;

use super::error::SqliteError;
use crate::core::damaged;
use crate::core::table::{Column, TableRow};

/// Writes a row: `?1` is its thread, `?2` its integer if it is part of the row, then its columns, the body, and `others`.
/// Returns the number of written rows.
pub(super) fn write<R: TableRow>(
    conn: &Connection,
    sql: &str,
    row: &R,
    others: &[&dyn ToSql],
) -> rusqlite::Result<usize> {
    write_encoded(&mut conn.prepare_cached(sql)?, row, &row.encode(), others)
}

/// As [`write`], for a body that is already encoded.
pub(super) fn write_encoded<R: TableRow>(
    statement: &mut CachedStatement<'_>,
    row: &R,
    body: &[u8],
    others: &[&dyn ToSql],
) -> rusqlite::Result<usize> {
    let keys = [Column::integer(row.thread().map(|key| key.0)), Column::integer(row.key())];
    let columns = row.columns();
    let mut index = 0;
    // A statement that does not use the last values does not name their parameters.
    let count = statement.parameter_count();
    let mut bind = |value: &dyn ToSql| {
        index += 1;
        if index <= count { statement.raw_bind_parameter(index, value) } else { Ok(()) }
    };
    for column in keys.iter().chain(columns.as_ref()).chain([&Column::Bytes(body)]) {
        bind(column)?;
    }
    others.iter().try_for_each(|value| bind(value))?;
    statement.raw_execute()
}

pub(super) fn take<R: TableRow>(row: &Row<'_>) -> Result<R, SqliteError> {
    let thread = row.get::<_, Option<i64>>(0).ok().flatten().map(ThreadKey);
    let Ok(ValueRef::Blob(body)) = row.get_ref(2) else { return Err(mismatch::<R>(thread)) };
    let decoded = R::decode(body).map_err(|error| SqliteError::Damaged(thread, error))?;
    let is = |index, column: &Column<'_>| {
        row.get_ref(index).is_ok_and(|found| found == ValueRef::from(*column))
    };
    let fits = decoded.thread() == thread
        && decoded.key().is_none_or(|key| is(1, &Column::Integer(key)))
        && decoded.columns().as_ref().iter().enumerate().all(|(index, one)| is(index + 3, one));
    if fits { Ok(decoded) } else { Err(mismatch::<R>(decoded.thread())) }
}

/// Reads at most one row: `rest` follows `FROM table`.
pub(super) fn one<R: TableRow>(
    conn: &Connection,
    rest: &str,
    params: impl Params,
) -> Result<Option<R>, SqliteError> {
    let mut statement = conn.prepare_cached(&select::<R>(rest))?;
    statement.query_row(params, |row| Ok(take(row))).optional()?.transpose()
}

/// Reads rows: `rest` follows `FROM table`.
pub(super) fn many<R: TableRow>(
    conn: &Connection,
    rest: &str,
    params: impl Params,
) -> Result<Vec<R>, SqliteError> {
    let mut statement = conn.prepare_cached(&select::<R>(rest))?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(take(row)?);
    }
    Ok(found)
}

/// Reads a whole table in the order of its integer: each row with its integer; a damaged row as an error.
pub(super) fn each<R: TableRow>(
    conn: &Connection,
    mut visit: impl FnMut(i64, Result<R, SqliteError>) -> Result<(), SqliteError>,
) -> Result<(), SqliteError> {
    let mut statement = conn.prepare_cached(&select::<R>(&format!("ORDER BY {}", R::KEY)))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        visit(row.get(1)?, take(row))?;
    }
    Ok(())
}

/// The statement that reads rows of this kind: the thread, the integer, the body, the columns.
pub(super) fn select<R: TableRow>(rest: &str) -> String {
    format!("SELECT {} FROM {} {rest}", columns::<R>(), R::TABLE)
}

pub(super) fn columns<R: TableRow>() -> String {
    format!("{}, {}, body, {}", R::THREAD, R::KEY, R::COLUMNS)
}

fn mismatch<R: TableRow>(thread: Option<ThreadKey>) -> SqliteError {
    let message = format!("a stored {} row does not match its columns", R::NAME);
    SqliteError::Damaged(thread, damaged(message))
}

// === impl Column ===

impl<'a> From<Column<'a>> for ValueRef<'a> {
    fn from(column: Column<'a>) -> Self {
        match column {
            Column::Null => Self::Null,
            Column::Integer(value) => Self::Integer(value),
            Column::Text(text) => Self::Text(text.as_bytes()),
            Column::Bytes(bytes) => Self::Blob(bytes),
        }
    }
}

impl ToSql for Column<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed((*self).into()))
    }
}
