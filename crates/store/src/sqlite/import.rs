//! Writes a copy of another engine: one transaction into a new file, compared before it is committed.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use tokio::sync::mpsc;
use trilogue_domain::error::Result;

use super::apply::{self, InsertFrame};
use super::error::{Health, SqliteError};
use super::export::StoreExport;
use super::file::{self, FileLock, sibling_path};
use super::row::run_to_end;
use super::{commit_record, connection, schema, thread_agents};
use crate::core::closed_error;
use crate::core::transfer::{
    BlobName, CopyPart, CopyProgress, CopyStep, ImportEnd, StoreSums, StoredBlob, differs,
};
use crate::options::Options;
use crate::port::Change;
use crate::sql::{configurations, queue, tokens};

/// Suffix of a store's name: a copy that is being written.
const DRAFT: &str = ".copying";

/// Creates a store in a new file from the parts of another one, which has about `total` rows. The file gets its name when the copy is complete.
/// Errors: `already_exists` if the file exists; `shutting_down` if the parts end too early; `internal` if the copy differs; and as [`crate::open()`].
pub(crate) fn import(
    path: &Path,
    options: &Options,
    mut parts: mpsc::Receiver<CopyPart>,
    total: u64,
    mut progress: impl FnMut(CopyProgress),
) -> Result<ImportEnd> {
    let lock = FileLock::take(path)?;
    let path = lock.path().to_owned();
    if path.exists() {
        return Err(file::exists_already(&path));
    }
    // Otherwise SQLite would apply the log of another store to the copy.
    file::check_not_lost(&path, commit_record::SUFFIX)?;
    let draft = copy_draft(&path);
    // No other process can be writing the unfinished copy: this one has the lock.
    remove(&draft);
    // Created here for its mode: SQLite would let other users read it.
    drop(file::create_new(&draft)?);
    let imported = (|| -> Result<ImportEnd, SqliteError> {
        let mut conn = connection::writer(&draft, options)?;
        schema::migrate(&mut conn, schema::MIGRATIONS)?;
        conn.execute_batch("BEGIN IMMEDIATE")?;
        let mut rows = 0;
        let end = loop {
            match parts.blocking_recv() {
                Some(CopyPart::End { sums, events }) => break ImportEnd { sums: *sums, events },
                Some(part) => {
                    write(&conn, &part)?;
                    rows += part.len() as u64;
                    progress(CopyProgress { step: CopyStep::Write, rows, total });
                }
                // The reader failed, and reports the reason.
                None => return Err(closed_error().into()),
            }
        };
        let written = read_again(&conn, end.sums.total(), &mut progress)?;
        if let Some(difference) = end.sums.difference(&written) {
            return Err(differs(&difference).into());
        }
        conn.execute_batch("COMMIT; PRAGMA optimize; PRAGMA wal_checkpoint(TRUNCATE)")?;
        conn.close().map_err(|(_, error)| error)?;
        put_in_place(&draft, &path)?;
        Ok(end)
    })();
    let imported = imported.map_err(|fail| Health::new(&path).settle(fail));
    if imported.is_err() {
        remove(&draft);
    }
    // Last: until the copy is in place or removed, no other process may use these files.
    drop(lock);
    imported
}

/// The path of an unfinished copy into this file. A server that finds something there starts no empty store.
#[must_use]
pub fn copy_draft(path: &Path) -> PathBuf {
    sibling_path(path, DRAFT)
}

/// The unfinished file of an interrupted copy into this file. `None` if it does not exist, or if a store exists.
pub(super) fn unfinished(path: &Path) -> Option<PathBuf> {
    let draft = copy_draft(path);
    (!path.exists() && draft.exists()).then_some(draft)
}

