use trilogue_domain::ThreadKey;
use trilogue_domain::error::Error;

use super::row::{SqlRow, take};
use crate::core::table::{Column, TableRow};

/// A failure of an engine.
pub(crate) trait SqlError: From<Error> + Send {
    fn damaged(thread: Option<ThreadKey>, error: Error) -> Self;

    /// The damaged thread and its error. Any other failure comes back as it is.
    fn into_damage(self) -> Result<(Option<ThreadKey>, Error), Self>;
}

/// A connection that executes statements. Values are bound in the order of the numbers `?1`, `?2`, ….
pub(crate) trait SqlConnection {
    type Error: SqlError;
    type Row<'r>: SqlRow<Error = Self::Error>;

    /// Follows a `SELECT` to lock its rows until the transaction ends.
    const LOCK: &'static str;

    /// The columns of a row for [`take`]: the thread, the integer, the body, the search columns.
    fn columns<R: TableRow>() -> String;

    /// Reads all rows of a statement.
    fn rows<T: Send>(
        &self,
        sql: &str,
        values: &[Column<'_>],
        read: impl FnMut(&Self::Row<'_>) -> Result<T, Self::Error> + Send,
    ) -> impl Future<Output = Result<Vec<T>, Self::Error>> + Send;

    /// Reads rows, newest first, until `visit` returns `false`. The second column is the row's integer, and the last parameter is its exclusive upper bound.
    fn scan(
        &self,
        sql: &str,
        values: &[Column<'_>],
        before: i64,
        visit: impl FnMut(i64, &Self::Row<'_>) -> Result<bool, Self::Error> + Send,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Executes a statement. Returns the number of rows that it changed.
    fn execute(
        &self,
        sql: &str,
        values: &[Column<'_>],
    ) -> impl Future<Output = Result<u64, Self::Error>> + Send;

    /// The first row of a statement.
    fn first<T: Send>(
        &self,
        sql: &str,
        values: &[Column<'_>],
        read: impl FnMut(&Self::Row<'_>) -> Result<T, Self::Error> + Send,
    ) -> impl Future<Output = Result<Option<T>, Self::Error>> + Send {
        let rows = self.rows(sql, values, read);
        async move { Ok(rows.await?.into_iter().next()) }
    }
}

/// The statement that reads rows of a table: `rest` follows `FROM table`.
pub(crate) fn select<R: TableRow, C: SqlConnection>(rest: &str) -> String {
    format!("SELECT {} FROM {} {rest}", C::columns::<R>(), R::TABLE)
}

/// Reads at most one row: `rest` follows `FROM table`.
pub(crate) async fn one<R: TableRow, C: SqlConnection>(
    conn: &C,
    rest: &str,
    values: &[Column<'_>],
) -> Result<Option<R>, C::Error> {
    conn.first(&select::<R, C>(rest), values, |row| take(row)).await
}

/// Reads rows: `rest` follows `FROM table`.
pub(crate) async fn many<R: TableRow, C: SqlConnection>(
    conn: &C,
    rest: &str,
    values: &[Column<'_>],
) -> Result<Vec<R>, C::Error> {
    conn.rows(&select::<R, C>(rest), values, |row| take(row)).await
}

/// Executes a statement with the values of a row: its thread if the table has one, its integer if it is part of the row, its columns, the body, then `others`.
/// Returns the number of rows that it changed.
pub(crate) async fn write<R: TableRow, C: SqlConnection>(
    conn: &C,
    sql: &str,
    row: &R,
    others: &[Column<'_>],
) -> Result<u64, C::Error> {
    let body = row.encode();
    let mut values = Vec::with_capacity(24);
    if R::THREAD != "NULL" {
        values.push(row.thread().into());
    }
    values.extend(row.key().map(Column::Integer));
    values.extend_from_slice(row.columns().as_ref());
    values.push(Column::Bytes(&body));
    values.extend_from_slice(others);
    conn.execute(sql, &values).await
}
