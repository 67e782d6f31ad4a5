//! What a server leaves for those who look for it.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::token_file;

/// The longest record that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// What a server says of itself in its user's place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Its process.
    pub pid: u32,
    /// Names this life of it.
    pub life: String,
    /// The socket that it listens on.
    pub socket: PathBuf,
    /// Where it listens for HTTP.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Its version.
    pub version: String,
    /// Whether it was started because somebody needed one, and not by its user.
    #[serde(default)]
    pub on_demand: bool,
}

// === impl Record ===

impl Record {
    /// Reads the record in a file. `None` where there is none that can be understood: a server may be about to write it.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let mut text = Vec::new();
        File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Where programs on this machine reach its HTTP interface: the first of its addresses. `None` for a server that has not said yet where it listens.
    #[must_use]
    pub fn url(&self) -> Option<String> {
        let mut address: SocketAddr = self.addresses.first()?.parse().ok()?;
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        Some(format!("http://{address}"))
    }

    /// Writes the record, whole or not at all.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        token_file::write(path, &serde_json::to_string(self)?)
    }

    /// Removes the record of this life, and no other's.
    pub(super) fn remove(&self, path: &Path) {
        if Self::read(path).is_some_and(|found| found.life == self.life) {
            // One that stays is overwritten by the next server.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reached_where_it_listens_first() {
        let at = |addresses: &[&str]| {
            let record = serde_json::json!({
                "pid": 1, "life": "a", "socket": "/s", "version": "1", "addresses": addresses,
            });
            serde_json::from_value::<Record>(record).unwrap().url()
        };
        assert_eq!(at(&[]), None);
        assert_eq!(at(&["nonsense"]), None);
        let shown = |url: &str| Some(url.to_owned());
        assert_eq!(at(&["127.0.0.1:7878", "[::1]:7878"]), shown("http://127.0.0.1:7878"));
        assert_eq!(at(&["0.0.0.0:80"]), shown("http://127.0.0.1:80"));
        assert_eq!(at(&["[::]:80"]), shown("http://[::1]:80"));
        assert_eq!(at(&["10.0.0.1:80"]), shown("http://10.0.0.1:80"));
    }
}
