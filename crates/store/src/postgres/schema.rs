//! The schema and its numbered migrations. All run in one transaction under an advisory lock: if several nodes start at once, one migrates.

use trilogue_domain::error::{Code, Error};

use super::connection::Connection;
use super::error::PostgresError;

/// The steps, in order; the first leads from an empty schema to version 1. After each step, a running program of the previous version can still use the schema.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("migration_blob_objects.sql"),
    "ALTER TABLE nodes ADD COLUMN draining BOOLEAN NOT NULL DEFAULT FALSE",
    super::agents::ADD_COLUMN,
    include_str!("sign_in_links.sql"),
    // A message is looked up only within its thread.
    "DROP INDEX messages_by_id",
    include_str!("reachable_time.sql"),
    include_str!("news_keys.sql"),
    include_str!("lost_events.sql"),
];

pub(super) const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

/// From this version, a schema names the programs that may use it.
const MARKED_VERSION: u32 = 2;

/// The advisory lock that a migration holds: "TRLG", as a number.
const MIGRATION_LOCK: i64 = 0x5452_4C47;

/// The state of the schema, as stored in it.
struct SchemaState {
    version: u32,
    /// The lowest version that a program must know to use the schema.
    min_version: u32,
}

/// Migrates the database to the newest version. A newer schema is used unchanged if it allows this program.
/// Errors: `store_too_new` if a newer schema does not allow it; `invalid_request` if the encoding is not UTF-8.
pub(super) async fn migrate(
    conn: &mut Connection,
    migrations: &[&str],
) -> Result<(), PostgresError> {
    let encoding: String = conn.query_one("SHOW server_encoding", &[]).await?.get(0);
    if encoding != "UTF8" {
        let message = format!("the database has the encoding {encoding}, not UTF8");
        return Err(Error::new(Code::InvalidRequest, message)
            .hint("create one with: CREATE DATABASE trilogue ENCODING 'UTF8' TEMPLATE template0")
            .into());
    }
    let known = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
    let transaction = conn.transaction().await?;
    // The migration of a large database may take longer than a look-up is allowed to.
    transaction.batch_execute("SET LOCAL statement_timeout = 0").await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK]).await?;
    let SchemaState { version, min_version } = state(&transaction).await?;
    if min_version > known {
        let message = format!(
            "the store has schema version {version} and asks for a program that knows {min_version}; this one knows {known}"
        );
        return Err(Error::new(Code::StoreTooNew, message)
            .hint("start the newer version of trilogue that migrated it")
            .into());
    }
    if version > known {
        tracing::warn!(
            version,
            known,
            "a newer version of trilogue has changed the tables; this one can use them"
        );
    }
    for step in migrations.iter().skip(version as usize) {
        transaction.batch_execute(step).await?;
    }
    if version < known {
        let sql = "UPDATE schema_version SET version = $1";
        transaction.execute(sql, &[&i64::from(known)]).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// The state of the schema that the connection uses. Its version is zero without a schema.
async fn state(
    transaction: &deadpool_postgres::Transaction<'_>,
) -> Result<SchemaState, PostgresError> {
    let create = concat!(
        "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL);",
        " INSERT INTO schema_version SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM schema_version)"
    );
    transaction.batch_execute(create).await?;
    let number = async |sql: &str| -> Result<u32, PostgresError> {
        let found: i64 = transaction.query_one(sql, &[]).await?.get(0);
        Ok(u32::try_from(found).unwrap_or(u32::MAX))
    };
    let version = number("SELECT version FROM schema_version").await?;
    let min_version = match version {
        MARKED_VERSION.. => number("SELECT min_version FROM schema_version").await?,
        _ => 0,
    };
    Ok(SchemaState { version, min_version })
}
