//! The folder of a user's server.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::local::token_file;

const OTHERS: u32 = 0o077;

/// The folder of a user's server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserServerDir {
    folder: PathBuf,
}

// === impl UserServerDir ===

impl UserServerDir {
    /// The state folder of the user who runs this process.
    ///
    /// # Errors
    /// When neither `XDG_STATE_HOME` nor `HOME` is set.
    pub fn of_user() -> io::Result<Self> {
        token_file::state_dir().map(Self::at)
    }

    /// The server that uses this folder.
    #[must_use]
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Its path.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file that the server keeps locked.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.folder.join("server.lock")
    }

    /// The file that a program keeps locked while it starts a server.
    #[must_use]
    pub fn start_lock(&self) -> PathBuf {
        self.folder.join("server.start.lock")
    }

    /// The server's record.
    #[must_use]
    pub fn record(&self) -> PathBuf {
        self.folder.join("server.json")
    }

    /// The log of a server that was started on demand.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    /// The socket: in the folder, or, if that path is too long for a socket, in a private folder for temporary files.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        let socket = self.folder.join("server.sock");
        if SocketAddr::from_pathname(&socket).is_ok() {
            return socket;
        }
        // Every path to the folder gives the same socket. Without the folder no server runs.
        let folder = fs::canonicalize(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let name = Sha256::digest(folder.as_os_str().as_encoded_bytes());
        let name: String = name.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        std::env::temp_dir().join(format!("trilogue-{}", user())).join(name + ".sock")
    }

    /// Creates the private folders. Returns the socket's path.
    ///
    /// # Errors
    /// When a folder cannot be created or belongs to another user.
    pub fn create(&self) -> io::Result<PathBuf> {
        token_file::make_private_dir(&self.folder)?;
        // The user chose this folder, so it may be a link.
        keep_private(&self.folder, &fs::metadata(&self.folder)?)?;
        let socket = self.socket();
        if let Some(folder) = socket.parent().filter(|folder| *folder != self.folder) {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                // Other users can create links here.
                _ => keep_private(folder, &fs::symlink_metadata(folder)?)?,
            }
        }
        Ok(socket)
    }
}

/// The number of the user who runs this process.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Refuses anything but a folder of the user, and removes the rights of other users.
fn keep_private(folder: &Path, found: &Metadata) -> io::Result<()> {
    let refused = |why: String| {
        let message = format!("{} {why}", folder.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    };
    if found.is_symlink() {
        return refused("is a link, and only a folder is safe: remove it".to_owned());
    }
    if !found.is_dir() {
        return refused(format!("is not a folder (mode {:o})", found.mode()));
    }
    if found.uid() != user() {
        return refused(format!("belongs to user {}, and this is user {}", found.uid(), user()));
    }
    if found.mode() & OTHERS != 0 {
        fs::set_permissions(folder, Permissions::from_mode(found.mode() & 0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_socket_is_in_the_folder_or_where_its_path_fits() {
        let short = UserServerDir::at(PathBuf::from("/run/x"));
        assert_eq!(short.socket(), Path::new("/run/x/server.sock"));
        let long =
            |end: &str| UserServerDir::at(PathBuf::from(format!("/run/{}{end}", "x".repeat(120))));
        let socket = long("a").socket();
        assert!(SocketAddr::from_pathname(&socket).is_ok(), "{}", socket.display());
        assert_eq!(socket, long("a").socket());
        assert_ne!(socket, long("b").socket());
    }

    #[test]
    fn a_folder_is_private() {
        let outer = tempfile::tempdir().unwrap();
        let dir = UserServerDir::at(outer.path().join("a/b"));
        fs::create_dir_all(dir.folder()).unwrap();
        fs::set_permissions(dir.folder(), Permissions::from_mode(0o755)).unwrap();
        dir.create().unwrap();
        assert_eq!(fs::metadata(dir.folder()).unwrap().mode() & 0o777, 0o700);
        fs::write(outer.path().join("file"), "").unwrap();
        assert!(UserServerDir::at(outer.path().join("file")).create().is_err());
    }

    #[test]
    fn a_state_folder_may_be_a_link() {
        let outer = tempfile::tempdir().unwrap();
        // Below the folder for temporary files, as a home in a test or a container is.
        assert!(outer.path().starts_with(std::env::temp_dir()));
        let real = outer.path().join("real");
        fs::create_dir(&real).unwrap();
        let link = outer.path().join("link");
        symlink(&real, &link).unwrap();
        UserServerDir::at(link.clone()).create().unwrap();
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o700);
        UserServerDir::at(link.join("below")).create().unwrap();
        assert!(real.join("below").is_dir());
        // Both paths give one socket, also outside of the folder.
        let deep = |start: &Path| UserServerDir::at(start.join("x".repeat(110)));
        deep(&real).create().unwrap();
        assert_eq!(deep(&real).socket(), deep(&link).socket());
    }

    #[test]
    fn a_link_instead_of_the_socket_folder_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let link = outer.path().join("link");
        symlink(outer.path(), &link).unwrap();
        let refused = keep_private(&link, &fs::symlink_metadata(&link).unwrap()).unwrap_err();
        assert!(refused.to_string().contains("is a link"), "{refused}");
        let file = outer.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = keep_private(&file, &fs::symlink_metadata(&file).unwrap()).unwrap_err();
        assert!(refused.to_string().contains("is not a folder (mode 100"), "{refused}");
    }
}
