//! Reads a store for a copy to another engine: everything as of one moment, checked.

use std::collections::HashSet;
use std::future::ready;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::port::ReadOriginal;

use super::error::{Health, SqliteError};
use super::heads::last_stored;
use super::row::run_to_end;
use super::{backup, file, scan, thread_removal};
use crate::core::batch::is_blob_whole;
use crate::core::transfer::{COUNT_ROWS, CopyPart, PartRows, StoreSums, StoredBlob, uncopyable};
use crate::core::{closed_error, damaged};
use crate::record::NoOriginals;
use crate::sql::export::{self, TableExport, blob_id};
use crate::sql::{SqlRow, thread_of};

/// Blobs named by at least one thread that is not being removed.
const BLOBS: &str = concat!(
    "SELECT NULL, key, tenant, hash, length, crc, data FROM blobs WHERE EXISTS",
    " (SELECT 1 FROM blob_refs WHERE blob_refs.blob = blobs.key AND NOT EXISTS",
    " (SELECT 1 FROM removals WHERE removals.thread = blob_refs.thread AND removals.run = 0))",
    " ORDER BY key"
);
/// A store or backup as of one moment. A server can use the store meanwhile.
#[derive(Debug)]
pub(crate) struct StoreSnapshot {
    conn: Connection,
    path: PathBuf,
    total: u64,
}

/// Reads the tables one after the other and passes them on in parts.
pub(super) struct StoreExport<'s> {
    conn: &'s Connection,
    /// Threads that are being removed. They count as missing.
    hidden: HashSet<ThreadKey>,
    sums: StoreSums,
    events: u64,
    with_tokens: bool,
    send: &'s mut dyn FnMut(CopyPart) -> bool,
    /// Whether a part was refused because the receiver is gone.
    is_refused: bool,
}

// === impl StoreSnapshot ===

impl StoreSnapshot {
    /// Opens a store or backup for reading, and fixes the moment with a read transaction. Fails as [`super::verify()`].
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let path = scan::existing(path)?;
        // By another name SQLite finds no write-ahead log, and the newest changes would be missing in silence.
        file::check_single_name(&path)?;
        if backup::is_to_be_replaced(&path) {
            let message = format!("a restore of the store '{}' was interrupted", path.display());
            return Err(Error::new(Code::InvalidRequest, message)
                .hint("start its server once, which finishes the restore; then copy again"));
        }
        let open = || -> Result<Self, SqliteError> {
            let (conn, _) = scan::open(&path)?;
            conn.execute_batch("BEGIN")?;
            let total: i64 = conn.query_row(COUNT_ROWS, [], |row| row.get(0))?;
            Ok(Self { conn, path: path.clone(), total: total.cast_unsigned() })
        };
        open().map_err(|fail| Health::new(&path).settle(fail))
    }

    /// The approximate number of its rows.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Reads everything, in parts. Ends early, without an error, if a part is refused.
    /// Errors: `thread_quarantined`, naming the thread, if some of it is damaged; `store_corrupt`.
    pub(crate) fn read(
        &self,
        with_tokens: bool,
        mut send: impl FnMut(CopyPart) -> bool,
    ) -> Result<()> {
        let mut export = StoreExport::new(&self.conn, &mut send);
        export.with_tokens = with_tokens;
        match export.everything() {
            Err(_) if export.is_refused => Ok(()),
            Err(fail) => Err(self.explain(fail)),
            Ok(()) => Ok(()),
        }
    }

    /// Adds the id of the damaged thread to an error, for people.
    fn explain(&self, fail: SqliteError) -> Error {
        let SqliteError::Damaged(thread, error) = fail else {
            return Health::new(&self.path).settle(fail);
        };
        let sql = "SELECT id FROM threads WHERE key = ?1";
        let id = thread.and_then(|thread| {
            self.conn.query_row(sql, [thread.0], |row| row.get::<_, String>(0)).ok()
        });
        uncopyable(id.as_deref(), &error)
    }
}

// === impl StoreExport ===

impl<'s> StoreExport<'s> {
    pub(super) fn new(conn: &'s Connection, send: &'s mut dyn FnMut(CopyPart) -> bool) -> Self {
        let (hidden, sums) = (HashSet::new(), StoreSums::default());
        Self { conn, hidden, sums, events: 0, with_tokens: true, send, is_refused: false }
    }

    pub(super) fn everything(&mut self) -> Result<(), SqliteError> {
        self.hidden = thread_removal::unfinished(self.conn)?.into_iter().collect();
        let with_tokens = self.with_tokens;
        run_to_end(export::tables(self, with_tokens))?;
        if let Some(finding) = scan::structures(self.conn)?.into_iter().next() {
            let message = format!("the store is damaged and cannot be copied: {finding}");
            return Err(Error::new(Code::StoreCorrupt, message)
                .hint("restore the store from a backup, then copy again")
                .into());
        }
        let sums = Box::new(mem::take(&mut self.sums));
        self.pass(CopyPart::End { sums, events: self.events })
    }

