//! Connections: how the writer and the readers see the database file.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;
use trilogue_domain::error::{Code, Error, Result};

use super::error::{SqliteError, lock};
use crate::core::closed_error;
use crate::options::{Durability, Options};

/// Bytes of a page: the unit of disks and of the system's page cache.
pub(super) const PAGE_BYTES: u32 = 4_096;
/// How long the writer waits for a checkpoint or a recovery.
const WRITER_BUSY: Duration = Duration::from_secs(30);
/// How long a checkpoint delays the writer while it waits for readers.
const CHECKPOINT_BUSY: Duration = Duration::from_millis(100);
/// The log file is cut to this many bytes when the log starts over.
const LOG_BYTES: u32 = 64 * 1024 * 1024;
/// How many statements a connection keeps prepared.
const STATEMENTS: usize = 96;

#[derive(Debug)]
pub(super) struct Readers {
    path: std::path::PathBuf,
    cache_kib: u32,
    permits: std::sync::Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

pub(super) fn writer(path: &Path, options: &Options) -> Result<Connection, SqliteError> {
    let conn = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.busy_timeout(WRITER_BUSY)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.pragma_update(None, "page_size", PAGE_BYTES)?;
    let mode: String = conn.pragma_update_and_check(None, "journal_mode", "wal", |r| r.get(0))?;
    if mode != "wal" {
        return Err(Error::new(
            Code::InvalidRequest,
            format!("the file system of '{}' does not carry a write-ahead log", path.display()),
        )
        .hint("put the store on a local disk")
        .into());
    }
    let synchronous = match options.durability {
        Durability::Fsync => "full",
        Durability::Buffered => "normal",
    };
    conn.pragma_update(None, "synchronous", synchronous)?;
    // The checkpointer thread runs checkpoints, by number of pages.
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    conn.pragma_update(None, "secure_delete", true)?;
    conn.pragma_update(None, "foreign_keys", false)?;
    conn.pragma_update(None, "cache_size", kib(options.page_cache_bytes / 2))?;
    Ok(conn)
}

/// Counts the pages of the write-ahead log at every commit of this connection.
pub(super) fn count_log(conn: &mut Connection) -> Result<Arc<AtomicUsize>, SqliteError> {
    let pages = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&pages);
    conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, count: i32| {
        counter.store(usize::try_from(count).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }))?;
    Ok(pages)
}

/// The connection that moves the write-ahead log into the database in parallel with the writer.
pub(super) fn checkpointer(path: &Path) -> Result<Connection, SqliteError> {
    let conn = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.busy_timeout(CHECKPOINT_BUSY)?;
    conn.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    conn.pragma_update(None, "synchronous", "normal")?;
    conn.pragma_update(None, "cache_size", -64)?;
    Ok(conn)
}

pub(super) fn reader(path: &Path, cache_kib: u32) -> Result<Connection, SqliteError> {
    let conn = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.busy_timeout(WRITER_BUSY)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.pragma_update(None, "cache_size", -i64::from(cache_kib))?;
    Ok(conn)
}

/// The connection that changes a copy before the copy becomes a store. It overwrites what it deletes.
pub(super) fn draft(path: &Path) -> Result<Connection, SqliteError> {
    let conn = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update(None, "secure_delete", true)?;
    Ok(conn)
}

/// Opens an existing file. Every connection is made here.
fn open(path: &Path, access: OpenFlags) -> Result<Connection, SqliteError> {
    let conn = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    harden(&conn)?;
    Ok(conn)
}

/// Sets options that make a damaged or foreign file less dangerous: nothing in its schema runs. A store has no triggers and no views.
/// A statement keeps its plan for all bound values: otherwise SQLite prepares it again for each new value of `LIMIT ?`, and for zero and one in `column = ?`.
fn harden(conn: &Connection) -> Result<(), SqliteError> {
    for (config, is_on) in [
        (DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true),
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    ] {
        conn.set_db_config(config, is_on)?;
    }
    conn.pragma_update(None, "cell_size_check", true)?;
    conn.pragma_update(None, "temp_store", "memory")?;
    Ok(())
}

/// A size as SQLite takes it for a page cache: negative kibibytes.
fn kib(bytes: usize) -> i64 {
    -i64::try_from(bytes / 1024).unwrap_or(i64::MAX).max(64)
}

// === impl Readers ===

impl Readers {
    pub(super) fn new(path: &Path, options: &Options) -> Self {
        let count = options.readers.clamp(1, 64);
        let cache_kib = options.page_cache_bytes / 2 / count / 1024;
        let cache_kib = u32::try_from(cache_kib).unwrap_or(u32::MAX).max(64);
        Self {
            path: path.to_owned(),
            cache_kib,
            permits: std::sync::Arc::new(Semaphore::new(count)),
            idle: Mutex::default(),
        }
    }

    /// Waits for a free connection.
    pub(super) async fn permit(&self) -> Result<tokio::sync::OwnedSemaphorePermit> {
        let permits = std::sync::Arc::clone(&self.permits);
        permits.acquire_owned().await.map_err(|_| closed_error())
    }

    /// Runs a look-up on the calling thread. It ends before the caller waits for anything, so no snapshot is held longer.
    pub(super) fn run<T>(
        &self,
        look_up: impl FnOnce(&Connection) -> Result<T, SqliteError>,
    ) -> Result<T, SqliteError> {
        let idle = lock(&self.idle).pop();
        let conn = match idle {
            Some(conn) => conn,
            None => reader(&self.path, self.cache_kib)?,
        };
        let found = look_up(&conn);
        // A failed look-up may have left a transaction open. Such a connection is not reused.
        if conn.is_autocommit() && !self.permits.is_closed() {
            lock(&self.idle).push(conn);
        }
        found
    }

    /// Closes the connections. One that is in use closes when its look-up ends.
    pub(super) fn close(&self) {
        self.permits.close();
        lock(&self.idle).clear();
    }
}
