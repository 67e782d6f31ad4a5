//! The record that leads programs to a server.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::local::token_file;

const MAX_BYTES: u64 = 64 * 1024;

/// A server's description of itself, in its user's folder.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Its process id.
    pub pid: u32,
    /// Identifies this start of it.
    pub life: String,
    /// The socket that it listens on.
    pub socket: PathBuf,
    /// Its HTTP addresses.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Its version.
    pub version: String,
    /// The store's URL.
    #[serde(default)]
    pub store: Option<String>,
    /// The file that it logs to, if it is one.
    #[serde(default)]
    pub log: Option<PathBuf>,
    /// Its configuration file, if it was started with one.
    #[serde(default)]
    pub config: Option<PathBuf>,
    /// The folder that it was started in: relative paths of its settings begin there.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// The arguments of its program.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// What started it.
    #[serde(default)]
    pub started_by: StartedBy,
}

/// What started a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartedBy {
    /// `trilogue demo`.
    Demo,
    /// `trilogue serve`.
    Serve,
    /// `trilogue connect` or `trilogue wrap`, because none ran.
    OnDemand,
    /// A program that uses the library.
    #[default]
    Library,
}

// === impl StartedBy ===

impl fmt::Display for StartedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Demo => "`trilogue demo`",
            Self::Serve => "`trilogue serve`",
            Self::OnDemand => "`trilogue connect` or `trilogue wrap`",
            Self::Library => "a program of yours",
        })
    }
}

// === impl ServerRecord ===

impl fmt::Display for ServerRecord {
    /// Names the server: its address, process, starter and store.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(url) = self.url() {
            write!(f, "{url} ")?;
        }
        write!(f, "(process {}, started by {}", self.pid, self.started_by)?;
        if let Some(store) = &self.store {
            write!(f, ", store {store}")?;
        }
        f.write_str(")")
    }
}

impl ServerRecord {
    /// Reads a record. `None` if the file is missing or incomplete: a server may be about to write it.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let mut text = Vec::new();
        File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The URL of its HTTP interface for programs on this machine. `None` before the server has written its addresses.
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

    /// Writes the record atomically.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        token_file::write(path, &serde_json::to_string(self)?)
    }

    /// Removes this record, unless another server has replaced it.
    pub(super) fn remove(&self, path: &Path) {
        if Self::read(path).is_some_and(|found| found.life == self.life) {
            // The next server overwrites a record that stays.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reached_at_its_first_address() {
        let at = |addresses: &[&str]| {
            let record = serde_json::json!({
                "pid": 1, "life": "a", "socket": "/s", "version": "1", "addresses": addresses,
            });
            serde_json::from_value::<ServerRecord>(record).unwrap().url()
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
