//! The private servers that tests use: PostgreSQL and NATS.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};
use tokio_postgres::{Client, NoTls};

/// The address of a private server, which this variable of the environment names.
pub fn service(variable: &str) -> Result<String> {
    std::env::var(variable).with_context(|| {
        format!(
            "{variable} is not set; start the services of the tests with: eval \"$(scripts/services start)\""
        )
    })
}

/// Makes an empty schema whose name begins with this word. Returns a connection to the database and the schema's name.
pub async fn new_schema(word: &str) -> Result<(Client, String)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (database, connection) =
        tokio_postgres::connect(&service("TRILOGUE_POSTGRES")?, NoTls).await?;
    tokio::spawn(connection);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanos = UNIX_EPOCH.elapsed()?.as_nanos();
    let schema = format!("{word}_{}_{nanos}_{number}", std::process::id());
    database.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    Ok((database, schema))
}
