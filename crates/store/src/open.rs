use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::port::ReadOriginal;

use crate::memory::{self, MemoryStore};
use crate::port::Store;
use crate::sqlite::SqliteStore;

#[derive(Clone, Debug)]
pub struct Options {
    /// How durable an append is when it returns. `memory:` ignores it.
    pub durability: Durability,
    /// Reads typed bodies from the originals of stored events.
    pub reader: Arc<dyn ReadOriginal>,
    /// The most bytes of committed frames that are kept in memory for attached readers, all threads together.
    pub tail_cache_bytes: usize,
    /// How many connections read at once, at least 1.
    pub readers: usize,
    /// The page cache of the database, in bytes: one half for the writer, the other shared by the readers.
    pub page_cache_bytes: usize,
    /// The size of the file that is given up when the disk is full, in bytes: the room in which runs can still be ended.
    pub reserve_bytes: u64,
    /// The largest size of the database file, in bytes; reaching it is a full disk. The last `reserve_bytes` of it serve as the reserve.
    pub max_bytes: Option<u64>,
    /// The most changes that wait for the writer.
    pub write_queue: usize,
    /// The most bytes of changes that wait for the writer.
    pub write_queue_bytes: usize,
    /// The longest that opening waits until a long write-ahead log of the last life was moved into the database. Then the store opens and moves the rest beside its first work.
    pub start_wait: Duration,
    /// `memory:` only: the most runs that are kept; then the oldest finished ones go.
    pub memory_runs: usize,
    /// `memory:` only: the most bytes that are kept; then the oldest finished runs go.
    pub memory_bytes: usize,
}

/// What an append has survived when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Durability {
    /// A power loss: the log was synchronised to the disk.
    #[default]
    Fsync,
    /// The end of the process, however sudden. A power loss may take the last moments, in order, and damages nothing.
    Buffered,
}

/// Opens the store that a URL names: `memory:` or `sqlite:PATH`.
/// Errors: `invalid_request` for another URL; `store_locked` when another process holds the file, `store_too_new`, `store_corrupt`, `disk_full`, `store_read_only` when it cannot be read or written.
pub async fn open(url: &str, options: Options) -> Result<Arc<dyn Store>> {
    match StoreUrl::parse(url)? {
        StoreUrl::Memory => Ok(Arc::new(MemoryStore::new(memory::Options {
            max_runs: options.memory_runs,
            max_bytes: options.memory_bytes,
        }))),
        StoreUrl::Sqlite(path) => Ok(Arc::new(SqliteStore::open(path, options).await?)),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum StoreUrl {
    Memory,
    Sqlite(PathBuf),
}

// === impl Options ===

impl Options {
    #[must_use]
    pub fn new(reader: Arc<dyn ReadOriginal>) -> Self {
        Self {
            durability: Durability::default(),
            reader,
            tail_cache_bytes: 64 * 1024 * 1024,
            readers: 4,
            page_cache_bytes: 8 * 1024 * 1024,
            reserve_bytes: 16 * 1024 * 1024,
            max_bytes: None,
            write_queue: 1_024,
            write_queue_bytes: 64 * 1024 * 1024,
            start_wait: Duration::from_secs(30),
            memory_runs: 10_000,
            memory_bytes: 64 * 1024 * 1024,
        }
    }
}

// === impl Durability ===

impl Durability {
    /// The name in settings, in `status` and in the header `Trilogue-Durability`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Buffered => "buffered",
        }
    }

    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        [Self::Fsync, Self::Buffered].into_iter().find(|one| one.as_str() == text)
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl StoreUrl ===

impl StoreUrl {
    fn parse(url: &str) -> Result<Self> {
        let problem = match url.split_once(':') {
            Some(("memory", "")) => return Ok(Self::Memory),
            Some(("memory", _)) => "a memory store has no path",
            Some(("sqlite", "" | ":memory:")) => "a SQLite store needs the path of a file",
            Some(("sqlite", path)) if path.contains('\0') => "its path contains a null character",
            Some(("sqlite", path)) => return Ok(Self::Sqlite(PathBuf::from(path))),
            Some(("postgres" | "postgresql", _)) => "PostgreSQL is not supported yet",
            _ => "the engine is unknown",
        };
        // Only the kind is shown: the rest of a URL may hold a password.
        let kind = url.split(':').next().unwrap_or_default();
        let shown: String = kind.chars().take(32).collect();
        Err(Error::new(
            Code::InvalidRequest,
            format!("the store URL '{}:…' cannot be opened: {problem}", shown.escape_debug()),
        )
        .hint("use 'memory:' or 'sqlite:PATH', for example 'sqlite:trilogue.db'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_their_engine_or_what_is_wrong() {
        assert_eq!(StoreUrl::parse("memory:"), Ok(StoreUrl::Memory));
        assert_eq!(StoreUrl::parse("sqlite:a.db"), Ok(StoreUrl::Sqlite(PathBuf::from("a.db"))));
        assert_eq!(
            StoreUrl::parse("sqlite:/x/a.db"),
            Ok(StoreUrl::Sqlite(PathBuf::from("/x/a.db")))
        );
        for (url, says) in [
            ("postgres://user:secret@host/db", "not supported yet"),
            ("sqlite:", "needs the path"),
            ("sqlite::memory:", "needs the path"),
            ("memory:x", "no path"),
            ("mysql://host", "unknown"),
            ("trilogue.db", "unknown"),
        ] {
            let error = StoreUrl::parse(url).expect_err(url);
            assert_eq!(error.code(), Code::InvalidRequest);
            assert!(error.message().contains(says), "{url}: {error}");
            assert!(!error.message().contains("secret"), "{error}");
        }
    }
}
