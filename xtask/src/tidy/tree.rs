//! The files of the repository that people write.

use std::fs;
use std::path::Path;

use anyhow::Result;

/// Folders that hold nothing people wrote.
const SKIPPED: [&str; 3] = ["target", ".git", "node_modules"];
/// Endings of the files that are checked.
const CHECKED: [&str; 5] = ["rs", "md", "toml", "sql", "txt"];

/// The ending of the scripts of the browser's tests.
const SCRIPT: &str = ".mjs";

/// The repository's files.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) files: Vec<File>,
    /// Scripts, which are read only to find the tests in them.
    pub(super) scripts: Vec<File>,
}

/// One text file.
#[derive(Debug)]
pub(super) struct File {
    /// Its path from the root, with forward slashes.
    pub(super) path: String,
    pub(super) text: String,
}

// === impl Tree ===

impl Tree {
    /// Reads the tree below `root`.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.add(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// A tree of these files; for the checks' own tests.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        let (scripts, files) = files.iter().map(file).partition(|file| file.path.ends_with(SCRIPT));
        Self { files, scripts }
    }

    /// The file at this path.
    pub(super) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The Rust files.
    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    fn add(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            if entry.file_type()?.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    self.add(&entry.path(), &path)?;
                }
            } else if CHECKED.iter().any(|ending| name.ends_with(&format!(".{ending}"))) {
                self.files.push(File { path, text: fs::read_to_string(entry.path())? });
            } else if name.ends_with(SCRIPT) {
                self.scripts.push(File { path, text: fs::read_to_string(entry.path())? });
            }
        }
        Ok(())
    }
}

// === impl File ===

impl File {
    /// The crate it belongs to: the folder below `crates/`, or the first folder.
    pub(super) fn package(&self) -> &str {
        let mut parts = self.path.split('/');
        match parts.next() {
            Some("crates") => parts.next().unwrap_or_default(),
            first => first.unwrap_or_default(),
        }
    }

    /// Whether the file is compiled for tests only.
    pub(super) fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_knows_its_package() {
        let tree = Tree::of(&[("crates/store/src/lib.rs", ""), ("xtask/src/main.rs", "")]);
        let packages: Vec<&str> = tree.rust().map(File::package).collect();
        assert_eq!(packages, ["store", "xtask"]);
    }

    #[test]
    fn reads_what_people_wrote_and_no_build_output() {
        let root = tempfile::tempdir().unwrap();
        for path in ["src/a.rs", "target/b.rs", "c.bin"] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let tree = Tree::read(root.path()).unwrap();
        let paths: Vec<&str> = tree.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["src/a.rs"]);
    }
}
