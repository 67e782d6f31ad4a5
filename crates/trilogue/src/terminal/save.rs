//! Saves artifacts under safe names.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::safe;
use crate::terminal::exit::{CliError, Result};

const MAX_NAME_BYTES: usize = 128;

#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    force: bool,
}

/// A safe file name for an artifact: one component, not hidden, without characters that a shell or a terminal interprets.
pub(crate) fn file_name(name: &str) -> String {
    let fits =
        |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ' ' | '+' | '@' | ',');
    let mut out: String =
        safe::line(name).trim().chars().map(|c| if fits(c) { c } else { '_' }).collect();
    if out.starts_with(['.', '-']) {
        out.insert(0, '_');
    }
    while out.len() > MAX_NAME_BYTES {
        out.pop();
    }
    if out.is_empty() { "artifact".to_owned() } else { out }
}

// === impl Folder ===

impl Folder {
    /// Opens a folder, and creates it if it is missing.
    pub(crate) fn open(path: &Path, force: bool) -> Result<Self> {
        fs::create_dir_all(path).map_err(|error| {
            CliError::failure(format!("cannot create the folder {}: {error}", path.display()))
        })?;
        Ok(Self { path: path.to_owned(), force })
    }

    /// Saves one artifact.
    pub(crate) fn save(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let name = file_name(name);
        let path = self.path.join(&name);
        let written =
            if self.force { self.replace(&name, &path, bytes) } else { create(&path, bytes) };
        match written {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(CliError::failure(format!("{} exists and was not replaced", path.display()))
                    .hint("pass --force to replace it, or save into another folder"))
            }
            Err(error) => {
                Err(CliError::failure(format!("cannot write {}: {error}", path.display())))
            }
        }
    }

    /// Writes a draft and renames it: a link of that name is replaced, never followed.
    fn replace(&self, name: &str, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let draft = self.path.join(format!(".{name}.{}.new", uuid::Uuid::new_v4().simple()));
        let written = create(&draft, bytes).and_then(|()| fs::rename(&draft, path));
        if written.is_err() {
            // Remove the partial file; the first error is the one to report.
            let _ = fs::remove_file(&draft);
        }
        written
    }
}

/// Creates a file. Fails if the path exists, even as a dangling link.
fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_the_folder() {
        for (name, file) in [
            ("notes.md", "notes.md"),
            ("../../etc/passwd", "_.._.._etc_passwd"),
            ("/etc/passwd", "_etc_passwd"),
            ("..", "_.."),
            (".bashrc", "_.bashrc"),
            ("-rf", "_-rf"),
            ("C:\\windows\\x", "C__windows_x"),
            ("a\u{0}b\u{1b}[2Jc\nd", "abc d"),
            ("", "artifact"),
            ("  ", "artifact"),
            ("bericht für März.pdf", "bericht für März.pdf"),
        ] {
            assert_eq!(file_name(name), file, "{name:?}");
        }
        assert!(file_name(&"ä".repeat(500)).len() <= MAX_NAME_BYTES);
    }

    #[test]
    fn nothing_is_overwritten_and_no_link_is_followed_unless_asked() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        fs::write(folder.path().join("a"), "old").unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("link")).unwrap();
        let careful = Folder::open(folder.path(), false).unwrap();
        for name in ["a", "link"] {
            assert!(careful.save(name, b"new").unwrap_err().to_string().contains("exists"));
        }
        let force = Folder::open(folder.path(), true).unwrap();
        for name in ["a", "link"] {
            assert_eq!(fs::read(force.save(name, b"new").unwrap()).unwrap(), b"new");
        }
        assert_eq!(fs::read(outside.path()).unwrap(), b"");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