/// Gives a complete copy the store's name.
fn put_in_place(draft: &Path, path: &Path) -> Result<()> {
    commit_record::remove(path)
        .map_err(|error| file::cannot("remove the record of", path, &error))?;
    std::fs::File::open(draft)
        .and_then(|file| file.sync_all())
        .and_then(|()| std::fs::rename(draft, path))
        .and_then(|()| file::sync_directory(path))
        .map_err(|error| file::cannot("move", draft, &error))
}

fn remove(draft: &Path) {
    for suffix in ["-wal", "-shm", ""] {
        // The next copy removes what cannot be removed now.
        drop(std::fs::remove_file(sibling_path(draft, suffix)));
    }
    // A copy that cancels runs has a folder for its draft.
    drop(std::fs::remove_dir_all(draft));
}

/// Reads everything that was written, and checks it.
fn read_again(
    conn: &Connection,
    total: u64,
    progress: &mut dyn FnMut(CopyProgress),
) -> Result<StoreSums, SqliteError> {
    let (mut rows, mut found) = (0, None);
    let mut count = |part: CopyPart| {
        rows += part.len() as u64;
        progress(CopyProgress { step: CopyStep::Verify, rows, total });
        if let CopyPart::End { sums, .. } = part {
            found = Some(*sums);
        }
        true
    };
    StoreExport::new(conn, &mut count).everything()?;
    Ok(found.unwrap_or_default())
}

fn write(conn: &Connection, part: &CopyPart) -> Result<(), SqliteError> {
    match part {
        CopyPart::Rows(changes) => changes.iter().try_for_each(|change| {
            apply::write_new(conn, change)?;
            match change {
                Change::Run(row) => thread_agents::note(conn, row.thread, &row.agent),
                _ => Ok(()),
            }
        }),
        CopyPart::Frames(frames) => {
            let mut insert = InsertFrame::default();
            frames.iter().try_for_each(|frame| insert.frame(conn, frame))
        }
        // A thread's row has its epoch, and its frames and gaps the last number.
        CopyPart::Heads(_) | CopyPart::End { .. } => Ok(()),
        CopyPart::Gaps(gaps) => {
            let mut insert =
                conn.prepare_cached("INSERT INTO gaps (thread, first, last) VALUES (?1, ?2, ?3)")?;
            gaps.iter().try_for_each(|gap| Ok(insert.execute(*gap).map(drop)?))
        }
        CopyPart::Queue(entries) => {
            entries.iter().try_for_each(|entry| run_to_end(queue::store_settled(conn, entry)))
        }
        CopyPart::Tokens(rows) => {
            rows.iter().try_for_each(|row| run_to_end(tokens::put(conn, row)))
        }
        CopyPart::Configurations(rows) => {
            rows.iter().try_for_each(|row| run_to_end(configurations::create(conn, row)))
        }
        CopyPart::Blobs(blobs) => blobs.iter().try_for_each(|blob| write_blob(conn, blob)),
        CopyPart::BlobNames(names) => names.iter().try_for_each(|name| write_name(conn, name)),
    }
}

fn write_blob(conn: &Connection, blob: &StoredBlob) -> Result<(), SqliteError> {
    let StoredBlob { id, crc, data } = blob;
    let sql = "INSERT INTO blobs (tenant, hash, length, crc, data) VALUES (?1, ?2, ?3, ?4, ?5)";
    let params = params![id.tenant.as_str(), id.hash, id.length, crc, data.as_ref()];
    conn.prepare_cached(sql)?.execute(params)?;
    Ok(())
}

fn write_name(conn: &Connection, name: &BlobName) -> Result<(), SqliteError> {
    let sql = concat!(
        "INSERT INTO blob_refs (thread, run, blob, is_text) SELECT ?1, ?2, key, ?3 FROM blobs",
        " WHERE tenant = ?4 AND hash = ?5 AND length = ?6"
    );
    let BlobName { thread, run, is_text, blob } = name;
    let params = params![thread, run, is_text, blob.tenant.as_str(), blob.hash, blob.length];
    conn.prepare_cached(sql)?.execute(params)?;
    Ok(())
}
