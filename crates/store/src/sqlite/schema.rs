//! The schema and its numbered migrations. Each migration runs in one transaction with its number, so a crash leaves the state before or after it.

use std::fmt;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use trilogue_domain::error::{Code, Error};

use super::error::SqliteError;

pub(super) type Migration = fn(&Transaction<'_>) -> Result<(), SqliteError>;

/// The steps, in order; the first leads from an empty file to version 1.
pub(super) const MIGRATIONS: &[Migration] = &[create, note_losses, drop_index_of_message_ids];

pub(super) const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;
/// Marks a SQLite file as a store of this program: "TRLG".
pub(super) const APPLICATION_ID: i32 = 0x5452_4C47;

/// The most objects that are compared, and the most characters of each object's texts: more than any store has.
const MAX_OBJECTS: i64 = 256;
const MAX_OBJECT_CHARS: i64 = 16 * 1024;
/// The most characters of a name that an error shows.
const MAX_SHOWN_CHARS: usize = 60;
/// The tables that SQLite creates for its statistics about indexes.
const STATISTICS: [(&str, &str); 2] = [
    ("sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"),
    ("sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"),
];

/// A table, an index, a view or a trigger.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SchemaObject {
    kind: String,
    name: String,
    /// The table that it is about.
    table: String,
    sql: String,
}

/// Migrates the file to the version of the last of these steps. Fails as [`checked_version`] and [`check_objects`].
pub(super) fn migrate(conn: &mut Connection, migrations: &[Migration]) -> Result<(), SqliteError> {
    let found = checked_version(conn, migrations)?;
    if found > 0 {
        check_objects(conn, migrations.get(..found as usize).unwrap_or(migrations))?;
    }
    for (migration, version) in migrations.iter().zip(1_u32..).skip(found as usize) {
        let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        migration(&transaction)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}

/// The schema version of a file; zero if it is empty.
/// Errors: `store_too_new` if its version is beyond these steps; `invalid_request` if another program made the file.
pub(super) fn checked_version(
    conn: &Connection,
    migrations: &[Migration],
) -> Result<u32, SqliteError> {
    let application: i32 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: u32 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let objects: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION_ID && (objects > 0 || version > 0) {
        return Err(Error::new(Code::InvalidRequest, "the file is a database of another program")
            .hint("name another file in [store] url; a new one is created")
            .into());
    }
    let newest = migrations.len();
    if version as usize > newest {
        return Err(Error::new(
            Code::StoreTooNew,
            format!("the store has schema version {version}; this program reads up to {newest}"),
        )
        .hint("start the newer version of trilogue that wrote it, or restore an older backup")
        .into());
    }
    Ok(version)
}

/// Refuses a file whose tables, indexes, views, triggers and virtual tables are not exactly those that these steps make. Others could run
/// code of the author of the file, or hide rows.
pub(super) fn check_objects(
    conn: &Connection,
    migrations: &[Migration],
) -> Result<(), SqliteError> {
    let mut own = Connection::open_in_memory()?;
    let transaction = own.transaction()?;
    migrations.iter().try_for_each(|migration| migration(&transaction))?;
    let expected = objects(&transaction)?;
    let found = objects(conn)?;
    let is_known = |object: &SchemaObject| {
        expected.contains(object) || STATISTICS.iter().any(|own| object.is_table(own))
    };
    let refused = |what: String| {
        let message = format!("the file is not a store of Trilogue, or is damaged: {what}");
        Err(Error::new(Code::StoreCorrupt, message)
            .hint("restore an unchanged file that 'trilogue backup' wrote")
            .into())
    };
    if let Some(foreign) = found.iter().find(|object| !is_known(object)) {
        return refused(format!("{foreign} does not belong to a store"));
    }
    match expected.iter().find(|object| !found.contains(object)) {
        Some(missing) => refused(format!("{missing} is missing")),
        None => Ok(()),
    }
}

fn objects(conn: &Connection) -> Result<Vec<SchemaObject>, SqliteError> {
    let mut statement = conn.prepare(concat!(
        "SELECT type, substr(name, 1, ?1), substr(tbl_name, 1, ?1), substr(coalesce(sql, ''), 1, ?1)",
        " FROM sqlite_schema LIMIT ?2"
    ))?;
    let found = statement.query_map([MAX_OBJECT_CHARS, MAX_OBJECTS], |row| {
        Ok(SchemaObject {
            kind: row.get(0)?,
            name: row.get(1)?,
            table: row.get(2)?,
            sql: row.get(3)?,
        })
    })?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

// === impl SchemaObject ===

impl SchemaObject {
    /// Whether it is the given table of SQLite.
    fn is_table(&self, (name, sql): &(&str, &str)) -> bool {
        (self.kind.as_str(), self.name.as_str(), self.sql.as_str()) == ("table", *name, *sql)
    }
}

/// The kind and the name, for people. Both can be any text.
impl fmt::Display for SchemaObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |text: &str| text.chars().take(MAX_SHOWN_CHARS).collect::<String>();
        let (kind, name) = (part(&self.kind), part(&self.name));
        write!(f, "the {} '{}'", kind.escape_debug(), name.escape_debug())
    }
}

fn create(transaction: &Transaction<'_>) -> Result<(), SqliteError> {
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    Ok(transaction.execute_batch(include_str!("schema.sql"))?)
}

fn note_losses(transaction: &Transaction<'_>) -> Result<(), SqliteError> {
    Ok(transaction.execute_batch(include_str!("losses.sql"))?)
}

/// A message is looked up only within its thread.
fn drop_index_of_message_ids(transaction: &Transaction<'_>) -> Result<(), SqliteError> {
    Ok(transaction.execute_batch("DROP INDEX messages_by_id")?)
}
