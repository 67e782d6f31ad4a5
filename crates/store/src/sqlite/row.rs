//! Rows on a connection: binds them to statements, reads them back, checks their columns.

use std::future::ready;

use futures_util::FutureExt;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{
    CachedStatement, Connection, OptionalExtension, Params, Row, ToSql, params_from_iter,
};
use trilogue_domain::error::{Code, Error};

use super::error::SqliteError;
use crate::core::table::{Column, TableRow};
pub(super) use crate::sql::take;
use crate::sql::{SqlConnection, SqlRow, SqlValue};

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

/// Reads at most one row: `rest` follows `FROM table`.
pub(super) fn one<R: TableRow>(
    conn: &Connection,
    rest: &str,
    params: impl Params,
) -> Result<Option<R>, SqliteError> {
    let mut statement = conn.prepare_cached(&select::<R>(rest))?;
    statement.query_row(params, |row| Ok(take(row))).optional()?.transpose()
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

/// The integers that a statement selects.
pub(super) fn integers(
    conn: &Connection,
    sql: &str,
    params: impl Params,
) -> rusqlite::Result<Vec<i64>> {
    conn.prepare_cached(sql)?.query_map(params, |row| row.get(0))?.collect()
}

/// Runs a function of [`crate::sql`] to its end: it never waits, because a statement is done when it returns.
pub(super) fn run_to_end<T>(
    function: impl Future<Output = Result<T, SqliteError>>,
) -> Result<T, SqliteError> {
    let waits = || Error::new(Code::Internal, "a statement on a file waited").into();
    function.now_or_never().unwrap_or_else(|| Err(waits()))
}

// === impl Connection ===

impl SqlConnection for Connection {
    type Error = SqliteError;
    type Row<'r> = Row<'r>;

    /// Only one transaction writes at a time.
    const LOCK: &'static str = "";

    fn columns<R: TableRow>() -> String {
        columns::<R>()
    }

    fn rows<T: Send>(
        &self,
        sql: &str,
        values: &[Column<'_>],
        mut read: impl FnMut(&Row<'_>) -> Result<T, SqliteError> + Send,
    ) -> impl Future<Output = Result<Vec<T>, SqliteError>> + Send {
        let mut all = || {
            let mut statement = self.prepare_cached(sql)?;
            let mut rows = statement.query(params_from_iter(values))?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(read(row)?);
            }
            Ok(found)
        };
        ready(all())
    }

    fn scan(
        &self,
        sql: &str,
        values: &[Column<'_>],
        before: i64,
        mut visit: impl FnMut(i64, &Row<'_>) -> Result<bool, SqliteError> + Send,
    ) -> impl Future<Output = Result<(), SqliteError>> + Send {
        let mut all = || {
            let mut statement = self.prepare_cached(sql)?;
            let before = Column::Integer(before);
            let mut rows = statement.query(params_from_iter(values.iter().chain([&before])))?;
            while let Some(row) = rows.next()?
                && visit(row.get(1)?, row)?
            {}
            Ok(())
        };
        ready(all())
    }

    fn execute(
        &self,
        sql: &str,
        values: &[Column<'_>],
    ) -> impl Future<Output = Result<u64, SqliteError>> + Send {
        let run = || Ok(self.prepare_cached(sql)?.execute(params_from_iter(values))? as u64);
        ready(run())
    }
}

// === impl Row ===

impl SqlRow for Row<'_> {
    type Error = SqliteError;

    fn value<T: SqlValue>(&self, index: usize) -> Result<T, SqliteError> {
        Ok(self.get(index)?)
    }

    fn free_text(&self, index: usize) -> Result<String, SqliteError> {
        Ok(self.get(index)?)
    }

    fn bytes(&self, index: usize) -> Option<&[u8]> {
        match self.get_ref(index) {
            Ok(ValueRef::Blob(bytes)) => Some(bytes),
            _ => None,
        }
    }

    fn is(&self, index: usize, expected: &Column<'_>) -> bool {
        self.get_ref(index).is_ok_and(|found| found == ValueRef::from(*expected))
    }
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
