//! The schema and its numbered migrations. Each runs in one transaction with its number, so a crash leaves either side of it.

use rusqlite::{Connection, Transaction, TransactionBehavior};
use trilogue_domain::error::{Code, Error};

use super::error::SqliteError;

pub(super) type Migration = fn(&Transaction<'_>) -> Result<(), SqliteError>;

/// The steps, in order; the first leads from an empty file to version 1.
pub(super) const MIGRATIONS: &[Migration] = &[create, note_losses, drop_index_of_message_ids];

pub(super) const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;
/// Marks a SQLite file as ours: "TRLG".
pub(super) const APPLICATION_ID: i32 = 0x5452_4C47;

/// Brings the file to the version of the last of these steps. Fails as [`checked_version`].
pub(super) fn migrate(conn: &mut Connection, migrations: &[Migration]) -> Result<(), SqliteError> {
    let found = checked_version(conn, migrations)?;
    for (migration, version) in migrations.iter().zip(1_u32..).skip(found as usize) {
        let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        migration(&transaction)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}

/// The schema version of a file; zero when it is empty.
/// Errors: `store_too_new` when these steps do not lead as far; `invalid_request` when another program made the file.
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

fn create(transaction: &Transaction<'_>) -> Result<(), SqliteError> {
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    Ok(transaction.execute_batch(include_str!("schema.sql"))?)
}

fn note_losses(transaction: &Transaction<'_>) -> Result<(), SqliteError> {
    Ok(transaction.execute_batch(include_str!("losses.sql"))?)
}

/// A message is found in its thread alone.
fn drop_index_of_message_ids(transaction: &Transaction<'_>) -> Result<(), SqliteError> {
    Ok(transaction.execute_batch("DROP INDEX messages_by_id")?)
}
