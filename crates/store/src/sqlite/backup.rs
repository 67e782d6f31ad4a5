use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode};
use serde_json::Value;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::thread::OPENED_HERE_MEMBER;
use trilogue_domain::{Json, RequestSource};

use super::error::{Health, SqliteError};
use super::file::{FileLock, cannot, create_new, sibling_path, sync_directory};
use super::scan::{self, SCAN_CACHE_KIB};
use super::verify::{VerifyReport, find_invalid_gap, verify};
use super::{KeyCounters, apply, commit_record, connection, remove, row};
use crate::rows::{BindingRow, QueueKind, RunRow};

/// Suffix of a store's name: a copy that is being written.
const DRAFT: &str = ".restoring";
/// Suffix of a store's name: a folder with a copy in which open runs are cancelled before it is restored.
const PREPARED: &str = ".restoring-runs";
/// Suffix of a store's name: a complete copy that replaces the store, now or at the next start.
const READY: &str = ".restored";

/// Writes a consistent copy of the store to a new file while readers and the writer continue.
pub(super) fn backup(path: &Path, to: &Path, health: &Health) -> Result<()> {
    let to = std::path::absolute(to).map_err(|error| cannot("find", to, &error))?;
    let copy = create_new(&to)?;
    let written = vacuum_into(path, &to).map_err(|fail| backup_error(fail, &to, health));
    let durable = written.and_then(|()| {
        copy.sync_all()
            .and_then(|()| sync_directory(&to))
            .map_err(|error| cannot("synchronise", &to, &error))
    });
    if durable.is_err() {
        // Otherwise a partial backup could be taken for a complete one.
        if let Err(error) = fs::remove_file(&to) {
            tracing::error!(backup = %to.display(), %error, "an incomplete backup remains: remove it");
        }
    }
    durable
}

/// How a backup is restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RestoreOptions {
    /// Replace an existing store.
    pub overwrite: bool,
    /// Also take the backup's tokens: they admit their holders.
    pub with_tokens: bool,
    /// Take runs that have not ended: they continue when a server opens the store. Also take the callbacks that were not delivered: a server sends and signs them.
    pub with_runs: bool,
}

/// Replaces a store that no process uses with a verified backup.
/// Errors: `already_exists` if a store exists and may not be replaced; `store_locked` if a process holds it; `store_corrupt` if the backup is damaged; `store_too_new` if a newer version wrote it.
pub fn restore(backup: &Path, to: &Path, options: RestoreOptions) -> Result<VerifyReport> {
    let lock = FileLock::take(to)?;
    let to = lock.path();
    finish_restore(to)?;
    remove_draft(to)?;
    if !options.overwrite && to.exists() {
        return Err(Error::new(
            Code::AlreadyExists,
            format!("there is a store at '{}'", to.display()),
        )
        .hint("name another file, or pass --force to overwrite the store"));
    }
    let copy = sibling_path(to, DRAFT);
    // From here on, no start begins an empty store in the place of a missing one.
    create_new(&copy)?;
    // It may hold tokens. The next restore or start of the store removes it if this fails.
    let report = write_draft(backup, &copy, options).inspect_err(|_| drop(remove(&copy)))?;
    fs::File::open(&copy)
        .and_then(|file| file.sync_all())
        .map_err(|error| cannot("synchronise", &copy, &error))?;
    // This one rename decides: before it the store is the old one, from it on the backup, wherever the process ends.
    rename(&copy, &sibling_path(to, READY))?;
    finish_restore(to)?;
    Ok(report)
}

/// Verifies a backup and writes what is taken of it to the draft.
fn write_draft(backup: &Path, draft: &Path, options: RestoreOptions) -> Result<VerifyReport> {
    let report = verify(backup)?;
    if !report.is_sound() {
        let first = report.damage.first().map_or("", String::as_str);
        return Err(Error::new(
            Code::StoreCorrupt,
            format!("the backup '{}' is damaged: {first}", backup.display()),
        )
        .hint("use another backup: trilogue restore OTHER"));
    }
    // Copied through SQLite and not as bytes, so that a write-ahead log beside the backup is included.
    vacuum_into(backup, draft)
        .and_then(|()| settle_copy(draft, options))
        .map(drop)
        .map_err(|fail| backup_error(fail, draft, &Health::new(backup)))?;
    Ok(report)
}

