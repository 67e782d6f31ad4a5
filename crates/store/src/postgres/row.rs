//! Rows on a connection: binds them to statements, reads them back, checks their columns.

use std::error::Error as StdError;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Row};

use super::connection::Connection;
use super::error::PostgresError;
use crate::core::table::{Column, TableRow};
use crate::port::NodeAddress;
pub(super) use crate::sql::take;
use crate::sql::{SqlConnection, SqlRow, SqlValue};

/// The most rows of one statement of a scan. Each may have a configuration, or a peer's whole message.
const SCAN_ROWS: i64 = 256;

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
    Ok(Client::execute(conn, &statement, params).await?)
}

/// Whether a statement finds a row.
pub(super) async fn exists(
    conn: &Connection,
    sql: &str,
    params: &Params<'_>,
) -> Result<bool, PostgresError> {
    Ok(query_opt(conn, sql, params).await?.is_some())
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

/// A statement of [`crate::sql`] with its parameters as this engine numbers them.
pub(super) fn numbered(sql: &str) -> String {
    sql.replace('?', "$")
}

fn values<'a>(columns: &'a [Column<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    columns.iter().map(|column| column as &(dyn ToSql + Sync)).collect()
}

// === impl Connection ===

impl SqlConnection for Connection {
    type Error = PostgresError;
    type Row<'r> = Row;

    const LOCK: &'static str = " FOR UPDATE";

    fn columns<R: TableRow>() -> String {
        columns::<R>()
    }

    async fn rows<T: Send>(
        &self,
        sql: &str,
        columns: &[Column<'_>],
        read: impl FnMut(&Row) -> Result<T, PostgresError> + Send,
    ) -> Result<Vec<T>, PostgresError> {
        query(self, &numbered(sql), &values(columns)).await?.iter().map(read).collect()
    }

    async fn scan(
        &self,
        sql: &str,
        columns: &[Column<'_>],
        mut before: i64,
        mut visit: impl FnMut(i64, &Row) -> Result<bool, PostgresError> + Send,
    ) -> Result<(), PostgresError> {
        let sql = numbered(&format!("{sql} LIMIT ?{}", columns.len() + 2));
        loop {
            let mut params = values(columns);
            params.extend([&before as &(dyn ToSql + Sync), &SCAN_ROWS]);
            let rows = query(self, &sql, &params).await?;
            for row in &rows {
                before = row.get(1);
                if !visit(before, row)? {
                    return Ok(());
                }
            }
            if (rows.len() as i64) < SCAN_ROWS {
                return Ok(());
            }
        }
    }

    async fn execute(&self, sql: &str, columns: &[Column<'_>]) -> Result<u64, PostgresError> {
        execute(self, &numbered(sql), &values(columns)).await
    }
}

// === impl Row ===

impl SqlRow for Row {
    type Error = PostgresError;

    fn value<T: SqlValue>(&self, index: usize) -> Result<T, PostgresError> {
        Ok(self.try_get(index)?)
    }

    /// A column of free text has the type of bytes.
    fn free_text(&self, index: usize) -> Result<String, PostgresError> {
        Ok(String::from_utf8_lossy(self.bytes(index).unwrap_or_default()).into_owned())
    }

    fn bytes(&self, index: usize) -> Option<&[u8]> {
        self.try_get(index).unwrap_or(RawColumn(None)).0
    }

    fn is(&self, index: usize, expected: &Column<'_>) -> bool {
        let found = self.bytes(index);
        match expected {
            Column::Null => found.is_none(),
            Column::Text(text) => found == Some(text.as_bytes()),
            Column::Bytes(bytes) => found == Some(bytes),
            Column::Integer(value) => {
                match self.columns().get(index).map(|column| column.type_()) {
                    Some(&Type::BOOL) => found == Some(&[u8::from(*value != 0)]),
                    _ => found == Some(&value.to_be_bytes()),
                }
            }
        }
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
