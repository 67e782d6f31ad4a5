//! Where a user's server is found.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::token_file;

/// Mode bits of everybody but the user.
const OTHERS: u32 = 0o077;

/// The folder in which a user's server is found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    folder: PathBuf,
}

// === impl Place ===

impl Place {
    /// The place of the user who runs this process: the per-user state folder.
    ///
    /// # Errors
    /// When there is no such folder, because neither `XDG_STATE_HOME` nor `HOME` names one.
    pub fn of_user() -> io::Result<Self> {
        token_file::state_dir().map(Self::at)
    }

    /// The place that this folder is.
    #[must_use]
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the server holds locked for its life.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.folder.join("server.lock")
    }

    /// What is held locked by whoever starts a server.
    #[must_use]
    pub fn start_lock(&self) -> PathBuf {
        self.folder.join("server.start.lock")
    }

    /// What the server says of itself.
    #[must_use]
    pub fn record(&self) -> PathBuf {
        self.folder.join("server.json")
    }

    /// What a server that was started on demand writes.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    /// Where the server listens: in the folder, or where the folder's path is too long for a socket, in a private folder below the
    /// one for temporary files. Nothing is made.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        let socket = self.folder.join("server.sock");
        if SocketAddr::from_pathname(&socket).is_ok() {
            return socket;
        }
        let name = Sha256::digest(self.folder.as_os_str().as_encoded_bytes());
        let name: String = name.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        std::env::temp_dir().join(format!("trilogue-{}", user())).join(name + ".sock")
    }

    /// Makes the folders, closes them to everybody else, and gives the socket's path.
    ///
    /// # Errors
    /// When a folder cannot be made, or is another user's.
    pub fn make(&self) -> io::Result<PathBuf> {
        token_file::make_private_dir(&self.folder)?;
        keep_private(&self.folder)?;
        let socket = self.socket();
        if let Some(folder) = socket.parent().filter(|folder| *folder != self.folder) {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => keep_private(folder)?,
            }
        }
        Ok(socket)
    }
}

/// The user who runs this process, as a number.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Refuses what is no folder of the user's, and takes everybody else's rights away.
fn keep_private(folder: &Path) -> io::Result<()> {
    // A link in the folder for temporary files may be anybody's.
    let found = fs::symlink_metadata(folder)?;
    let found = if found.is_symlink() && !folder.starts_with(std::env::temp_dir()) {
        fs::metadata(folder)?
    } else {
        found
    };
    if !found.is_dir() || found.uid() != user() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} is no folder of this user's", folder.display()),
        ));
    }
    if found.mode() & OTHERS != 0 {
        fs::set_permissions(folder, Permissions::from_mode(found.mode() & 0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_lies_in_the_folder_or_where_its_path_fits() {
        let short = Place::at(PathBuf::from("/run/x"));
        assert_eq!(short.socket(), Path::new("/run/x/server.sock"));
        let long = |end: &str| Place::at(PathBuf::from(format!("/run/{}{end}", "x".repeat(120))));
        let socket = long("a").socket();
        assert!(SocketAddr::from_pathname(&socket).is_ok(), "{}", socket.display());
        assert_eq!(socket, long("a").socket());
        assert_ne!(socket, long("b").socket());
    }

    #[test]
    fn a_folder_is_closed_to_everybody_else() {
        let outer = tempfile::tempdir().unwrap();
        let place = Place::at(outer.path().join("a/b"));
        fs::create_dir_all(place.folder()).unwrap();
        fs::set_permissions(place.folder(), Permissions::from_mode(0o755)).unwrap();
        place.make().unwrap();
        assert_eq!(fs::metadata(place.folder()).unwrap().mode() & 0o777, 0o700);
        fs::write(outer.path().join("file"), "").unwrap();
        assert!(Place::at(outer.path().join("file")).make().is_err());
    }
}
