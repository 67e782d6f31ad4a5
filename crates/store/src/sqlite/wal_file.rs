//! The file of the write-ahead log. It is kept longer than the log, so that a commit overwrites bytes instead of extending the file.
//!
//! If a commit extends a file, the file system also writes the new length and blocks, which takes as long as the commit itself.
//! After the log's end are zeros, or pages from before it started over. SQLite reads neither, even in a recovery.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::connection::PAGE_BYTES;
use super::file::sibling_path;

pub(super) const HEAD_BYTES: u64 = 32;
pub(super) const PAGE_HEAD_BYTES: u64 = 24;
/// The file of a shorter log is not extended: such a store is rarely written.
const FROM_PAGES: usize = 64;
/// The file is extended when fewer bytes than this follow the log's end.
const LEAST_AHEAD_BYTES: u64 = 256 * 1024;
/// The size of an extension, in bytes.
const AHEAD_BYTES: u64 = 1024 * 1024;
const WRITE_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: Option<File>,
    /// Its last known length, in bytes.
    length: u64,
    /// The log's pages at that time.
    pages: usize,
}

// === impl LogFile ===

impl LogFile {
    pub(super) fn of(path: &Path) -> Self {
        Self { path: sibling_path(path, "-wal"), file: None, length: 0, pages: 0 }
    }

    /// Extends the file if the log, which has this many pages, nears its end. Only the writer may call this, between two transactions.
    /// Fails if the file cannot be written. Nothing is lost then; commits extend the file themselves.
    pub(super) fn grow_ahead(&mut self, pages: usize) -> io::Result<()> {
        if pages < self.pages {
            // The log started over, and its file may have been cut.
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
