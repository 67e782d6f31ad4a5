//! The frames of a write-ahead log that SQLite accepts: it stops at the first wrong checksum and ignores all frames after it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use super::connection::PAGE_BYTES;
use super::wal_file::{HEAD_BYTES, PAGE_HEAD_BYTES};

/// The two salts of a log, which distinguish it from earlier logs in the same file.
pub(super) type LogSalts = [u8; 8];

/// Where the salts are in the log's head and in the head of a page.
const SALTS_AT: usize = 16;
const PAGE_SALTS_AT: usize = 8;
/// The first word of a log whose checksums read words in little-endian order. Big-endian adds one.
const MAGIC: u32 = 0x377f_0682;

/// The whole part of a log in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LogScan {
    /// `None` if the log has no valid head.
    pub(super) salts: Option<LogSalts>,
    /// The number of pages up to the last whole commit.
    pub(super) pages: u32,
    /// The file's length.
    pub(super) bytes: u64,
}

/// SQLite's checksum, which continues from page to page.
#[derive(Clone, Copy)]
struct Checksum {
    sums: (u32, u32),
    is_big_endian: bool,
}

/// Opens the log's file in the way that SQLite does. `None` if it does not exist.
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a log until `most_pages` of it are known to be whole.
pub(super) fn scan(file: &File, most_pages: u32) -> io::Result<LogScan> {
    let bytes = file.metadata()?.len();
    let mut found = LogScan { salts: None, pages: 0, bytes };
    let mut reader = io::BufReader::with_capacity(256 * 1024, file);
    let mut head = [0; HEAD_BYTES as usize];
    if !read_whole(&mut reader, &mut head)? {
        return Ok(found);
    }
    let Some(mut checksum) = Checksum::of_head(&head) else { return Ok(found) };
    let salts = bytes_at::<8>(&head, SALTS_AT);
    found.salts = Some(salts);
    let mut page = [0; PAGE_HEAD_BYTES as usize + PAGE_BYTES as usize];
    let mut number = 0;
    while found.pages < most_pages && read_whole(&mut reader, &mut page)? {
        number += 1;
        checksum.add(page.get(..PAGE_SALTS_AT).unwrap_or_default());
        checksum.add(page.get(PAGE_HEAD_BYTES as usize..).unwrap_or_default());
        let is_whole = bytes_at::<8>(&page, PAGE_SALTS_AT) == salts
            && checksum.sums == (word_at(&page, 16), word_at(&page, 20));
        if !is_whole {
            break;
        }
        // The last page of a commit has the size of the database; other pages have zero.
        if word_at(&page, 4) != 0 {
            found.pages = number;
        }
    }
    Ok(found)
}

/// The salts in the head of a log that this process writes, unchecked.
pub(super) fn salts(file: &File) -> Option<LogSalts> {
    let mut salts = LogSalts::default();
    std::os::unix::fs::FileExt::read_exact_at(file, &mut salts, SALTS_AT as u64).ok()?;
    Some(salts)
}

/// Fills the buffer. Returns `false` at the end of the file.
fn read_whole(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes_at(bytes, at))
}

// === impl Checksum ===

impl Checksum {
    /// The checksum of a log's head. `None` if it is wrong or the pages have another size.
    fn of_head(head: &[u8]) -> Option<Self> {
        let magic = word_at(head, 0);
        let is_ours = magic & !1 == MAGIC && word_at(head, 8) == PAGE_BYTES;
        let mut checksum = Self { sums: (0, 0), is_big_endian: magic & 1 == 1 };
        checksum.add(head.get(..24).unwrap_or_default());
        let is_whole = checksum.sums == (word_at(head, 24), word_at(head, 28));
        (is_ours && is_whole).then_some(checksum)
    }

    fn add(&mut self, bytes: &[u8]) {
        let word: fn([u8; 4]) -> u32 =
            if self.is_big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        let (mut first, mut second) = self.sums;
        for pair in bytes.chunks_exact(8) {
            first = first.wrapping_add(word(bytes_at(pair, 0))).wrapping_add(second);
            second = second.wrapping_add(word(bytes_at(pair, 4))).wrapping_add(first);
        }
        self.sums = (first, second);
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::sqlite::file::sibling_path;

    #[test]
    fn as_many_pages_are_whole_as_sqlite_recovers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "page_size", PAGE_BYTES).unwrap();
        conn.pragma_update(None, "journal_mode", "wal").unwrap();
        conn.execute_batch("CREATE TABLE things (name TEXT)").unwrap();
        for _ in 0..5 {
            conn.execute_batch("INSERT INTO things VALUES (hex(randomblob(3000)))").unwrap();
        }
        let log = std::fs::read(sibling_path(&path, "-wal")).unwrap();
        let page_bytes = (PAGE_HEAD_BYTES + u64::from(PAGE_BYTES)) as usize;
        let pages = (log.len() - HEAD_BYTES as usize) / page_bytes;
        for damaged in 0..log.len() / 997 {
            let copy = folder.path().join(format!("{damaged}.db"));
            std::fs::copy(&path, &copy).unwrap();
            let mut bytes = log.clone();
            bytes[damaged * 997] ^= 16;
            std::fs::write(sibling_path(&copy, "-wal"), bytes).unwrap();
            let file = open(&sibling_path(&copy, "-wal")).unwrap().unwrap();
            let found = scan(&file, u32::MAX).unwrap();
            let recovered = Connection::open(&copy).unwrap();
            let (log, _): (i64, i64) = recovered
                .query_row("PRAGMA wal_checkpoint", [], |row| Ok((row.get(1)?, row.get(2)?)))
                .unwrap();
            assert_eq!(i64::from(found.pages), log.max(0), "byte {}", damaged * 997);
            assert!((found.pages as usize) < pages);
        }
        let file = open(&sibling_path(&path, "-wal")).unwrap().unwrap();
        let whole = scan(&file, u32::MAX).unwrap();
        assert_eq!((whole.pages as usize, whole.salts), (pages, salts(&file)));
    }
}
