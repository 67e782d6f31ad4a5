//! A full disk of the database, and the probe that detects free space.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use trilogue_domain::error::{Code, Error};
use trilogue_domain::lock;

use super::database::Database;
use super::error::PostgresError;

/// How often a full database is probed.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// A probe writes frames of this many bytes and rolls them back.
const PROBE_FRAMES: i64 = 32;
const PROBE_FRAME_BYTES: i32 = 16 * 1024;
/// A key that no thread has: only a store that was opened 16 million times would give it.
const PROBE_THREAD: i64 = i64::MIN;

/// The time at which the database's disk became full.
#[derive(Debug, Default)]
pub(super) struct DiskSpace {
    full_since: Mutex<Option<Instant>>,
    became_full: Notify,
}

// === impl DiskSpace ===

impl DiskSpace {
    pub(super) fn is_full(&self) -> bool {
        lock(&self.full_since).is_some()
    }

    pub(super) fn note_full(&self) {
        let mut since = lock(&self.full_since);
        if since.is_none() {
            tracing::error!("the disk of the database is full");
            *since = Some(Instant::now());
            self.became_full.notify_one();
        }
    }

    fn note_room(&self) {
        if let Some(since) = lock(&self.full_since).take() {
            let seconds = since.elapsed().as_secs();
            tracing::info!(seconds, "the disk of the database has room again");
        }
    }
}

// === impl Database ===

impl Database {
    pub(super) fn disk_full(&self) -> Error {
        let store = self.health.path().display();
        let message = format!("no space left in the database of the store '{store}'");
        Error::new(Code::DiskFull, message).hint("free some disk space on the database's machine")
    }
}

/// Probes a full disk until it has space. Requests cannot do this, because they may not arrive while the server is not ready.
pub(super) async fn watch(database: Arc<Database>) {
    loop {
        database.disk_space.became_full.notified().await;
        while database.disk_space.is_full() {
            tokio::time::sleep(PROBE_EVERY).await;
            match probe(&database).await {
                Ok(()) => database.disk_space.note_room(),
                // `settle` has noted the failure, and the next probe follows.
                Err(fail) => drop(database.settle(fail)),
            }
        }
    }
}

/// Writes frames into their table and rolls back. Fails while the disk is full.
async fn probe(database: &Database) -> Result<(), PostgresError> {
    const WRITE: &str = concat!(
        "INSERT INTO frames (thread, run, first, last, first_run, body)",
        " SELECT $1, NULL, number, number, 0, convert_to(repeat('x', $2), 'UTF8')",
        " FROM generate_series(1::bigint, $3) AS number"
    );
    let conn = database.connect().await?;
    conn.batch_execute("BEGIN").await?;
    let written = conn.execute(WRITE, &[&PROBE_THREAD, &PROBE_FRAME_BYTES, &PROBE_FRAMES]).await;
    conn.batch_execute("ROLLBACK").await?;
    written?;
    Ok(())
}
