//! Where a user's server is found.

use std::fs::{self, DirBuilder, Metadata, Permissions};
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
        // Whichever way leads to the folder, there is one socket. Before there is a folder, nobody listens.
        let folder = fs::canonicalize(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let name = Sha256::digest(folder.as_os_str().as_encoded_bytes());
        let name: String = name.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        std::env::temp_dir().join(format!("trilogue-{}", user())).join(name + ".sock")
    }

    /// Makes the folders, closes them to everybody else, and gives the socket's path.
    ///
    /// # Errors
    /// When a folder cannot be made, or is another user's.
    pub fn make(&self) -> io::Result<PathBuf> {
        token_file::make_private_dir(&self.folder)?;
        // The user chose this folder, and may have put a link in its place.
        keep_private(&self.folder, &fs::metadata(&self.folder)?)?;
        let socket = self.socket();
        if let Some(folder) = socket.parent().filter(|folder| *folder != self.folder) {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                // Everybody may put things there: a link would lead where somebody else wants.
                _ => keep_private(folder, &fs::symlink_metadata(folder)?)?,
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
fn keep_private(folder: &Path, found: &Metadata) -> io::Result<()> {
    let refused = |why: String| {
        let message = format!("{} {why}", folder.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    };
    if found.is_symlink() {
        return refused("is a link, where only a folder is safe: remove it".to_owned());
    }
    if !found.is_dir() {
        return refused(format!("is no folder (mode {:o})", found.mode()));
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

    #[test]
    fn a_state_folder_may_be_a_link_wherever_it_lies() {
        let outer = tempfile::tempdir().unwrap();
        // Below the folder for temporary files, as a home in a test or a container is.
        assert!(outer.path().starts_with(std::env::temp_dir()));
        let real = outer.path().join("real");
        fs::create_dir(&real).unwrap();
        let link = outer.path().join("link");
        symlink(&real, &link).unwrap();
        Place::at(link.clone()).make().unwrap();
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o700);
        Place::at(link.join("below")).make().unwrap();
        assert!(real.join("below").is_dir());
        // Both ways lead to one socket, also where that lies elsewhere.
        let deep = |start: &Path| Place::at(start.join("x".repeat(110)));
        deep(&real).make().unwrap();
        assert_eq!(deep(&real).socket(), deep(&link).socket());
    }

    #[test]
    fn a_link_in_the_place_of_the_folder_for_sockets_is_refused_and_named() {
        let outer = tempfile::tempdir().unwrap();
        let link = outer.path().join("link");
        symlink(outer.path(), &link).unwrap();
        let refused = keep_private(&link, &fs::symlink_metadata(&link).unwrap()).unwrap_err();
        assert!(refused.to_string().contains("is a link"), "{refused}");
        let file = outer.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = keep_private(&file, &fs::symlink_metadata(&file).unwrap()).unwrap_err();
        assert!(refused.to_string().contains("is no folder (mode 100"), "{refused}");
    }
}
