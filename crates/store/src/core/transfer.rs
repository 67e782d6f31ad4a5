//! The parts in which one engine is copied to another, and the sums that compare both.

use std::collections::BTreeMap;
use std::mem;

use bytes::Bytes;
use trilogue_domain::TenantId;
use trilogue_domain::error::{Code, Error};

use super::queue::QueueEntry;
use super::table::{Column, TableRow, columns};
use crate::port::Change;
use crate::record::{Frame, Record, without_checksum};
use crate::rows::{ConfigurationRow, QueueItem, TokenRow};

/// A part ends with this many rows, or with this many bytes.
const PART_ROWS: usize = 256;
const PART_BYTES: usize = 1024 * 1024;

/// Estimates the number of rows that a copy reads, before it begins.
pub(crate) const COUNT_ROWS: &str = concat!(
    "SELECT (SELECT count(*) FROM threads) * 2 + (SELECT count(*) FROM runs)",
    " + (SELECT count(*) FROM messages) + (SELECT count(*) FROM checkpoints)",
    " + (SELECT count(*) FROM interrupts) + (SELECT count(*) FROM bindings)",
    " + (SELECT count(*) FROM idempotency) + (SELECT count(*) FROM frames)",
    " + (SELECT count(*) FROM gaps) + (SELECT count(*) FROM queue)",
    " + (SELECT count(*) FROM tokens) + (SELECT count(*) FROM configurations)",
    " + (SELECT count(*) FROM blobs) + (SELECT count(*) FROM blob_refs)"
);

/// How far a copy is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyProgress {
    pub step: CopyStep,
    /// The finished rows of this step.
    pub rows: u64,
    /// The approximate number of rows of the step.
    pub total: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyStep {
    Write,
    /// The written rows are read again and compared, before they are committed.
    Verify,
}

/// A part of a store. The parts come in the order of their variants.
#[derive(Debug)]
pub(crate) enum CopyPart {
    /// Rows of threads, each as the change that writes it.
    Rows(Vec<Change>),
    Frames(Vec<Frame>),
    /// Each thread's key, epoch and last number.
    Heads(Vec<[i64; 3]>),
    /// A thread's key, and the first and last number of one of its removed ranges.
    Gaps(Vec<[i64; 3]>),
    Queue(Vec<QueueEntry>),
    Tokens(Vec<TokenRow>),
    Configurations(Vec<ConfigurationRow>),
    Blobs(Vec<StoredBlob>),
    BlobNames(Vec<BlobName>),
    /// The store was read to its end; it has this many events.
    End {
        sums: Box<StoreSums>,
        events: u64,
    },
}

/// Large content with the columns stored next to it.
#[derive(Debug)]
pub(crate) struct StoredBlob {
    pub(crate) id: BlobId,
    pub(crate) crc: i64,
    pub(crate) data: Bytes,
}

/// The identity of a blob in every engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BlobId {
    pub(crate) tenant: TenantId,
    pub(crate) hash: Vec<u8>,
    pub(crate) length: i64,
}

/// A run whose frames name a blob; `run` is zero for a frame of no run.
#[derive(Debug)]
pub(crate) struct BlobName {
    pub(crate) thread: i64,
    pub(crate) run: i64,
    pub(crate) is_text: bool,
    pub(crate) blob: BlobId,
}

/// Collects rows until they fill a part.
#[derive(Debug)]
pub(crate) struct PartRows<T> {
    rows: Vec<T>,
    bytes: usize,
}

/// The rows of each table, counted and summed independently of their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct StoreSums {
    tables: BTreeMap<&'static str, TableSum>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct TableSum {
    rows: u64,
    /// The sum of the CRC-32C of all rows.
    sum: u64,
}

/// The result of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ImportEnd {
    pub(crate) sums: StoreSums,
    pub(crate) events: u64,
}

/// The error of a copy whose source is damaged, with the id of the damaged thread.
pub(crate) fn uncopyable(id: Option<&str>, error: &Error) -> Error {
    let shown = id.map(|id| id.escape_debug().to_string());
    let what = shown.as_ref().map_or("the store".to_owned(), |id| format!("the thread '{id}'"));
    let message = format!("{what} is damaged and cannot be copied: {}", error.message());
    Error::new(error.code(), message).hint(match shown {
        Some(id) => format!(
            "restore the store from a backup, or erase the thread on its server with `trilogue threads erase {id}`; then copy again"
        ),
        None => "restore the store from a backup, then copy again".to_owned(),
    })
}

/// The error of a copy that differs from its source.
pub(crate) fn differs(difference: &str) -> Error {
    let message = format!("what was written differs from what was read: {difference}");
    Error::new(Code::Internal, message)
        .hint("nothing was stored; look for triggers and rules in the database, then copy again")
}

// === impl PartRows ===

impl<T> PartRows<T> {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new(), bytes: 0 }
    }

    /// Adds a row. Returns the part if the row fills it.
    pub(crate) fn add(&mut self, row: T, bytes: usize) -> Option<Vec<T>> {
        self.rows.push(row);
        self.bytes += bytes;
        if self.rows.len() < PART_ROWS && self.bytes < PART_BYTES {
            return None;
        }
        self.bytes = 0;
        Some(mem::take(&mut self.rows))
    }

    /// The rows of the last part.
    pub(crate) fn into_rest(self) -> Vec<T> {
        self.rows
    }
}

