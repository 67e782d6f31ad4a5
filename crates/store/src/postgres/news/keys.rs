//! The keys that encrypt the messages between nodes. They are only in the database, which every node can read.
//!
//! Every day a node makes a new key. The nodes read the keys often enough that each knows a new key before it is used to send. An old key opens messages until no node can still use it.

use std::sync::Arc;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use trilogue_domain::error::{Code, Error};

use super::encryption::{ClusterKey, KEY_BYTES};
use crate::postgres::connection::Connection;
use crate::postgres::database::Database;
use crate::postgres::error::PostgresError;
use crate::postgres::row;

/// For how long a key is the newest.
const KEY_LIFE: Duration = Duration::from_secs(24 * 3_600);
/// How often a node reads the keys.
const READ_EVERY: Duration = Duration::from_secs(30);
/// The least time between two reads, even if messages arrive that no key opens: every NATS client can send those.
const READ_PAUSE: Duration = Duration::from_secs(1);
/// From this age, a key is used to send: every node has read it by then.
const KNOWN_AFTER: Duration = Duration::from_secs(90);
/// For how long a key opens messages after a newer one was made.
const KEPT: Duration = Duration::from_secs(3_600);
/// The most keys that are read.
const MAX_KEYS: i64 = 8;

/// The keys, the newest first, with their age in seconds.
const READ: &str = concat!(
    "SELECT secret, extract(epoch FROM clock_timestamp() - made_at)::float8",
    " FROM news_keys ORDER BY id DESC LIMIT $1"
);
const MAKE: &str = concat!(
    "INSERT INTO news_keys (secret) SELECT $1 WHERE NOT EXISTS",
    " (SELECT 1 FROM news_keys WHERE made_at > clock_timestamp() - make_interval(secs => $2))"
);
const FORGET: &str = concat!(
    "DELETE FROM news_keys WHERE id <",
    " (SELECT max(id) FROM news_keys WHERE made_at <= clock_timestamp() - make_interval(secs => $1))"
);

#[derive(Debug)]
struct StoredKey {
    key: ClusterKey,
    /// The age in seconds. Negative after the database's clock was set back.
    age: f64,
}

/// Reads the keys, and makes one if the newest is too old. Returns whether one of them is new to this node.
pub(in crate::postgres) async fn renew(database: &Database) -> Result<bool, PostgresError> {
    let Some(news) = &database.news else { return Ok(false) };
    let conn = database.connect().await?;
    let mut keys = read(&conn).await?;
    if keys.first().is_none_or(|newest| newest.age >= KEY_LIFE.as_secs_f64()) {
        let secret = new_secret()?;
        row::execute(&conn, MAKE, &[&secret.as_slice(), &KEY_LIFE.as_secs_f64()]).await?;
        keys = read(&conn).await?;
    }
    if keys.len() > 1 {
        row::execute(&conn, FORGET, &[&KEPT.as_secs_f64()]).await?;
    }
    let is_known_to_all = |stored: &&StoredKey| stored.age >= KNOWN_AFTER.as_secs_f64();
    let to_send = keys.iter().find(is_known_to_all).or(keys.last());
    let to_send = to_send.map(|stored| stored.key.clone());
    Ok(news.state.keys.set(to_send, keys.into_iter().map(|stored| stored.key).collect()))
}

/// Reads the keys at intervals, and at once if a message arrives that none opens.
pub(in crate::postgres) async fn watch(database: Arc<Database>) {
    let Some(news) = &database.news else { return };
    loop {
        tokio::time::sleep(READ_PAUSE).await;
        let is_wanted =
            tokio::time::timeout(READ_EVERY, news.state.keys.wanted.notified()).await.is_ok();
        match renew(&database).await {
            // This node could not read the messages before.
            Ok(true) if is_wanted => news.state.on_messages_lost(),
            Ok(_) => {}
            // `settle` has noted the failure, and the loop tries again.
            Err(fail) => drop(database.settle(fail)),
        }
    }
}

async fn read(conn: &Connection) -> Result<Vec<StoredKey>, PostgresError> {
    let found = row::query(conn, READ, &[&MAX_KEYS]).await?;
    let keys = found.iter().filter_map(|row| {
        let secret: &[u8; KEY_BYTES] = row.get::<_, &[u8]>(0).try_into().ok()?;
        Some(StoredKey { key: ClusterKey::new(secret), age: row.get(1) })
    });
    Ok(keys.collect())
}

fn new_secret() -> Result<[u8; KEY_BYTES], PostgresError> {
    let mut secret = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut secret).map_err(|_| {
        PostgresError::from(Error::new(Code::Internal, "the system gives no random bytes"))
    })?;
    Ok(secret)
}
