//! The write-ahead log's file: kept longer than the log, so that a commit overwrites and does not lengthen it.
//!
//! A commit that lengthens a file has the file system write down the new length and the new blocks too, which takes as long as the commit itself.
//! Behind the log's end are zeros, or pages from before it started over; SQLite reads neither, even on recovery.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::connection::PAGE_BYTES;
use super::file::beside;

/// The bytes before the first page of the log.
const HEAD_BYTES: u64 = 32;
/// The bytes before each page of the log.
const PAGE_HEAD_BYTES: u64 = 24;
/// The file of a log with fewer pages is left alone: such a store is hardly written.
const FROM_PAGES: usize = 64;
/// The file is lengthened when it has fewer bytes than this behind the log's end.
const LEAST_AHEAD_BYTES: u64 = 256 * 1024;
/// It is lengthened by this many bytes.
const AHEAD_BYTES: u64 = 1024 * 1024;
/// How many bytes are written at once.
const WRITE_BYTES: usize = 64 * 1024;

/// The file of the log, as the writer knows it.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: Option<File>,
    /// Its length when it was looked at last, in bytes.
    length: u64,
    /// The log's pages then.
    pages: usize,
}

// === impl LogFile ===

impl LogFile {
    /// The log of the store at `path`.
    pub(super) fn of(path: &Path) -> Self {
        Self { path: beside(path, "-wal"), file: None, length: 0, pages: 0 }
    }

    /// Lengthens the file when the log, which has this many pages, is near its end. Only the writer may, between two transactions.
    ///
    /// # Errors
    /// When the file cannot be written; nothing is lost then, and commits lengthen it themselves.
    pub(super) fn grow_ahead(&mut self, pages: usize) -> io::Result<()> {
        if pages < self.pages {
            // It started over, and its file may have been cut.
            self.length = 0;
        }
        self.pages = pages;
        let used = HEAD_BYTES + pages as u64 * (PAGE_HEAD_BYTES + u64::from(PAGE_BYTES));
        if pages < FROM_PAGES || used + LEAST_AHEAD_BYTES <= self.length {
            return Ok(());
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new().write(true).open(&self.path)?,
        };
        let file = self.file.insert(file);
        self.length = file.metadata()?.len();
        let until = self.length.max(used) + AHEAD_BYTES;
        if used + LEAST_AHEAD_BYTES <= self.length {
            return Ok(());
        }
        let zeros = vec![0; WRITE_BYTES];
        while self.length < until {
            file.write_all_at(&zeros, self.length)?;
            self.length += WRITE_BYTES as u64;
        }
        Ok(())
    }
}
