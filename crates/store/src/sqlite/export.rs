//! Reads a store for a copy to another engine: everything as of one moment, checked.

use std::collections::HashSet;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{TenantId, ThreadKey};

use super::error::{Health, SqliteError};
use super::heads::last_stored;
use super::{backup, file, row, scan, thread_removal};
use crate::core::batch::is_blob_whole;
use crate::core::table::TableRow;
use crate::core::transfer::{
    BlobId, BlobName, COUNT_ROWS, CopyPart, PartRows, StoreSums, StoredBlob, uncopyable,
};
use crate::core::{closed_error, damaged};
use crate::port::Change;
use crate::record::NoOriginals;
use crate::rows::{
    BindingRow, CheckpointRow, ConfigurationRow, IdempotencyRow, InterruptRow, MessageRow, RunRow,
    TokenRow,
};
use crate::sql::{queue, thread_of};

/// Blobs named by at least one thread that is not being removed.
const BLOBS: &str = concat!(
    "SELECT key, tenant, hash, length, crc, data FROM blobs WHERE EXISTS",
    " (SELECT 1 FROM blob_refs WHERE blob_refs.blob = blobs.key AND NOT EXISTS",
    " (SELECT 1 FROM removals WHERE removals.thread = blob_refs.thread AND removals.run = 0))",
    " ORDER BY key"
);
const BLOB_NAMES: &str = concat!(
    "SELECT r.thread, r.run, r.is_text, b.tenant, b.hash, b.length FROM blob_refs r",
    " LEFT JOIN blobs b ON b.key = r.blob ORDER BY r.thread, r.run"
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
        self.changes(Change::Thread)?;
        self.changes(|row: RunRow| Change::Run(Box::new(row)))?;
        self.changes::<MessageRow>(Change::Message)?;
        self.changes::<CheckpointRow>(Change::Checkpoint)?;
        self.changes(|row: InterruptRow| Change::Interrupt(Box::new(row)))?;
        self.changes::<BindingRow>(Change::Binding)?;
        self.changes::<IdempotencyRow>(Change::Idempotency)?;
        self.frames()?;
        self.heads()?;
        self.gaps()?;
        self.queue()?;
        if self.with_tokens {
            self.table::<TokenRow>(CopyPart::Tokens)?;
        }
        self.table::<ConfigurationRow>(CopyPart::Configurations)?;
        self.blobs()?;
        self.blob_names()?;
        if let Some(finding) = scan::structures(self.conn)?.into_iter().next() {
            let message = format!("the store is damaged and cannot be copied: {finding}");
            return Err(Error::new(Code::StoreCorrupt, message)
                .hint("restore the store from a backup, then copy again")
                .into());
        }
        let sums = Box::new(mem::take(&mut self.sums));
        self.pass(CopyPart::End { sums, events: self.events })
    }

    /// The rows of a table of threads.
    fn changes<R: TableRow>(&mut self, change: fn(R) -> Change) -> Result<(), SqliteError> {
        self.table::<R>(move |rows| CopyPart::Rows(rows.into_iter().map(change).collect()))
    }

    fn table<R: TableRow>(&mut self, part: impl Fn(Vec<R>) -> CopyPart) -> Result<(), SqliteError> {
        let mut rows = PartRows::new();
        row::each::<R>(self.conn, |_, found| {
            if self.is_hidden(&found, R::thread) {
                return Ok(());
            }
            let row = found?;
            let body = row.encode();
            self.sums.row::<R>(&body);
            match rows.add(row, body.len()) {
                Some(full) => self.pass(part(full)),
                None => Ok(()),
            }
        })?;
        self.pass(part(rows.into_rest()))
    }

    fn frames(&mut self) -> Result<(), SqliteError> {
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

    fn heads(&mut self) -> Result<(), SqliteError> {
        let reader: Arc<dyn ReadOriginal> = Arc::new(NoOriginals);
        let conn = self.conn;
        let sql = "SELECT key, epoch FROM threads ORDER BY key";
        self.numbers("heads", sql, CopyPart::Heads, |row| {
            let thread = row.get(0)?;
            let last = last_stored(conn, &reader, ThreadKey(thread))?;
            Ok([thread, row.get(1)?, last.cast_signed()])
        })
    }

    fn gaps(&mut self) -> Result<(), SqliteError> {
        let sql = "SELECT thread, first, last FROM gaps ORDER BY thread, first";
        self.numbers("gaps", sql, CopyPart::Gaps, |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))
    }

    /// Rows of three numbers, the first of which is a thread's key.
    fn numbers(
        &mut self,
        table: &'static str,
        sql: &str,
        part: fn(Vec<[i64; 3]>) -> CopyPart,
        take: impl Fn(&Row<'_>) -> Result<[i64; 3], SqliteError>,
    ) -> Result<(), SqliteError> {
        let mut statement = self.conn.prepare(sql)?;
        let mut found = statement.query([])?;
        let mut rows = PartRows::new();
        while let Some(row) = found.next()? {
            if self.hidden.contains(&ThreadKey(row.get(0)?)) {
                continue;
            }
            let numbers = take(row)?;
            self.sums.numbers(table, &numbers);
            if let Some(full) = rows.add(numbers, 0) {
                self.pass(part(full))?;
            }
        }
        self.pass(part(rows.into_rest()))
    }

    fn queue(&mut self) -> Result<(), SqliteError> {
        let mut statement = self.conn.prepare(&queue::select::<Connection>("ORDER BY id"))?;
        let mut found = statement.query([])?;
        let mut rows = PartRows::new();
        while let Some(row) = found.next()? {
            if thread_of(row).is_some_and(|thread| self.hidden.contains(&thread)) {
                continue;
            }
            let (_, entry) = queue::entry(row)?;
            self.sums.entry(&entry);
            let bytes = entry.item.reference.as_bytes().len();
            if let Some(full) = rows.add(entry, bytes) {
                self.pass(CopyPart::Queue(full))?;
            }
        }
        self.pass(CopyPart::Queue(rows.into_rest()))
    }

    fn blobs(&mut self) -> Result<(), SqliteError> {
        let mut statement = self.conn.prepare(BLOBS)?;
        let mut found = statement.query([])?;
        let mut rows = PartRows::new();
        while let Some(row) = found.next()? {
            let data = Bytes::copy_from_slice(row.get_ref(5)?.as_blob().unwrap_or_default());
            let (crc, key) = (row.get(4)?, row.get(0)?);
            let Some(id) = blob_id(row, 1)? else { return Err(self.damaged_blob(key)?) };
            if !is_blob_whole(&id.hash, id.length, crc, &data) {
                return Err(self.damaged_blob(key)?);
            }
            let blob = StoredBlob { id, crc, data };
            self.sums.blob(&blob);
            let bytes = blob.data.len();
            if let Some(full) = rows.add(blob, bytes) {
                self.pass(CopyPart::Blobs(full))?;
            }
        }
        self.pass(CopyPart::Blobs(rows.into_rest()))
    }

    fn blob_names(&mut self) -> Result<(), SqliteError> {
        let mut statement = self.conn.prepare(BLOB_NAMES)?;
        let mut found = statement.query([])?;
        let mut rows = PartRows::new();
        while let Some(row) = found.next()? {
            let thread = row.get(0)?;
            if self.hidden.contains(&ThreadKey(thread)) {
                continue;
            }
            let Some(blob) = blob_id(row, 3)? else {
                let error = damaged("it names a blob that is not there");
                return Err(SqliteError::Damaged(Some(ThreadKey(thread)), error));
            };
            let name = BlobName { thread, run: row.get(1)?, is_text: row.get(2)?, blob };
            self.sums.blob_name(&name);
            if let Some(full) = rows.add(name, 0) {
                self.pass(CopyPart::BlobNames(full))?;
            }
        }
        self.pass(CopyPart::BlobNames(rows.into_rest()))
    }

    /// The error of a damaged blob, which blames a thread that names it.
    fn damaged_blob(&self, key: i64) -> Result<SqliteError, SqliteError> {
        let sql = "SELECT thread FROM blob_refs WHERE blob = ?1 ORDER BY thread LIMIT 1";
        let thread = self.conn.query_row(sql, [key], |row| row.get(0).map(ThreadKey)).optional()?;
        Ok(SqliteError::Damaged(thread, damaged("a stored blob does not match its hash")))
    }

    /// Whether a row, or a damaged one, belongs to a thread that is being removed.
    fn is_hidden<T>(
        &self,
        found: &Result<T, SqliteError>,
        thread: impl Fn(&T) -> Option<ThreadKey>,
    ) -> bool {
        let thread = match found {
            Ok(row) => thread(row),
            Err(SqliteError::Damaged(thread, _)) => *thread,
            Err(_) => None,
        };
        thread.is_some_and(|thread| self.hidden.contains(&thread))
    }

    fn pass(&mut self, part: CopyPart) -> Result<(), SqliteError> {
        if (self.send)(part) {
            return Ok(());
        }
        self.is_refused = true;
        Err(closed_error().into())
    }
}

/// The identity of a blob from three columns. `None` if the columns are empty.
fn blob_id(row: &Row<'_>, index: usize) -> Result<Option<BlobId>, SqliteError> {
    let Some(tenant) = row.get::<_, Option<String>>(index)? else { return Ok(None) };
    let Ok(tenant) = TenantId::parse(&tenant) else { return Ok(None) };
    Ok(Some(BlobId { tenant, hash: row.get(index + 1)?, length: row.get(index + 2)? }))
}
