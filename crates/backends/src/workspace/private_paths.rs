use std::io;
use std::path::{Component, Path, PathBuf};

/// The most files that are hidden from a program by themselves.
const MAX_EXISTING: usize = 256;

/// The folders and files of the server itself: no agent works in such a folder, and none gets such a file from the server.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PrivatePaths {
    folders: Vec<PathBuf>,
    /// Each stands for all files beside it whose names begin with its name.
    files: Vec<PathBuf>,
}

// === impl PrivatePaths ===

impl PrivatePaths {
    pub(crate) const NONE: Self = Self { folders: Vec::new(), files: Vec::new() };

    /// Adds a folder with all that is in it.
    #[must_use]
    pub fn with_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folders.push(folder.into());
        self
    }

    /// Adds a file, and those beside it whose names begin with its name: the log of a database, a lock, an earlier version.
    #[must_use]
    pub fn with_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.files.push(file.into());
        self
    }

    /// The same with links resolved, as far as the paths exist. It blocks on the file system.
    pub(crate) fn resolve(&self) -> Self {
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let in_real_folder =
            |file: &PathBuf| Some(file.parent()?.canonicalize().ok()?.join(file.file_name()?));
        // Both the name that is a link, and the file to which it leads.
        let files = self.files.iter().flat_map(|file| [in_real_folder(file), Some(real(file))]);
        Self { folders: self.folders.iter().map(real).collect(), files: files.flatten().collect() }
    }

    /// Whether a path without links is one of these, or below one. Both must be resolved.
    pub(crate) fn contains(&self, real: &Path) -> bool {
        let is_of_file = |file: &PathBuf| {
            let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
                return false;
            };
            let below = real.strip_prefix(folder).ok();
            let first = below.and_then(|below| below.components().next());
            first.is_some_and(|first| {
                first.as_os_str().as_encoded_bytes().starts_with(name.as_encoded_bytes())
            })
        };
        // Every folder is below the root of the file system.
        let is_in_folder = |folder: &PathBuf| folder.parent().is_some() && real.starts_with(folder);
        self.folders.iter().any(is_in_folder) || self.files.iter().any(is_of_file)
    }

    /// Returns all of them that exist, each by itself and with links resolved. It blocks on the file system.
    pub(crate) fn existing(&self) -> Vec<PathBuf> {
        let resolved = self.resolve();
        let beside = |file: &PathBuf| {
            let entries = file.parent().and_then(|folder| folder.read_dir().ok());
            entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let files = resolved.files.iter().flat_map(beside).filter(|path| resolved.contains(path));
        let mut all: Vec<_> = resolved.folders.iter().cloned().chain(files).collect();
        all.retain(|path| path.exists());
        // The server's own names are short; others can add long ones.
        all.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
        all.dedup();
        all.truncate(MAX_EXISTING);
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.files.is_empty()
    }
}

/// The path that a file has or would have, with links resolved. It blocks on the file system.
/// Fails with `NotFound` if the path goes up out of a folder that does not exist: later, it could lead anywhere.
pub(super) fn real_target(whole: &Path) -> io::Result<PathBuf> {
    let existing = whole.ancestors().find_map(|it| Some((it, it.canonicalize().ok()?)));
    let Some((existing, mut real)) = existing else { return Ok(whole.to_owned()) };
    for part in whole.strip_prefix(existing).unwrap_or(Path::new("")).components() {
        match part {
            Component::Normal(name) => real.push(name),
            Component::CurDir => {}
            _ => return Err(io::ErrorKind::NotFound.into()),
        }
    }
    Ok(real)
}
