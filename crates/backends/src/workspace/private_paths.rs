use std::io;
use std::path::{Component, Path, PathBuf};

/// The folders and files of the server itself: no agent works in such a folder, and none gets such a file from the server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PrivatePaths {
    folders: Vec<PathBuf>,
    /// Each stands for all files beside it whose names begin with its name.
    files: Vec<PathBuf>,
}

// === impl PrivatePaths ===

impl PrivatePaths {
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