/// Removes from a draft of a store what must not enter another store, as [`restore`] does. Returns the number of removed callbacks.
/// Errors: `run_not_ended` if the draft has open runs that are not wanted.
pub fn settle_draft(draft: &Path, options: RestoreOptions) -> Result<u64> {
    settle_copy(draft, options).map_err(|fail| backup_error(fail, draft, &Health::new(draft)))
}

/// Checks the schema of a copy once more, because the backup may have changed meanwhile, and removes data that must not enter the new store. Returns the number of removed callbacks.
fn settle_copy(copy: &Path, options: RestoreOptions) -> Result<u64, SqliteError> {
    let (conn, _) = scan::open(copy)?;
    KeyCounters::read(&conn)?;
    if let Some(damage) = find_invalid_gap(&conn)? {
        let message = format!("the copy is damaged: {damage}");
        return Err(Error::new(Code::StoreCorrupt, message).hint("use another backup").into());
    }
    if !options.with_runs {
        let sql = "SELECT count(*) FROM runs WHERE ended_at IS NULL";
        let open: i64 = conn.query_row(sql, [], |row| row.get(0))?;
        if open > 0 {
            let message = format!("{open} runs of the backup have not ended");
            return Err(Error::new(Code::RunNotEnded, message)
                .hint("cancel them first, or restore with --with-runs")
                .into());
        }
    }
    // Closed before the copy is opened again to change it.
    drop(conn);
    let conn = connection::draft(copy)?;
    // The store may have given further keys since the backup, and folders of threads have names that come from their keys.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    remove::note_key(&conn, "thread", i64::try_from(now).ok())?;
    forget_opened_folders(&conn)?;
    let mut callbacks = 0;
    if options.with_runs {
        forget_local_requests(&conn)?;
    } else {
        callbacks = remove_deliveries(&conn)?;
    }
    if !options.with_tokens {
        conn.execute("DELETE FROM tokens", [])?;
    }
    conn.close().map_err(|(_, error)| error)?;
    Ok(callbacks)
}

/// Removes the callbacks that were not delivered, those given up too, and the notices of questions: the server would send content of the file to addresses of the file, and sign it as its own. Returns the number of callbacks.
fn remove_deliveries(conn: &Connection) -> Result<u64, SqliteError> {
    let remove =
        |kind: QueueKind| conn.execute("DELETE FROM queue WHERE kind = ?1", [kind.as_str()]);
    remove(QueueKind::Notify)?;
    Ok(remove(QueueKind::Callback)? as u64)
}

/// Removes from all sessions that a program on this machine has opened their folders: a file can say so of any folder.
fn forget_opened_folders(conn: &Connection) -> Result<(), SqliteError> {
    let mut opened = Vec::new();
    row::each::<BindingRow>(conn, |_, binding| {
        let mut binding = binding?;
        if let Value::Object(mut members) = binding.capabilities.to_value()
            && members.remove(OPENED_HERE_MEMBER).is_some()
        {
            binding.capabilities = Json::from_value(&Value::Object(members));
            opened.push(binding);
        }
        Ok(())
    })?;
    opened.iter().try_for_each(|binding| apply::write_binding(conn, binding))
}

/// Makes requests over the network of the open runs of programs of this machine: a file can say so of any run, and such a run works in any folder.
fn forget_local_requests(conn: &Connection) -> Result<(), SqliteError> {
    let mut statement = conn.prepare(&row::select::<RunRow>("WHERE ended_at IS NULL"))?;
    let open = statement.query_map([], |open| Ok(row::take::<RunRow, _>(open)))?;
    for run in open.collect::<rusqlite::Result<Vec<_>>>()? {
        let mut run = run?;
        if let Some(audit) = &mut run.audit
            && audit.source == RequestSource::LocalSocket
        {
            audit.source = RequestSource::Network;
            apply::write_run(conn, &run, false)?;
        }
    }
    Ok(())
}

