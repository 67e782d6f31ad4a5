//! Whether this server is the one that the user's programs find.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{ClaimResult, ServerClaim, ServerRecord, StartedBy, UserServerDir};
use crate::config;

/// How long a user's server waits for the previous one to end.
const CLAIM_LIMIT: Duration = Duration::from_secs(50);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The local socket for the user's programs.
#[derive(Debug)]
pub enum LocalListener {
    /// This server listens on it.
    Open(ServerClaim),
    /// Another server listens on it.
    Taken(Option<ServerRecord>),
    /// The settings switch it off.
    Off,
    /// The folder or the socket is unusable.
    Failed(io::Error),
}

// === impl LocalListener ===

impl LocalListener {
    /// Listens on the socket, unless it is switched off or taken.
    #[must_use]
    pub fn open(server: &config::Server, started_by: StartedBy) -> Self {
        if server.socket == config::Socket::Off {
            return Self::Off;
        }
        Self::of(UserServerDir::of_user().and_then(|dir| ServerClaim::take(&dir, started_by)))
    }

    /// Listens for the user's one server. Waits for a previous one that is ending, and blocks meanwhile.
    #[must_use]
    pub fn open_in(dir: &UserServerDir, started_by: StartedBy) -> Self {
        let begun = Instant::now();
        loop {
            let opened = Self::of(ServerClaim::take(dir, started_by));
            let Self::Taken(by) = &opened else { return opened };
            let socket = by.as_ref().map_or_else(|| dir.socket(), |record| record.socket.clone());
            if UnixStream::connect(socket).is_ok() || begun.elapsed() >= CLAIM_LIMIT {
                return opened;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Adds the file that the server logs to. Programs read it in the record of the server.
    pub fn set_log(&mut self, log: &Path) {
        if let Self::Open(claim) = self {
            claim.set_log(log.to_owned());
        }
    }

    /// Adds the file from which the server has its settings. Local commands read it too.
    pub fn set_config(&mut self, file: &Path) {
        // Commands can run in another folder. A path that cannot be made absolute, or is not text, is of no use to them.
        let file = std::path::absolute(file).ok().filter(|file| file.to_str().is_some());
        if let (Self::Open(claim), Some(file)) = (self, file) {
            claim.set_config(file);
        }
    }

    pub(crate) fn announce(&mut self, addresses: &[SocketAddr], store: &str) {
        let Self::Open(claim) = self else { return };
        if let Err(error) = claim.announce(addresses, store) {
            tracing::warn!(%error, "the record of this server cannot be written");
        }
    }

    fn of(claimed: io::Result<ClaimResult>) -> Self {
        match claimed {
            Ok(ClaimResult::Held(claim)) => Self::Open(claim),
            Ok(ClaimResult::Taken(by)) => Self::Taken(by),
            Err(error) => Self::Failed(error),
        }
    }

    /// Why the user's programs do not find this server, unless it is switched off.
    #[must_use]
    pub fn explain(&self) -> Option<String> {
        match self {
            Self::Open(_) | Self::Off => None,
            Self::Taken(by) => {
                let who = by.as_ref().map_or_else(String::new, |by| format!(": {by}"));
                Some(format!("`trilogue connect` finds another server of this user{who}"))
            }
            Self::Failed(error) => {
                Some(format!("`trilogue connect` does not find this server: {error}"))
            }
        }
    }
}