// === impl CopyPart ===

impl CopyPart {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.len(),
            Self::Frames(rows) => rows.len(),
            Self::Heads(rows) | Self::Gaps(rows) => rows.len(),
            Self::Queue(rows) => rows.len(),
            Self::Tokens(rows) => rows.len(),
            Self::Configurations(rows) => rows.len(),
            Self::Blobs(rows) => rows.len(),
            Self::BlobNames(rows) => rows.len(),
            Self::End { .. } => 0,
        }
    }
}

// === impl StoreSums ===

impl StoreSums {
    pub(crate) fn rows(&self, table: &str) -> u64 {
        self.tables.get(table).map_or(0, |table| table.rows)
    }

    /// The rows of all tables.
    pub(crate) fn total(&self) -> u64 {
        self.tables.values().map(|table| table.rows).sum()
    }

    /// Adds a row in its stored form.
    pub(crate) fn row<R: TableRow>(&mut self, body: &[u8]) {
        self.add(R::TABLE, without_checksum(body), &[]);
    }

    pub(crate) fn frame(&mut self, frame: &Frame) {
        let columns =
            columns![frame.thread(), frame.run(), frame.first(), frame.last(), frame.first_run(),];
        self.add("frames", without_checksum(frame.bytes()), &columns);
    }

    pub(crate) fn entry(&mut self, entry: &QueueEntry) {
        let (item, next) = (entry.item.encode(), entry.next.as_ref().map(Record::encode));
        let mut columns = entry.state_columns().to_vec();
        columns.push(next.as_deref().into());
        self.add(QueueItem::TABLE, without_checksum(&item), &columns);
    }

    pub(crate) fn numbers(&mut self, table: &'static str, numbers: &[i64; 3]) {
        self.add(table, &[], &numbers.map(Column::Integer));
    }

    pub(crate) fn blob(&mut self, blob: &StoredBlob) {
        let mut columns = blob.id.columns().to_vec();
        columns.push(Column::Integer(blob.crc));
        self.add("blobs", &blob.data, &columns);
    }

    pub(crate) fn blob_name(&mut self, name: &BlobName) {
        let mut columns = name.blob.columns().to_vec();
        let numbers = [name.thread, name.run, i64::from(name.is_text)];
        columns.extend(numbers.map(Column::Integer));
        self.add("blob_refs", &[], &columns);
    }

    /// The first table in which another store differs, in words. `None` if all are equal.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let mut tables = self.tables.keys().chain(other.tables.keys());
        let table = tables.find(|table| self.tables.get(*table) != other.tables.get(*table))?;
        Some(match (self.rows(table), other.rows(table)) {
            (all, some) if all != some => format!("the table '{table}' has {some} of {all} rows"),
            _ => format!("rows of the table '{table}' have another content"),
        })
    }

    fn add(&mut self, table: &'static str, content: &[u8], columns: &[Column<'_>]) {
        let crc = columns.iter().fold(crc32c::crc32c(content), |crc, column| {
            let crc = |bytes: &[u8]| crc32c::crc32c_append(crc, bytes);
            match column {
                Column::Null => crc(&[0]),
                Column::Integer(value) => crc(&value.to_le_bytes()),
                Column::Text(text) => crc(text.as_bytes()),
                Column::Bytes(bytes) => crc(bytes),
            }
        });
        let table = self.tables.entry(table).or_default();
        table.rows += 1;
        table.sum = table.sum.wrapping_add(u64::from(crc));
    }
}

// === impl BlobId ===

impl BlobId {
    pub(crate) fn columns(&self) -> [Column<'_>; 3] {
        columns![&self.tenant, self.hash.as_slice(), self.length]
    }
}

#[cfg(test)]
mod tests {
    use trilogue_domain::Rights;

    use super::*;
    use crate::fixtures::token_row;

    fn sums(labels: &[&str]) -> StoreSums {
        let mut sums = StoreSums::default();
        for label in labels {
            let row = token_row("default", "t", Rights::default());
            sums.row::<TokenRow>(&TokenRow { label: (*label).to_owned(), ..row }.encode());
        }
        sums
    }

    #[test]
    fn rows_are_summed_in_any_order_and_every_change_is_noticed() {
        let all = sums(&["a", "b", "c"]);
        assert_eq!(all, sums(&["c", "a", "b"]));
        assert_eq!(all.difference(&all.clone()), None);
        // The CRC of content followed by its own CRC is the same for all content.
        let changed = all.difference(&sums(&["a", "b", "d"])).unwrap();
        assert_eq!(changed, "rows of the table 'tokens' have another content");
        let missing = all.difference(&sums(&["a", "b"])).unwrap();
        assert_eq!(missing, "the table 'tokens' has 2 of 3 rows");
        assert_eq!(
            sums(&[]).difference(&sums(&["a"])).unwrap(),
            "the table 'tokens' has 1 of 0 rows"
        );
    }
}
