//! The official documents of the protocols, which are no part of the repository.
//!
//! `scripts/test` brings them and names their folder in `TRILOGUE_SPECS`. A test without its document says so; with `CI` set it fails.

use std::fs;
use std::path::{Path, PathBuf};

/// Where a document lies, by its path below the folder; `None` where there is none and that is known.
///
/// # Panics
/// With `CI` set and no folder named, and where the folder lacks the document without a word why.
#[track_caller]
#[expect(
    clippy::panic,
    reason = "a test that cannot make its check fails, or says that it did not"
)]
pub fn document(path: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("TRILOGUE_SPECS") else {
        assert!(std::env::var_os("CI").is_none(), "CI has to set TRILOGUE_SPECS");
        not_checked(path, "TRILOGUE_SPECS names no folder with the official documents");
        return None;
    };
    let file = Path::new(&folder).join(path);
    if file.is_file() {
        return Some(file);
    }
    // Whoever made the folder could not get it, which was said then.
    let mut reason = file.clone().into_os_string();
    reason.push(".missing");
    match fs::read_to_string(reason) {
        Ok(reason) => not_checked(path, reason.trim()),
        Err(_) => panic!("{} is missing", file.display()),
    }
    None
}

#[expect(clippy::print_stderr, reason = "a check that was not made says so")]
fn not_checked(path: &str, why: &str) {
    eprintln!("NOT CHECKED against {path}: {why}");
}
