//! The official documents of the protocols, which are no part of the repository.
//!
//! `scripts/test` brings them and names their folder in `TRILOGUE_SPECS`. A test without its document says so; with `CI` set it fails.

use std::fs;
use std::path::{Path, PathBuf};

/// Where a document lies, by its path below the folder; `None` where there is none and that is known.
///
/// # Panics
/// Without the document while `CI` is set, and where the folder lacks it without a word why.
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
    /// For this reason, which was found when the folder was made.
    Unavailable(String),
    /// It should be here.
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
