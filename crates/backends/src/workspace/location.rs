//! Where in a workspace a path leads.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use cap_std::fs::Dir;
use trilogue_wire::jsonrpc::ErrorObject;

use super::{Place, refusal};

/// The longest path, in bytes.
const MAX_PATH_BYTES: usize = 4_096;

/// A name in a folder of the workspace. The folder is pinned, and the name is of no link at the time it was looked up.
#[derive(Debug)]
pub(super) struct Location {
    pub(super) folder: Dir,
    pub(super) name: OsString,
}

// === impl Place ===

impl Place {
    /// What a path is from the workspace's folder on. A path that begins elsewhere is refused; one that leaves later is refused where it is opened.
    pub(super) fn relative(&self, path: &str) -> Result<PathBuf, ErrorObject> {
        if path.is_empty() || path.len() > MAX_PATH_BYTES || path.contains('\0') {
            let shown = path.chars().take(64).collect::<String>();
            return Err(refusal::refused(format!(
                "'{}' is no path: it has 1 to {MAX_PATH_BYTES} bytes, and none is 0",
                shown.escape_debug()
            )));
        }
        let path_ = Path::new(path);
        if path_.is_relative() {
            return Ok(path_.to_owned());
        }
        let below = [&self.root, &self.real].into_iter().find_map(|it| path_.strip_prefix(it).ok());
        match below {
            // The folder itself.
            Some(below) if below.as_os_str().is_empty() => Ok(PathBuf::from(".")),
            Some(below) => Ok(below.to_owned()),
            None => Err(refusal::outside(path)),
        }
    }

    /// Where a file is to be written. Links are followed, as far as they stay within; folders that are missing are made.
    pub(super) fn target(&self, relative: &Path) -> io::Result<Location> {
        let whole = match self.dir.canonicalize(relative) {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.missing(relative)?;
                relative.to_owned()
            }
            Err(error) => return Err(error),
        };
        // What ends in `..` or is the folder itself names no file.
        let Some(Component::Normal(name)) = whole.components().next_back() else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        let parent = whole.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = self.dir.open_dir(parent.unwrap_or(Path::new(".")))?;
        Ok(Location { folder, name: name.to_owned() })
    }

    /// Makes the folders on the way to a file that does not exist. A link that leads nowhere is no file that does not exist: nobody knows where it would lead.
    fn missing(&self, relative: &Path) -> io::Result<()> {
        if self.dir.symlink_metadata(relative).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is a link that leads nowhere",
            ));
        }
        match relative.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => self.dir.create_dir_all(parent),
            _ => Ok(()),
        }
    }
}
