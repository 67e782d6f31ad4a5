use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use cap_std::fs::Dir;
use trilogue_wire::jsonrpc::ErrorObject;

use super::private_paths::real_target;
use super::{Root, refusal};

const MAX_PATH_BYTES: usize = 4_096;

/// A name in a folder of the workspace. The folder is pinned, and the name was not a link at the time of the look-up.
#[derive(Debug)]
pub(super) struct Location {
    pub(super) folder: Dir,
    pub(super) name: OsString,
}

// === impl Root ===

impl Root {
    /// A path relative to the workspace. An absolute path outside is refused here; one that leads outside later is refused when it is opened.
    pub(super) fn relative(&self, path: &str) -> Result<PathBuf, ErrorObject> {
        if path.is_empty() || path.len() > MAX_PATH_BYTES || path.contains('\0') {
            let shown = path.chars().take(64).collect::<String>();
            return Err(refusal::invalid_params(format!(
                "'{}' is not a path: a path has 1 to {MAX_PATH_BYTES} bytes, none of them zero",
                shown.escape_debug()
            )));
        }
        let given = Path::new(path);
        if given.is_relative() {
            return Ok(given.to_owned());
        }
        let below = [&self.path, &self.real].into_iter().find_map(|it| given.strip_prefix(it).ok());
        match below {
            // The folder itself.
            Some(below) if below.as_os_str().is_empty() => Ok(PathBuf::from(".")),
            Some(below) => Ok(below.to_owned()),
            None => Err(refusal::outside(path)),
        }
    }

    /// Refuses a file of the server or in one of its folders, also if links lead there. It blocks on the file system.
    pub(super) fn check_private(&self, relative: &Path) -> io::Result<()> {
        // What does not exist is created below what exists.
        if !self.private.is_empty()
            && self.private.contains(&real_target(&self.real.join(relative))?)
        {
            let message = "it belongs to the server";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        Ok(())
    }

    /// The location at which a file is written. Links within the workspace are followed, and missing folders are created.
    pub(super) fn target(&self, relative: &Path) -> io::Result<Location> {
        let whole = match self.dir.canonicalize(relative) {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create_folders(relative)?;
                relative.to_owned()
            }
            Err(error) => return Err(error),
        };
        // A path with a final `..`, and the folder itself, name no file.
        let Some(Component::Normal(name)) = whole.components().next_back() else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        let parent = whole.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = self.dir.open_dir(parent.unwrap_or(Path::new(".")))?;
        Ok(Location { folder, name: name.to_owned() })
    }

    /// Creates the missing folders of a path. Refuses a dangling link, because its target could be created anywhere later.
    fn create_folders(&self, relative: &Path) -> io::Result<()> {
        if self.dir.symlink_metadata(relative).is_ok() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a dangling link"));
        }
        match relative.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => self.dir.create_dir_all(parent),
            _ => Ok(()),
        }
    }
}
