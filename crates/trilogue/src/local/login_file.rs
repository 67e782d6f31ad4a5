//! The tokens that a user has saved for servers elsewhere, in files that only the user can read: one for each scheme, host and port.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use url::Url;

use super::token_file;

/// The token for the server at this address, if one was saved.
///
/// # Errors
/// When the file cannot be read, or others can read it too.
pub fn find(state: &Path, url: &Url) -> io::Result<Option<String>> {
    match path(state, url) {
        Some(path) => token_file::read(&path),
        None => Ok(None),
    }
}

/// Saves the token for the server at this address, in place of an earlier one.
///
/// # Errors
/// When the folder or the file cannot be written, or the address names no host.
pub fn save(state: &Path, url: &Url, token: &str) -> io::Result<()> {
    let path = path(state, url).ok_or(io::ErrorKind::InvalidInput)?;
    token_file::write(&path, token)
}

/// Removes the token for the server at this address. Returns whether there was one.
///
/// # Errors
/// When the file cannot be removed.
pub fn forget(state: &Path, url: &Url) -> io::Result<bool> {
    let path = path(state, url).ok_or(io::ErrorKind::InvalidInput)?;
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A token is for one scheme too: one that was saved for TLS is never sent without it.
fn path(state: &Path, url: &Url) -> Option<PathBuf> {
    let host = url.host_str()?.to_ascii_lowercase().replace([':', '[', ']', '/'], "_");
    let name = format!("{}_{host}_{}", url.scheme(), url.port_or_known_default()?);
    Some(state.join("logins").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_saved_for_one_server() {
        let state = tempfile::tempdir().unwrap();
        let url = |text: &str| Url::parse(text).unwrap();
        let find = |text: &str| find(state.path(), &url(text)).unwrap();
        save(state.path(), &url("https://agents.example.com/base"), "tril_x").unwrap();
        for (address, expected) in [
            ("https://agents.example.com", Some("tril_x")),
            ("https://AGENTS.example.com:443/", Some("tril_x")),
            ("http://agents.example.com:443", None),
            ("https://agents.example.com:8443", None),
            ("https://example.com", None),
        ] {
            assert_eq!(find(address).as_deref(), expected, "{address}");
        }
        assert!(forget(state.path(), &url("https://agents.example.com")).unwrap());
        assert!(!forget(state.path(), &url("https://agents.example.com")).unwrap());
        assert_eq!(find("https://agents.example.com"), None);
    }
}
