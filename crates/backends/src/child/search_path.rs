//! Finds programs by name.

use std::path::{Path, PathBuf};

/// Returns the absolute folders of a search path. A relative or empty entry depends on the working folder, and files there may come from
/// anyone, so such entries are left out.
pub fn search_folders(path: &str) -> impl Iterator<Item = PathBuf> + '_ {
    std::env::split_paths(path).filter(|folder| folder.is_absolute())
}

/// Returns the file of a program, or `None` if the search path has none. A program with a slash is resolved against `cwd` without a search,
/// and need not exist.
#[must_use]
pub fn find_program(program: &str, cwd: &Path, path: Option<&str>) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(cwd.join(program));
    }
    let mut files = search_folders(path.unwrap_or_default()).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

/// Joins folders to a search path. Returns `None` if there are no folders: an empty path would mean the working folder.
#[must_use]
pub fn join_folders<'a>(folders: impl IntoIterator<Item = &'a PathBuf>) -> Option<String> {
    // Folders that came from a search path can always be joined again.
    let path = std::env::join_paths(folders).ok()?.into_string().ok()?;
    Some(path).filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_absolute_folders_only() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("agent"), "").unwrap();
        let path = format!(".::bin:{}", bin.display());
        assert_eq!(find_program("agent", folder.path(), Some(&path)), Some(bin.join("agent")));
        assert_eq!(find_program("agent", folder.path(), Some("bin")), None);
        assert_eq!(find_program("agent", &bin, Some(".:")), None);
        assert_eq!(find_program("./agent", &bin, None), Some(bin.join("./agent")));
        let kept: Vec<_> = search_folders(&path).collect();
        assert_eq!(join_folders(&kept), Some(bin.display().to_string()));
        assert_eq!(join_folders(&[]), None);
    }
}
