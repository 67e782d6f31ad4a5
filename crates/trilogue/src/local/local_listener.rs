//! The socket of a server, and who else may have it.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{Claim, Claimed, Place, Record};
use crate::config;

/// How long a server that was started on demand waits for the end of the one before it.
const PATIENCE: Duration = Duration::from_secs(50);
/// How long to wait between two looks at it.
const LOOK: Duration = Duration::from_millis(20);

/// Whether the programs of the user find a server.
#[derive(Debug)]
pub enum Door {
    /// They find this one.
    Open(Claim),
    /// They find another one.
    Taken(Option<Record>),
    /// They were not to find it.
    Closed,
    /// They do not find it, because its place cannot be used.
    Broken(io::Error),
}

// === impl Door ===

impl Door {
    /// Claims the user's place, where the settings say so and it is free.
    #[must_use]
    pub fn take(server: &config::Server) -> Self {
        if server.socket == config::Socket::Off {
            return Self::Closed;
        }
        Self::of(Place::of_user().and_then(|place| Claim::take(&place, false)))
    }

    /// Claims the user's place for a server that was started on demand, and waits for one that is ending.
    #[must_use]
    pub fn take_on_demand(place: &Place) -> Self {
        let begun = Instant::now();
        loop {
            let door = Self::of(Claim::take(place, true));
            let Self::Taken(by) = &door else { return door };
            let socket = by.as_ref().map_or_else(|| place.socket(), |record| record.socket.clone());
            if UnixStream::connect(socket).is_ok() || begun.elapsed() >= PATIENCE {
                return door;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Says where the server listens for HTTP.
    pub(crate) fn announce(&mut self, addresses: &[SocketAddr]) {
        let Self::Open(claim) = self else { return };
        if let Err(error) = claim.announce(addresses) {
            tracing::warn!(%error, "the record of this server cannot be written");
        }
    }

    fn of(claimed: io::Result<Claimed>) -> Self {
        match claimed {
            Ok(Claimed::Held(claim)) => Self::Open(claim),
            Ok(Claimed::Taken(by)) => Self::Taken(by),
            Err(error) => Self::Broken(error),
        }
    }

    /// Why the programs of the user do not find this server, where it is not by choice.
    #[must_use]
    pub fn explain(&self) -> Option<String> {
        match self {
            Self::Open(_) | Self::Closed => None,
            Self::Taken(by) => {
                let who =
                    by.as_ref().map_or_else(String::new, |by| format!(" (process {})", by.pid));
                Some(format!(
                    "another server of this user{who} is the one that `trilogue connect` finds"
                ))
            }
            Self::Broken(error) => {
                Some(format!("`trilogue connect` does not find this server: {error}"))
            }
        }
    }
}