    fn all_rows<T>(
        &mut self,
        sql: &str,
        mut sum: impl FnMut(&mut StoreSums, &Row<'_>) -> Result<(T, usize), SqliteError>,
        part: impl Fn(Vec<T>) -> CopyPart,
    ) -> Result<(), SqliteError> {
        let mut statement = self.conn.prepare(sql)?;
        let mut found = statement.query([])?;
        let mut rows = PartRows::new();
        while let Some(row) = found.next()? {
            if thread_of(row).is_some_and(|thread| self.hidden.contains(&thread)) {
                continue;
            }
            let (row, bytes) = sum(&mut self.sums, row)?;
            if let Some(full) = rows.add(row, bytes) {
                self.pass(part(full))?;
            }
        }
        self.pass(part(rows.into_rest()))
    }

    fn all_frames(&mut self) -> Result<(), SqliteError> {
        let mut rows = PartRows::new();
        scan::frames(self.conn, |found| {
            let frame = found?;
            let damaged = |error| SqliteError::Damaged(Some(frame.thread()), error);
            // The frame must not stay decoded in memory.
            self.events += frame.undecoded().events().map_err(damaged)?.len() as u64;
            self.sums.frame(&frame);
            let bytes = frame.bytes().len();
            match rows.add(frame, bytes) {
                Some(full) => self.pass(CopyPart::Frames(full)),
                None => Ok(()),
            }
        })?;
        self.pass(CopyPart::Frames(rows.into_rest()))
    }

    fn all_blobs(&mut self) -> Result<(), SqliteError> {
        let conn = self.conn;
        let blob = |sums: &mut StoreSums, row: &Row<'_>| {
            let data = Bytes::copy_from_slice(row.bytes(6).unwrap_or_default());
            let (key, crc) = (row.get(1)?, row.get(5)?);
            let id = blob_id(row, 2)?.filter(|id| is_blob_whole(&id.hash, id.length, crc, &data));
            let Some(id) = id else { return Err(damaged_blob(conn, key)?) };
            let blob = StoredBlob { id, crc, data };
            sums.blob(&blob);
            let bytes = blob.data.len();
            Ok((blob, bytes))
        };
        self.all_rows(BLOBS, blob, CopyPart::Blobs)
    }

    fn pass(&mut self, part: CopyPart) -> Result<(), SqliteError> {
        if (self.send)(part) {
            return Ok(());
        }
        self.is_refused = true;
        Err(closed_error().into())
    }
}

// === impl TableExport ===

impl TableExport for StoreExport<'_> {
    type Connection = Connection;

    const BY_AGE: &'static str = "ORDER BY key";

    fn each<T: Send>(
        &mut self,
        sql: &str,
        sum: impl FnMut(&mut StoreSums, &Row<'_>) -> Result<(T, usize), SqliteError> + Send,
        part: impl Fn(Vec<T>) -> CopyPart + Send,
    ) -> impl Future<Output = Result<(), SqliteError>> + Send {
        ready(self.all_rows(sql, sum, part))
    }

    fn frames(&mut self) -> impl Future<Output = Result<(), SqliteError>> + Send {
        ready(self.all_frames())
    }

    fn heads(&mut self) -> impl Future<Output = Result<(), SqliteError>> + Send {
        let (reader, conn): (Arc<dyn ReadOriginal>, _) = (Arc::new(NoOriginals), self.conn);
        let head = |sums: &mut StoreSums, row: &Row<'_>| {
            let thread = row.get(0)?;
            let last = last_stored(conn, &reader, ThreadKey(thread))?;
            let numbers = [thread, row.get(1)?, last.cast_signed()];
            sums.numbers("heads", &numbers);
            Ok((numbers, 0))
        };
        let sql = "SELECT key, epoch FROM threads ORDER BY key";
        ready(self.all_rows(sql, head, CopyPart::Heads))
    }

    fn blobs(&mut self) -> impl Future<Output = Result<(), SqliteError>> + Send {
        ready(self.all_blobs())
    }
}

/// The error of a damaged blob, which blames a thread that names it.
fn damaged_blob(conn: &Connection, key: i64) -> Result<SqliteError, SqliteError> {
    let sql = "SELECT thread FROM blob_refs WHERE blob = ?1 ORDER BY thread LIMIT 1";
    let thread = conn.query_row(sql, [key], |row| row.get(0).map(ThreadKey)).optional()?;
    Ok(SqliteError::Damaged(thread, damaged("a stored blob does not match its hash")))
}
