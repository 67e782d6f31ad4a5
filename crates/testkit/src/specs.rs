//! The official documents of the protocols, which are not part of the repository.
//!
//! `scripts/test` downloads them and sets `TRILOGUE_SPECS` to their folder. A test prints a note if its document is missing, and fails if `CI` is set.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the path of a document, by its path below the folder; `None` if the folder gives a reason why it is missing.
///
/// # Panics
/// Panics if the document is missing while `CI` is set, or if the folder gives no reason for a missing document.
#[track_caller]
#[expect(
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot make its check fails, or says that it did not"
)]
pub fn document(path: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("TRILOGUE_SPECS").map(PathBuf::from);
    match find(folder.as_deref(), path) {
        Document::There(file) => return Some(file),
        Document::Unavailable(why) if std::env::var_os("CI").is_none() => {
            eprintln!("NOT CHECKED against {path}: {why}");
        }
        Document::Unavailable(why) => panic!("CI has to check against {path}: {why}"),
        Document::Missing(file) => panic!("{} is missing", file.display()),
    }
    None
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Document {
    There(PathBuf),
    /// The document is missing, for a reason that was recorded when the folder was made.
    Unavailable(String),
    /// The document is missing, but should be at this path.
    Missing(PathBuf),
}

pub(crate) fn find(folder: Option<&Path>, path: &str) -> Document {
    let Some(folder) = folder else {
        let why = "TRILOGUE_SPECS names no folder with the official documents";
        return Document::Unavailable(why.to_owned());
    };
    let file = folder.join(path);
    if file.is_file() {
        return Document::There(file);
    }
    let mut reason = file.clone().into_os_string();
    reason.push(".missing");
    match fs::read_to_string(reason) {
        Ok(reason) => Document::Unavailable(reason.trim().to_owned()),
        Err(_) => Document::Missing(file),
    }
}