/// Replaces the store with a completed copy. The caller holds the store's lock.
/// Returns whether there was a completed copy. Every step can be repeated.
pub(super) fn finish_restore(to: &Path) -> Result<bool> {
    let ready = sibling_path(to, READY);
    if !ready.exists() {
        return Ok(false);
    }
    remove(&sibling_path(to, "-wal"))?;
    remove(&sibling_path(to, "-shm"))?;
    // The record is about the old store.
    commit_record::remove(to).map_err(|error| cannot("remove the record of", to, &error))?;
    // The removal of the old log must be durable before the copy gets its name: SQLite would apply the log to the copy.
    sync_directory(to).map_err(|error| cannot("synchronise", to, &error))?;
    rename(&ready, to)?;
    Ok(true)
}

/// Creates the folder in which a backup is prepared before it is restored to this file, without what an interrupted restore left in it. While it exists, no start begins an empty store in the place of a missing one. The caller removes it.
pub fn create_preparation_folder(to: &Path) -> Result<PathBuf> {
    let lock = FileLock::take(to)?;
    let to = lock.path();
    remove_prepared(to)?;
    let folder = sibling_path(to, PREPARED);
    // It holds conversations, and tokens.
    let created = fs::DirBuilder::new().mode(0o700).create(&folder);
    created.map_err(|error| cannot("create", &folder, &error))?;
    Ok(folder)
}

/// What an interrupted restore into a new file left: the store is missing, and no start may begin an empty one in its place.
pub(super) fn unfinished(to: &Path) -> Option<PathBuf> {
    if to.exists() || is_to_be_replaced(to) {
        return None;
    }
    [DRAFT, PREPARED].map(|suffix| sibling_path(to, suffix)).into_iter().find(|it| it.exists())
}

/// Removes what interrupted restores left beside the store, which may hold tokens. The caller holds the store's lock. Returns whether there was anything.
pub(super) fn remove_leftovers(to: &Path) -> Result<bool> {
    let was_left = [DRAFT, PREPARED].iter().any(|suffix| sibling_path(to, suffix).exists());
    remove_draft(to)?;
    remove_prepared(to)?;
    Ok(was_left)
}

fn remove_draft(to: &Path) -> Result<()> {
    let draft = sibling_path(to, DRAFT);
    remove(&draft)?;
    remove(&sibling_path(&draft, "-journal"))
}

fn remove_prepared(to: &Path) -> Result<()> {
    let folder = sibling_path(to, PREPARED);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(cannot("remove", &folder, &error))
        }
        _ => Ok(()),
    }
}

/// Whether the next start of the store must finish an interrupted restore: the file is still the old store.
pub(super) fn is_to_be_replaced(path: &Path) -> bool {
    sibling_path(path, READY).exists()
}

/// Renames durably.
fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| cannot("move", from, &error))?;
    sync_directory(to).map_err(|error| cannot("synchronise", to, &error))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(cannot("remove", path, &error))
        }
        _ => Ok(()),
    }
}

fn vacuum_into(path: &Path, to: &Path) -> Result<(), SqliteError> {
    let conn = connection::reader(path, SCAN_CACHE_KIB)?;
    vacuum(&conn, to)
}

fn vacuum(conn: &Connection, to: &Path) -> Result<(), SqliteError> {
    let Some(target) = to.to_str() else {
        let message = format!("the path '{}' is not text", to.display());
        return Err(Error::new(Code::InvalidRequest, message).into());
    };
    conn.execute("VACUUM INTO ?1", [target])?;
    Ok(())
}

/// The error of a failed copy. A failing target disk does not change the store's health.
fn backup_error(fail: SqliteError, to: &Path, health: &Health) -> Error {
    let SqliteError::Sql(error) = &fail else { return health.settle(fail) };
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => health.settle(fail),
        Some(ErrorCode::DiskFull) => {
            Error::new(Code::DiskFull, format!("no space left for the copy '{}'", to.display()))
                .hint("write it to another disk")
        }
        _ => Error::new(
            Code::Internal,
            format!("the copy '{}' could not be written: {error}", to.display()),
        )
        .hint("check the disk it goes to"),
    }
}
