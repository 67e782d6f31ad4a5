//! Moving a store from one engine to another.

use tokio::sync::mpsc;
use trilogue_domain::error::{Code, Error, Result};

pub use crate::core::transfer::{CopyProgress, CopyStep};

use crate::core::closed;
use crate::open::StoreUrl;
use crate::options::Options;
use crate::port::Admin;
use crate::postgres::{ImportEnd, PostgresStore};
use crate::sqlite::StoreSnapshot;

/// The most parts that were read and wait to be written.
const PARTS: usize = 4;

/// What was copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyReport {
    pub threads: u64,
    pub runs: u64,
    pub frames: u64,
    pub events: u64,
    /// Other rows: messages, checkpoints, interrupts, bindings, idempotency, queue, tokens, configured instances.
    pub rows: u64,
    pub blobs: u64,
}

/// Copies the store in a SQLite file, or a backup of one, into an empty PostgreSQL database, as of one moment. It is committed when both hold the same, else nothing is stored.
/// Errors: `invalid_request` for other engines; `already_exists` when there is anything in the target; `thread_quarantined` and `store_corrupt` when the source is damaged; and as [`crate::open()`].
pub async fn copy(
    from: &str,
    to: &str,
    options: Options,
    progress: impl FnMut(CopyProgress),
) -> Result<CopyReport> {
    let path = match (StoreUrl::parse(from)?, StoreUrl::parse(to)?) {
        (StoreUrl::Sqlite(path), StoreUrl::Postgres) => path,
        _ => {
            let message = "a copy leads from a SQLite store to a PostgreSQL store only";
            return Err(Error::new(Code::InvalidRequest, message)
                .hint("write it as: trilogue copy sqlite:PATH postgres://USER@HOST/DATABASE"));
        }
    };
    let snapshot = blocking(move || StoreSnapshot::open(&path)).await?;
    let store = PostgresStore::open(to, Options { node: None, ..options }).await?;
    let copied = transfer(snapshot, &store, progress).await;
    store.close().await?;
    let ImportEnd { sums, events } = copied?;
    let [threads, runs, frames, blobs] =
        ["threads", "runs", "frames", "blobs"].map(|table| sums.rows(table));
    let beside: u64 = ["heads", "gaps", "blob_refs"].map(|table| sums.rows(table)).iter().sum();
    let rows = sums.total() - threads - runs - frames - blobs - beside;
    Ok(CopyReport { threads, runs, frames, events, rows, blobs })
}

async fn transfer(
    snapshot: StoreSnapshot,
    store: &PostgresStore,
    progress: impl FnMut(CopyProgress),
) -> Result<ImportEnd> {
    let (sender, parts) = mpsc::channel(PARTS);
    let total = snapshot.total();
    let reading = blocking(move || snapshot.read(|part| sender.blocking_send(part).is_ok()));
    let (read, written) =
        futures_util::future::join(reading, store.import(parts, total, progress)).await;
    // A reader that fails ends the parts, and so the writer.
    read?;
    written
}

/// Reads the file outside of the event loop.
async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| Err(closed()))
}
