//! Moving a store from one engine to another.

use std::path::{Path, PathBuf};

use futures_util::future::join;
use tokio::sync::mpsc;
use trilogue_domain::error::{Code, Error, Result};

pub use crate::core::transfer::{CopyProgress, CopyStep};

use crate::core::task_error;
use crate::core::transfer::{CopyPart, ImportEnd};
use crate::open::StoreUrl;
use crate::options::Options;
use crate::port::Admin;
use crate::postgres::PostgresStore;
use crate::sqlite::{self, StoreSnapshot};

/// The most parts that were read and are not written yet.
const PARTS: usize = 4;

/// The counts of a finished copy.
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

/// How a store is copied.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// How both are opened.
    pub store: Options,
    /// Copy the tokens too: they admit their holders.
    pub with_tokens: bool,
}

/// A store to copy from.
enum CopySource {
    File(StoreSnapshot),
    Database(PostgresStore),
}

/// Copies a store into an empty SQLite or PostgreSQL store, as of one moment. The source is a SQLite file, a backup of one, or a PostgreSQL database. The copy is committed if both stores have the same content; otherwise nothing is stored.
/// Errors: `invalid_request` for other engines; `already_exists` if the target is not empty; `thread_quarantined` and `store_corrupt` if the source is damaged; and as [`crate::open()`].
pub async fn copy(
    from: &str,
    to: &str,
    options: CopyOptions,
    progress: impl FnMut(CopyProgress) + Send,
) -> Result<CopyReport> {
    let (source, target) = (StoreUrl::parse(from)?, StoreUrl::parse(to)?);
    let is_known = match (&source, &target) {
        (StoreUrl::Sqlite(_), StoreUrl::Postgres) | (StoreUrl::Postgres, StoreUrl::Sqlite(_)) => {
            true
        }
        (StoreUrl::Postgres, StoreUrl::Postgres) => from != to,
        _ => false,
    };
    if !is_known {
        return Err(unknown_copy());
    }
    copy_between((source, from), (target, to), options, progress).await
}

/// As [`copy`], into a new SQLite file that no server uses, from any of these stores: for changes before a further copy.
pub async fn copy_to_draft(
    from: &str,
    draft: &Path,
    options: CopyOptions,
    progress: impl FnMut(CopyProgress) + Send,
) -> Result<CopyReport> {
    let source = StoreUrl::parse(from)?;
    if !matches!(source, StoreUrl::Sqlite(_) | StoreUrl::Postgres) {
        return Err(unknown_copy());
    }
    let target = (StoreUrl::Sqlite(draft.to_owned()), "");
    copy_between((source, from), target, options, progress).await
}

/// The error for other engines.
fn unknown_copy() -> Error {
    let message = "a copy leads from SQLite to PostgreSQL, or from PostgreSQL to another store";
    Error::new(Code::InvalidRequest, message)
        .hint("write it as `trilogue copy sqlite:PATH postgres://USER@HOST/DATABASE`, or the other way round")
}

/// Copies a store. Each side is known by its kind and its URL.
async fn copy_between(
    (source, from): (StoreUrl, &str),
    (target, to): (StoreUrl, &str),
    options: CopyOptions,
    progress: impl FnMut(CopyProgress) + Send,
) -> Result<CopyReport> {
    let CopyOptions { store: options, with_tokens } = options;
    let options = Options { node: None, ..options };
    let source = match source {
        StoreUrl::Sqlite(path) => {
            CopySource::File(blocking(move || StoreSnapshot::open(&path)).await?)
        }
        _ => CopySource::Database(PostgresStore::open(from, options.clone()).await?),
    };
    let total = source.total().await?;
    let (sender, parts) = mpsc::channel(PARTS);
    let reading = source.read(with_tokens, sender);
    let (read, written) = match target {
        StoreUrl::Sqlite(path) => {
            join(reading, into_file(path, options, parts, total, progress)).await
        }
        _ => {
            let store = PostgresStore::open(to, options).await?;
            let copied = join(reading, store.import(parts, total, progress)).await;
            store.close().await?;
            copied
        }
    };
    // A reader that fails closes the channel, and so ends the writer.
    read?;
    let ImportEnd { sums, events } = written?;
    let [threads, runs, frames, blobs] =
        ["threads", "runs", "frames", "blobs"].map(|table| sums.rows(table));
    let beside: u64 = ["heads", "gaps", "blob_refs"].map(|table| sums.rows(table)).iter().sum();
    let rows = sums.total() - threads - runs - frames - blobs - beside;
    Ok(CopyReport { threads, runs, frames, events, rows, blobs })
}

// === impl CopySource ===

impl CopySource {
    /// The approximate number of its rows.
    async fn total(&self) -> Result<u64> {
        match self {
            Self::File(snapshot) => Ok(snapshot.total()),
            Self::Database(store) => store.count_rows().await,
        }
    }

    /// Reads everything, in parts.
    async fn read(self, with_tokens: bool, parts: mpsc::Sender<CopyPart>) -> Result<()> {
        match self {
            Self::File(snapshot) => {
                let send = move |part| parts.blocking_send(part).is_ok();
                blocking(move || snapshot.read(with_tokens, send)).await
            }
            Self::Database(store) => {
                let read = store.export(with_tokens, parts).await;
                store.close().await?;
                read
            }
        }
    }
}

/// Writes the file outside of the event loop.
async fn into_file(
    path: PathBuf,
    options: Options,
    parts: mpsc::Receiver<CopyPart>,
    total: u64,
    mut progress: impl FnMut(CopyProgress),
) -> Result<ImportEnd> {
    let (tell, mut told) = mpsc::channel(PARTS);
    let writing = blocking(move || {
        // The receiver is gone if the caller gives the copy up.
        let tell = |progress| tell.blocking_send(progress).unwrap_or_default();
        sqlite::import(&path, &options, parts, total, tell)
    });
    let telling = async {
        while let Some(told) = told.recv().await {
            progress(told);
        }
    };
    join(writing, telling).await.0
}

/// Reads or writes a file outside of the event loop.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(task_error(&error)))
}
