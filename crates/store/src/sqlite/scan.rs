//! Reads a whole store or backup that no engine has open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, ffi};
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::port::ReadOriginal;

use super::error::SqliteError;
use super::{connection, file, schema};
use crate::core::continuity::hole;
use crate::record::{Frame, NoOriginals};
use crate::sql::frames::stored;

/// The page cache of a connection that reads the whole file once, in KiB.
pub(super) const SCAN_CACHE_KIB: u32 = 1_024;

/// The absolute path of a file. Fails with `invalid_request` if the file does not exist.
pub(super) fn existing(path: &Path) -> Result<PathBuf> {
    let missing = || file::cannot("open", path, &std::io::ErrorKind::NotFound.into());
    let path = file::real_path(path).map_err(|_| missing())?;
    if path.is_file() { Ok(path) } else { Err(missing()) }
}

/// Opens a file for reading. Also returns the version of its schema.
/// Errors: `invalid_request` if it is not a store; `store_too_new` if a newer version wrote it; `store_corrupt` if its tables, indexes, views or triggers are not those of a store.
pub(super) fn open(path: &Path) -> Result<(Connection, u32), SqliteError> {
    for suffix in ["-wal", "-shm"] {
        let beside = file::sibling_path(path, suffix);
        file::check_readable(&beside).map_err(|error| file::cannot("read", &beside, &error))?;
    }
    let conn = connection::reader(path, SCAN_CACHE_KIB)?;
    let version = schema::checked_version(&conn, schema::MIGRATIONS)?;
    if version == 0 {
        return Err(Error::new(Code::InvalidRequest, "the file holds no store")
            .hint("name the file of a store, or one that 'trilogue backup' wrote")
            .into());
    }
    let migrations = schema::MIGRATIONS.get(..version as usize).unwrap_or(schema::MIGRATIONS);
    schema::check_objects(&conn, migrations)?;
    Ok((conn, version))
}

/// Findings of damage in SQLite's own structures; at most 100.
pub(super) fn structures(conn: &Connection) -> Result<Vec<String>, SqliteError> {
    let mut statement = conn.prepare("PRAGMA integrity_check(100)")?;
    let findings = statement.query_map([], |row| row.get(0))?;
    let findings = findings.collect::<rusqlite::Result<Vec<String>>>()?;
    if let Some(fail) = findings.iter().find_map(|finding| read_failure(finding)) {
        return Err(fail);
    }
    let damage: Vec<_> = findings.into_iter().filter(|finding| finding != "ok").collect();
    match conn
        .path()
        .filter(|_| !damage.is_empty())
        .and_then(|path| file::find_unreadable(path.as_ref()))
    {
        Some(unreadable) => Err(unreadable.into()),
        None => Ok(damage),
    }
}

/// The failure if a check of the structures could not read a page. Such a finding is not about the page's content.
pub(super) fn read_failure(finding: &str) -> Option<SqliteError> {
    let (_, code) = finding.rsplit_once("error code")?;
    let code: i32 = code.trim_start_matches(['=', ' ']).trim().parse().ok()?;
    let error = ffi::Error::new(code);
    let is_damage = matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase);
    let failure = || rusqlite::Error::SqliteFailure(error, Some(finding.to_owned()));
    (!is_damage).then(|| failure().into())
}

/// Reads every frame that was not removed, thread by thread, in order. A damaged frame and a hole in a log are errors.
pub(super) fn frames(
    conn: &Connection,
    mut visit: impl FnMut(Result<Frame, SqliteError>) -> Result<(), SqliteError>,
) -> Result<(), SqliteError> {
    let reader: Arc<dyn ReadOriginal> = Arc::new(NoOriginals);
    let mut statement = conn.prepare(concat!(
        "SELECT thread, run, first, last, first_run, body FROM frames WHERE NOT EXISTS",
        " (SELECT 1 FROM removals WHERE removals.thread = frames.thread",
        " AND removals.run IN (0, coalesce(frames.run, 0))) ORDER BY thread, first"
    ))?;
    let mut gap =
        conn.prepare("SELECT 1 FROM gaps WHERE thread = ?1 AND first <= ?2 AND last >= ?3")?;
    let mut rows = statement.query([])?;
    let mut next = (0_i64, 1_i64);
    while let Some(row) = rows.next()? {
        let (thread, first, last): (i64, i64, i64) = (row.get(0)?, row.get(2)?, row.get(3)?);
        visit(stored(row, ThreadKey(thread), &reader))?;
        let expected = if next.0 == thread { next.1 } else { 1 };
        if first > expected && !gap.exists([thread, expected, first - 1])? {
            let (thread, number) = (ThreadKey(thread), expected.cast_unsigned());
            visit(Err(SqliteError::Damaged(Some(thread), hole(thread, number))))?;
        }
        next = (thread, last.saturating_add(1));
    }
    Ok(())
}
