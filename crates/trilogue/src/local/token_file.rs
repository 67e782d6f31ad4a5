//! The token of a server, in a file that only its user can read.
//!
//! There is one file per address that a server listens on, in the per-user state folder.
//! The server writes it at its first start; the command line reads the one of the address it talks to.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

const MAX_BYTES: u64 = 4 * 1024;

/// The folder of per-user state: `$XDG_STATE_HOME/trilogue`, or `~/.local/state/trilogue`.
///
/// # Errors
/// When neither `XDG_STATE_HOME` nor `HOME` names an absolute path.
pub fn state_dir() -> io::Result<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(state) = absolute("XDG_STATE_HOME") {
        return Ok(state.join("trilogue"));
    }
    match absolute("HOME") {
        Some(home) => Ok(home.join(".local/state/trilogue")),
        None => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "neither XDG_STATE_HOME nor HOME names a folder",
        )),
    }
}

/// Creates a folder with mode 700, and its missing parents.
///
/// # Errors
/// When it cannot be created, or belongs to another user.
pub fn make_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    check_owner(path)
}

/// Refuses a folder of another user, because its owner can read and replace the secrets in it. Accepts a folder that does not
/// exist.
///
/// # Errors
/// When it belongs to another user.
pub fn check_owner(path: &Path) -> io::Result<()> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let user = rustix::process::geteuid().as_raw();
    if found.uid() == user {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{} belongs to user {}, and this is user {user}", path.display(), found.uid()),
    ))
}

/// The token file of the server that listens on this address.
#[must_use]
pub fn path(state: &Path, address: SocketAddr) -> PathBuf {
    let host = address.ip().to_string().replace(':', "_");
    state.join("tokens").join(format!("{host}-{}", address.port()))
}

/// Returns the token for this address or for the wildcard address, or `None` if neither has one.
///
/// # Errors
/// When the file cannot be read, or others can read it too.
pub fn find(state: &Path, address: SocketAddr) -> io::Result<Option<String>> {
    let wildcard = match address.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    for ip in [address.ip(), wildcard] {
        if let Some(token) = read(&path(state, SocketAddr::new(ip, address.port())))? {
            return Ok(Some(token));
        }
    }
    Ok(None)
}

/// Reads a token file; returns `None` if it does not exist.
///
/// # Errors
/// When the file cannot be read, or others can read it too.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} has mode {mode:o}: others can read the token in it", path.display()),
        ));
    }
    if metadata.len() > MAX_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is not a token file: it has {} bytes", path.display(), metadata.len()),
        ));
    }
    let text = fs::read_to_string(path)?;
    Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty()))
}

/// Writes a token file atomically; only its user can ever read it.
///
/// # Errors
/// When the folder or the file cannot be written.
pub fn write(path: &Path, token: &str) -> io::Result<()> {
    let Some(folder) = path.parent() else { return Err(io::ErrorKind::InvalidInput.into()) };
    make_private_dir(folder)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", uuid::Uuid::new_v4().simple()));
    let draft = folder.join(name);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(token.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&draft, path)
    })();
    if written.is_err() {
        // The draft holds a secret: remove it, and report the first error.
        let _ = fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> PathBuf {
        std::env::temp_dir().join(format!("trilogue-token-{}", uuid::Uuid::new_v4()))
    }

    #[test]
    fn a_token_is_private_and_reads_back_for_the_addresses_it_covers() {
        let state = folder();
        let any: SocketAddr = "0.0.0.0:7".parse().unwrap();
        let file = path(&state, any);
        write(&file, "tril_old").unwrap();
        write(&file, "tril_x").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let parent = file.parent().unwrap();
        assert_eq!(fs::metadata(parent).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(parent).unwrap().count(), 1);
        let found = |address: &str| find(&state, address.parse().unwrap()).unwrap();
        assert_eq!(found("127.0.0.1:7").as_deref(), Some("tril_x"));
        assert_eq!(found("127.0.0.1:8"), None);
        assert_eq!(found("[::1]:7"), None);
        fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        // Root can give a folder away; other users look at a folder of root.
        let folder = tempfile::tempdir().unwrap();
        let is_root = rustix::process::geteuid().is_root();
        let foreign = if is_root { folder.path() } else { Path::new("/") };
        if is_root {
            std::os::unix::fs::chown(foreign, Some(65_534), None).unwrap();
        }
        let error = check_owner(foreign).unwrap_err();
        assert!(error.to_string().contains("belongs to user"), "{error}");
        let error = make_private_dir(foreign).unwrap_err();
        assert!(error.to_string().contains("belongs to user"), "{error}");
        check_owner(&folder.path().join("missing")).unwrap();
        let own = tempfile::tempdir().unwrap();
        make_private_dir(&own.path().join("a/b")).unwrap();
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let state = folder();
        let file = path(&state, "[::1]:7".parse().unwrap());
        write(&file, "tril_x").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let error = find(&state, "[::1]:7".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("640"), "{error}");
        fs::remove_dir_all(state).unwrap();
    }
}
