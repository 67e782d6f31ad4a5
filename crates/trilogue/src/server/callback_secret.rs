//! The secret from which the keys of callbacks are derived if the configuration names none. It is generated once, into a file that only its user can read.

use std::path::{Path, PathBuf};
use std::{fs, io};

use trilogue_gateway::{CallbackOwner, CallbackSecrets};

use crate::config::Secret;
use crate::local::token_file;
use crate::server::first_token;

/// The file of the secret in the folder of per-user state.
#[must_use]
pub fn path(state: &Path) -> PathBuf {
    state.join("callback_secret")
}

/// Reads the secret; returns `None` if it does not exist yet.
///
/// # Errors
/// When the file cannot be read, others can read it too, or it does not hold a secret.
pub fn read(state: &Path) -> io::Result<Option<Secret>> {
    let file = path(state);
    let Some(text) = token_file::read(&file)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        let message = format!("{} does not hold a callback secret", file.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

/// The keys that sign callbacks to this address in the name of the user who runs the server.
///
/// # Errors
/// Never; the user's name is checked like any other.
pub fn keys_of_owner(secret: &Secret, url: &str) -> Result<Vec<[u8; 32]>, trilogue_domain::Error> {
    let (tenant, principal) = first_token::owner()?;
    Ok(CallbackSecrets::new([secret.key()]).keys(&CallbackOwner { tenant, principal }, url))
}

/// Reads the secret, and generates it if it does not exist. The secret is never replaced, because receivers verify with values derived from it.
pub(crate) fn ensure(state: &Path) -> io::Result<Secret> {
    if let Some(secret) = read(state)? {
        return Ok(secret);
    }
    let secret = Secret::generate()
        .ok_or_else(|| io::Error::other("the system provides no random bytes"))?;
    let (file, draft) =
        (path(state), state.join(format!("callback_secret.{}", uuid::Uuid::new_v4())));
    token_file::write(&draft, &secret.reveal())?;
    // Another server of this user may have been faster: its secret wins.
    match fs::hard_link(&draft, &file) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::rename(&draft, &file)?,
        _ => fs::remove_file(&draft)?,
    }
    read(state)?.ok_or_else(|| io::Error::other("the secret's file has disappeared"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_is_made_once_and_kept_private() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(read(state.path()).unwrap(), None);
        let made = ensure(state.path()).unwrap();
        assert_eq!(ensure(state.path()).unwrap(), made);
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 1, "no draft is left behind");
        let file = path(state.path());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(ensure(state.path()).unwrap_err().to_string().contains("644"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&file, "tril_x").unwrap();
        let error = ensure(state.path()).unwrap_err().to_string();
        assert!(error.contains("does not hold") && !error.contains("tril_x"), "{error}");
    }

    #[test]
    fn servers_that_start_together_sign_with_one_secret() {
        for _ in 0..20 {
            let state = tempfile::tempdir().unwrap();
            let start = std::sync::Barrier::new(4);
            let ensured = || {
                start.wait();
                ensure(state.path()).unwrap()
            };
            let secrets = std::thread::scope(|scope| {
                let servers: Vec<_> = (0..4).map(|_| scope.spawn(ensured)).collect();
                servers.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
            });
            assert!(secrets.iter().all(|secret| *secret == secrets[0]));
        }
    }
}
