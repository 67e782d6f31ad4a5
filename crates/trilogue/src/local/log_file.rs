//! The log file of a server that was started on demand.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The size at which a log is rotated into one other file, in bytes.
const MAX_BYTES: u64 = 8 * 1024 * 1024;
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
const TAIL_BYTES: u64 = 4 * 1024;

/// A bounded log of a process's standard error.
#[derive(Clone, Debug)]
pub struct LogFile {
    path: PathBuf,
}

// === impl LogFile ===

impl LogFile {
    /// The log at this path.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the log for a process that is started. Every writer appends.
    pub fn open(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(&self.path)
    }

    /// The size in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |found| found.len())
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text from this byte on, cut to its end.
    #[must_use]
    pub fn tail(&self, from: u64) -> String {
        let read = || {
            let mut file = File::open(&self.path)?;
            let len = file.metadata()?.len();
            let from = if from > len { 0 } else { from }.max(len.saturating_sub(TAIL_BYTES));
            file.seek(SeekFrom::Start(from))?;
            let mut text = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut text)?;
            io::Result::Ok(String::from_utf8_lossy(&text).trim().to_owned())
        };
        read().unwrap_or_default()
    }

    /// The last lines, at most this many.
    #[must_use]
    pub fn last_lines(&self, count: usize) -> String {
        let (text, _) = self.lines_from(self.len().saturating_sub(MAX_BYTES));
        let begins = text.rmatch_indices('\n').nth(count).map_or(0, |(at, _)| at + 1);
        text.get(begins..).unwrap_or_default().to_owned()
    }

    /// The complete lines from this byte on, and where the next ones begin. A log that was rotated is read from its beginning.
    #[must_use]
    pub fn lines_from(&self, from: u64) -> (String, u64) {
        let from = if from > self.len() { 0 } else { from };
        let read = || {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(from))?;
            let mut text = Vec::new();
            file.take(MAX_BYTES).read_to_end(&mut text)?;
            io::Result::Ok(text)
        };
        let mut text = read().unwrap_or_default();
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        text.truncate(end);
        (String::from_utf8_lossy(&text).into_owned(), from + end as u64)
    }

    /// Keeps the log bounded for as long as this is polled.
    pub async fn keep_bounded(self) {
        loop {
            let log = self.clone();
            let path = self.path.clone();
            let rotated = tokio::task::spawn_blocking(move || log.rotate_if_large(MAX_BYTES)).await;
            // The next check tries again. Standard error has this line, also if the file takes no more.
            if let Ok(Err(error)) = rotated {
                tracing::warn!(log = %path.display(), %error, "a large log file could not be rotated");
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Rotates a large log. Writers append, so they continue at the new end.
    fn rotate_if_large(&self, max: u64) -> io::Result<()> {
        if self.len() <= max {
            return Ok(());
        }
        let mut old = self.path.clone().into_os_string();
        old.push(".1");
        fs::copy(&self.path, &old)?;
        OpenOptions::new().write(true).open(&self.path)?.set_len(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_large_log_is_rotated_under_its_writer() {
        let folder = tempfile::tempdir().unwrap();
        let log = LogFile::at(folder.path().join("l"));
        let mut writer = log.open().unwrap();
        writer.write_all(b"one\n").unwrap();
        log.rotate_if_large(4).unwrap();
        assert_eq!(log.tail(0), "one");
        writer.write_all(b"two\n").unwrap();
        log.rotate_if_large(4).unwrap();
        writer.write_all(b"three\n").unwrap();
        assert_eq!((log.tail(0), log.len()), ("three".to_owned(), 6));
        assert_eq!(fs::read_to_string(folder.path().join("l.1")).unwrap(), "one\ntwo\n");
        assert_eq!(log.tail(2), "ree");
        assert_eq!(log.tail(99), "three");
        writer.write_all(b"four\nfive\nsi").unwrap();
        assert_eq!(log.last_lines(2), "four\nfive\n");
        assert_eq!(log.last_lines(9), "three\nfour\nfive\n");
        assert_eq!(log.lines_from(6), ("four\nfive\n".to_owned(), 16));
        writer.write_all(b"x\n").unwrap();
        assert_eq!(log.lines_from(16), ("six\n".to_owned(), 20));
        assert_eq!(log.lines_from(99).1, 20);
    }
}
