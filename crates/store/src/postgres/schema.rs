//! The schema and its numbered migrations. All run in one transaction under an advisory lock: of several nodes that start at once, one migrates.

use trilogue_domain::error::{Code, Error};

use super::connection::Connection;
use super::error::PostgresError;

/// The steps, in order; the first leads from an empty schema to version 1.
const MIGRATIONS: &[&str] = &[include_str!("schema.sql"), include_str!("sign_in_links.sql")];

pub(super) const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

/// The advisory lock that a migration holds: "TRLG", as a number.
const MIGRATION_LOCK: i64 = 0x5452_4C47;

/// Brings the database to the newest version.
/// Errors: `store_too_new` when a newer program migrated it; `invalid_request` when its encoding is not UTF-8.
pub(super) async fn migrate(conn: &mut Connection) -> Result<(), PostgresError> {
    let encoding: String = conn.query_one("SHOW server_encoding", &[]).await?.get(0);
    if encoding != "UTF8" {
        let message = format!("the database has the encoding {encoding}, not UTF8");
        return Err(Error::new(Code::InvalidRequest, message)
            .hint("create one with: CREATE DATABASE trilogue ENCODING 'UTF8' TEMPLATE template0")
            .into());
    }
    let transaction = conn.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK]).await?;
    let version = version(&transaction).await?;
    if version > SCHEMA_VERSION {
        let message = format!(
            "the store has schema version {version}; this program reads up to {SCHEMA_VERSION}"
        );
        return Err(Error::new(Code::StoreTooNew, message)
            .hint("start the newer version of trilogue that migrated it")
            .into());
    }
    for step in MIGRATIONS.iter().skip(version as usize) {
        transaction.batch_execute(step).await?;
    }
    if version < SCHEMA_VERSION {
        let sql = "UPDATE schema_version SET version = $1";
        transaction.execute(sql, &[&i64::from(SCHEMA_VERSION)]).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// The version of the schema that the connection uses; zero when it has none.
async fn version(transaction: &deadpool_postgres::Transaction<'_>) -> Result<u32, PostgresError> {
    let create = concat!(
        "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL);",
        " INSERT INTO schema_version SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM schema_version)"
    );
    transaction.batch_execute(create).await?;
    let version: i64 =
        transaction.query_one("SELECT version FROM schema_version", &[]).await?.get(0);
    Ok(u32::try_from(version).unwrap_or(u32::MAX))
}
