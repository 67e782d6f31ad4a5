//! Whether this server is the one that the user's programs find.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{ClaimResult, ServerClaim, ServerRecord, UserServerDir};
use crate::config;

/// How long a server that was started on demand waits for the previous one to end.
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
    pub fn open(server: &config::Server) -> Self {
        if server.socket == config::Socket::Off {
            return Self::Off;
        }
        Self::of(UserServerDir::of_user().and_then(|dir| ServerClaim::take(&dir, false)))
    }

    /// Listens for a server that was started on demand. Waits for a previous one that is ending.
    #[must_use]
    pub fn open_on_demand(dir: &UserServerDir) -> Self {
        let begun = Instant::now();
        loop {
            let opened = Self::of(ServerClaim::take(dir, true));
            let Self::Taken(by) = &opened else { return opened };
            let socket = by.as_ref().map_or_else(|| dir.socket(), |record| record.socket.clone());
            if UnixStream::connect(socket).is_ok() || begun.elapsed() >= CLAIM_LIMIT {
                return opened;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    pub(crate) fn announce(&mut self, addresses: &[SocketAddr]) {
        let Self::Open(claim) = self else { return };
        if let Err(error) = claim.announce(addresses) {
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
                let who =
                    by.as_ref().map_or_else(String::new, |by| format!(" (process {})", by.pid));
                Some(format!(
                    "another server of this user{who} is the one that `trilogue connect` finds"
                ))
            }
            Self::Failed(error) => {
                Some(format!("`trilogue connect` does not find this server: {error}"))
            }
        }
    }
}
