use std::path::PathBuf;
use std::sync::Arc;

use trilogue_domain::error::{Code, Error, Result};

use crate::memory::{self, MemoryStore};
use crate::options::Options;
use crate::port::Store;
use crate::postgres::{self, PostgresStore};
use crate::sqlite::SqliteStore;

/// Opens the store that a URL names: `memory:`, `sqlite:PATH` or `postgres://…`.
/// Errors: `invalid_request` for another URL; `store_locked` if another process holds the file; `store_unavailable` if the database cannot be reached; `store_too_new`, `store_corrupt`, `disk_full`, `store_read_only` if the store cannot be read or written.
pub async fn open(url: &str, options: Options) -> Result<Arc<dyn Store>> {
    match StoreUrl::parse(url)? {
        StoreUrl::Memory => Ok(Arc::new(MemoryStore::new(memory::Options {
            max_runs: options.memory_runs,
            max_bytes: options.memory_bytes,
        }))),
        StoreUrl::Sqlite(path) => Ok(Arc::new(SqliteStore::open(path, options).await?)),
        StoreUrl::Postgres => Ok(Arc::new(PostgresStore::open(url, options).await?)),
    }
}

/// Checks a store's URL without opening anything. Fails with `invalid_request`.
pub fn check_url(url: &str) -> Result<()> {
    match StoreUrl::parse(url)? {
        StoreUrl::Memory | StoreUrl::Sqlite(_) => Ok(()),
        StoreUrl::Postgres => postgres::check_url(url),
    }
}

/// A store's URL for people, without the secrets that it may hold.
#[must_use]
pub fn redacted_url(url: &str) -> String {
    match StoreUrl::parse(url) {
        Ok(StoreUrl::Postgres) => postgres::redacted_url(url),
        Ok(StoreUrl::Memory | StoreUrl::Sqlite(_)) => url.to_owned(),
        Err(_) => "(not a store)".to_owned(),
    }
}

/// The file of the store that a URL names. `None` if it has none.
#[must_use]
pub fn file_of_url(url: &str) -> Option<PathBuf> {
    match StoreUrl::parse(url) {
        Ok(StoreUrl::Sqlite(path)) => Some(path),
        Ok(StoreUrl::Memory | StoreUrl::Postgres) | Err(_) => None,
    }
}

/// Whether a URL requests an unencrypted connection to a database on another machine.
#[must_use]
pub fn is_unencrypted(url: &str) -> bool {
    matches!(StoreUrl::parse(url), Ok(StoreUrl::Postgres)) && postgres::is_unencrypted(url)
}

/// Whether several nodes can share the store that a URL names.
#[must_use]
pub fn takes_nodes(url: &str) -> bool {
    matches!(StoreUrl::parse(url), Ok(StoreUrl::Postgres))
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    Memory,
    Sqlite(PathBuf),
    Postgres,
}

// === impl StoreUrl ===

impl StoreUrl {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let problem = match url.split_once(':') {
            Some(("memory", "")) => return Ok(Self::Memory),
            Some(("memory", _)) => "a memory store has no path",
            Some(("sqlite", "" | ":memory:")) => "a SQLite store needs the path of a file",
            Some(("sqlite", path)) if path.contains('\0') => "its path contains a null character",
            Some(("sqlite", path)) => return Ok(Self::Sqlite(PathBuf::from(path))),
            Some(("postgres" | "postgresql", _)) => return Ok(Self::Postgres),
            _ => "the engine is unknown",
        };
        // Only the kind is shown: the rest of a URL may hold a password.
        let kind = url.split(':').next().unwrap_or_default();
        let shown: String = kind.chars().take(32).collect();
        Err(Error::new(
            Code::InvalidRequest,
            format!("the store URL '{}:…' cannot be opened: {problem}", shown.escape_debug()),
        )
        .hint("use 'memory:', 'sqlite:PATH' or 'postgres://USER@HOST/DATABASE', for example 'sqlite:trilogue.db'"))
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
        assert_eq!(StoreUrl::parse("postgres://user:secret@host/db"), Ok(StoreUrl::Postgres));
        for (url, says) in [
            ("sqlite:", "needs the path"),
            ("sqlite::memory:", "needs the path"),
            ("memory:x", "no path"),
            ("mysql://user:secret@host", "unknown"),
            ("trilogue.db", "unknown"),
        ] {
            let error = StoreUrl::parse(url).expect_err(url);
            assert_eq!(error.code(), Code::InvalidRequest);
            assert!(error.message().contains(says), "{url}: {error}");
            assert!(!error.message().contains("secret"), "{error}");
        }
    }
}
