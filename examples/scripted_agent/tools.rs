//! Small things that have to do with the system.

use std::io::Write;
use std::path::Path;

/// Writes to standard error, where agents complain.
#[expect(clippy::print_stderr, reason = "agents complain there")]
pub(crate) fn complain(text: &str) {
    eprintln!("{text}");
}

/// Adds a line to a file.
pub(crate) fn append(file: &Path, line: &str) {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
    let written = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        complain(&format!("cannot write {}: {error}", file.display()));
    }
}
