//! Finds programs as a shell does.

use std::path::{Path, PathBuf};

/// The file of a program, from a folder and a search path. A program with a slash is not searched for, and need not exist.
#[must_use]
pub fn find_program(program: &str, cwd: &Path, path: Option<&str>) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(cwd.join(program));
    }
    let folders = std::env::split_paths(path.unwrap_or_default());
    folders.map(|folder| cwd.join(folder).join(program)).find(|path| path.is_file())
}
