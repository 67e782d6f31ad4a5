//! Connections that are lost without any message, and lines that are too long.

use std::time::Duration;

use tokio::time::Instant;
use trilogue_wire::jsonrpc::{self, Code, ErrorObject, Oversize};

use super::Proxy;

/// How many servers in a row may end while a request is the first open one. Then it counts as the cause.
const MAX_SERVERS: u32 = 3;
/// The same for connections, if the server stays: usually the network is the cause.
const MAX_FAILURES: u32 = 16;
/// A request that crashes the server does so within this time. Longer connections were lost for another reason: a turn may be silent for hours.
const FAILURE_WINDOW: Duration = Duration::from_secs(10);

/// Connections in a row that were lost early without any message.
#[derive(Debug, Default)]
pub(super) struct ReconnectFailures {
    /// Whether the current connection brought a message for the editor.
    pub(super) has_message: bool,
    since: Option<Instant>,
    count: u32,
    /// The server of the current connection, or of the last one.
    life: String,
    suspect: Option<Suspect>,
}

/// The first request that was open at the last failures.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    number: u64,
    /// How many connections in a row failed with it.
    failures: u32,
    /// How many servers these connections reached.
    servers: u32,
}

// === impl ReconnectFailures ===

impl ReconnectFailures {
    pub(super) fn begin(&mut self, life: &str, now: Instant) {
        (self.has_message, self.since) = (false, Some(now));
        if self.life != life {
            life.clone_into(&mut self.life);
            if let Some(suspect) = &mut self.suspect {
                suspect.servers += 1;
            }
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    fn is_failure(&self, now: Instant) -> bool {
        !self.has_message
            && self.since.is_some_and(|since| now.duration_since(since) < FAILURE_WINDOW)
    }
}

// === impl Proxy ===

impl Proxy {
    /// Fails the request that seems to crash servers: each further server would get it again.
    pub(super) fn blame(&mut self, now: Instant) {
        let failures = &mut self.failures;
        if !failures.is_failure(now) {
            (failures.count, failures.suspect) = (0, None);
            return;
        }
        failures.count = failures.count.saturating_add(1);
        let Some((number, id)) = self.journal.first_sent() else { return failures.suspect = None };
        let mut suspect = failures
            .suspect
            .filter(|suspect| suspect.number == number)
            .unwrap_or(Suspect { number, failures: 0, servers: 1 });
        suspect.failures += 1;
        failures.suspect = Some(suspect);
        if suspect.servers >= MAX_SERVERS || suspect.failures >= MAX_FAILURES {
            let message = "the connection to the server broke each time this was sent";
            self.close_request(&id, None);
            self.write_error(&id, &ErrorObject::new(Code::INTERNAL_ERROR, message));
        }
    }

    /// The limit that a line exceeded since the last call.
    pub(in super::super) fn take_too_long(&mut self) -> Option<usize> {
        self.too_long.take()
    }

    /// Drops a line of the server that is too long, and fails its request on either side.
    pub(super) fn too_long(&mut self, oversize: &Oversize) {
        self.too_long = Some(oversize.limit);
        let invalid = oversize.invalid();
        if let Some(id) = invalid.answers() {
            self.fail(id, &invalid.error());
        } else if let Some((id, error)) = invalid.reply().filter(|(id, _)| !id.is_null()) {
            let mut line = Vec::new();
            jsonrpc::write_error(&mut line, &id, &error);
            self.write_server(&line);
        }
    }
}
