//! Rows on a connection: binds them to statements, reads them back, checks their columns.

use std::error::Error as StdError;

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use trilogue_domain::ThreadKey;

use super::connection::Connection;
use super::error::PostgresError;
use crate::core::damaged;
use crate::core::table::{Column, TableRow};
use crate::port::NodeAddress;

pub(super) type Params<'a> = [&'a (dyn ToSql + Sync)];

/// A value that is bound to a statement.
#[derive(Debug)]
pub(super) enum Param<'a> {
    Column(Column<'a>),
    Body(Vec<u8>),
    Integers(Vec<i64>),
    Nullable(Vec<Option<i64>>),
    Flags(Vec<bool>),
    Texts(Vec<&'a str>),
    Bodies(Vec<&'a [u8]>),
    Names(Vec<Vec<u8>>),
}

/// The bytes of a column, as they come from the server.
struct RawColumn<'a>(Option<&'a [u8]>);

pub(super) async fn query(
    conn: &Connection,
    sql: &str,
    params: &Params<'_>,
) -> Result<Vec<Row>, PostgresError> {
    let statement = conn.prepare_cached(sql).await?;
    Ok(conn.query(&statement, params).await?)
}

pub(super) async fn query_opt(
    conn: &Connection,
    sql: &str,
    params: &Params<'_>,
) -> Result<Option<Row>, PostgresError> {
    let statement = conn.prepare_cached(sql).await?;
    Ok(conn.query_opt(&statement, params).await?)
}

/// Executes a statement. Returns the number of rows that it changed.
pub(super) async fn execute(
    conn: &Connection,
    sql: &str,
    params: &Params<'_>,
) -> Result<u64, PostgresError> {
    let statement = conn.prepare_cached(sql).await?;
    Ok(conn.execute(&statement, params).await?)
}

/// Whether a statement finds a row.
pub(super) async fn exists(
    conn: &Connection,
    sql: &str,
    params: &Params<'_>,
) -> Result<bool, PostgresError> {
    Ok(query_opt(conn, sql, params).await?.is_some())
}

/// Reads at most one row: `rest` follows `FROM table`.
pub(super) async fn one<R: TableRow>(
    conn: &Connection,
    rest: &str,
    params: &Params<'_>,
) -> Result<Option<R>, PostgresError> {
    query_opt(conn, &select::<R>(rest), params).await?.map(|row| take(&row)).transpose()
}

/// Reads rows: `rest` follows `FROM table`.
pub(super) async fn many<R: TableRow>(
    conn: &Connection,
    rest: &str,
    params: &Params<'_>,
) -> Result<Vec<R>, PostgresError> {
    query(conn, &select::<R>(rest), params).await?.iter().map(take).collect()
}

pub(super) fn take<R: TableRow>(row: &Row) -> Result<R, PostgresError> {
    let thread = thread_of(row);
    let RawColumn(Some(body)) = raw(row, 2) else { return Err(mismatch::<R>(thread)) };
    let decoded = R::decode(body).map_err(|error| PostgresError::Damaged(thread, error))?;
    let fits = decoded.thread() == thread
        && decoded.key().is_none_or(|key| is(row, 1, &Column::Integer(key)))
        && decoded
            .columns()
            .as_ref()
            .iter()
            .enumerate()
            .all(|(index, one)| is(row, index + 3, one));
    if fits { Ok(decoded) } else { Err(mismatch::<R>(decoded.thread())) }
}

/// The thread of a row that was read with [`columns`].
pub(super) fn thread_of(row: &Row) -> Option<ThreadKey> {
    row.try_get::<_, Option<i64>>(0).ok().flatten().map(ThreadKey)
}

/// The statement that reads rows of this kind: the thread, the integer, the body, the columns.
pub(super) fn select<R: TableRow>(rest: &str) -> String {
    format!("SELECT {} FROM {} {rest}", columns::<R>(), R::TABLE)
}

pub(super) fn columns<R: TableRow>() -> String {
    let thread = if R::THREAD == "NULL" { "NULL::bigint" } else { R::THREAD };
    let table = R::TABLE;
    let columns = R::COLUMNS.replace(", ", &format!(", {table}."));
    let thread = if R::THREAD == "NULL" { thread.to_owned() } else { format!("{table}.{thread}") };
    format!("{thread}, {table}.{}, {table}.body, {table}.{columns}", R::KEY)
}

/// The statement that inserts a row with the values of [`bind`]; `rest` follows the values.
pub(super) fn insert<R: TableRow>(is_keyed: bool, rest: &str) -> String {
    let mut names = Vec::new();
    if R::THREAD != "NULL" {
        names.push(R::THREAD);
    }
    if is_keyed {
        names.push(R::KEY);
    }
    names.extend(R::COLUMNS.split(", "));
    names.push("body");
    let values: Vec<String> = (1..=names.len()).map(|index| format!("${index}")).collect();
    format!("INSERT INTO {} ({}) VALUES ({}) {rest}", R::TABLE, names.join(", "), values.join(", "))
}

/// The values of a row: its thread if the table has one, its integer if it is part of the row, its columns, the body.
pub(super) fn bind<'a, R: TableRow>(row: &'a R, columns: &[Column<'a>]) -> Vec<Param<'a>> {
    let mut values = Vec::with_capacity(columns.len() + 3);
    if R::THREAD != "NULL" {
        values.push(Param::Column(Column::integer(row.thread().map(|key| key.0))));
    }
    values.extend(row.key().map(Param::integer));
    values.extend(columns.iter().map(|column| Param::Column(*column)));
    values.push(Param::Body(row.encode()));
    values
}

pub(super) fn refs<'a>(values: &'a [Param<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

fn mismatch<R: TableRow>(thread: Option<ThreadKey>) -> PostgresError {
    let message = format!("a stored {} row does not match its columns", R::NAME);
    PostgresError::Damaged(thread, damaged(message))
}

fn raw(row: &Row, index: usize) -> RawColumn<'_> {
    row.try_get(index).unwrap_or(RawColumn(None))
}

fn is(row: &Row, index: usize, expected: &Column<'_>) -> bool {
    let found = raw(row, index).0;
    match expected {
        Column::Null => found.is_none(),
        Column::Text(text) => found == Some(text.as_bytes()),
        Column::Bytes(bytes) => found == Some(bytes),
        Column::Integer(value) => match row.columns().get(index).map(|column| column.type_()) {
            Some(&Type::BOOL) => found == Some(&[u8::from(*value != 0)]),
            _ => found == Some(&value.to_be_bytes()),
        },
    }
}

// === impl RawColumn ===

impl<'a> FromSql<'a> for RawColumn<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(Some(raw)))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

// === impl Param ===

impl<'a> Param<'a> {
    pub(super) fn text(text: &'a str) -> Self {
        Self::Column(Column::Text(text))
    }

    pub(super) fn bytes(bytes: &'a [u8]) -> Self {
        Self::Column(Column::Bytes(bytes))
    }

    pub(super) fn integer(value: i64) -> Self {
        Self::Column(Column::Integer(value))
    }
}

impl ToSql for Param<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Column(column) => column.to_sql(ty, out),
            Self::Body(bytes) => bytes.to_sql(ty, out),
            Self::Integers(values) => values.to_sql(ty, out),
            Self::Nullable(values) => values.to_sql(ty, out),
            Self::Flags(values) => values.to_sql(ty, out),
            Self::Texts(values) => values.to_sql(ty, out),
            Self::Bodies(values) => values.to_sql(ty, out),
            Self::Names(values) => values.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

// === impl Column ===

impl ToSql for Column<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(value) if *ty == Type::BOOL => (*value != 0).to_sql(ty, out),
            Self::Integer(value) if *ty == Type::INT2 => i16::try_from(*value)?.to_sql(ty, out),
            Self::Integer(value) => value.to_sql(ty, out),
            // A column of free text has the type of bytes.
            Self::Text(text) => text.as_bytes().to_sql(ty, out),
            Self::Bytes(bytes) => bytes.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// The name and address of a node, in the first columns of a row.
pub(super) fn node_address(row: &Row) -> NodeAddress {
    NodeAddress { name: row.get(0), address: row.get(1) }
}
