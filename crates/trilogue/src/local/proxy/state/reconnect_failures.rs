//! Connections that tell nothing, and lines that are too long for one.

use std::time::Duration;

use tokio::time::Instant;
use trilogue_wire::jsonrpc::{self, Code, ErrorObject, Oversize};

use super::Proxy;

/// How often a request may be the first one open when a connection is lost soon on which nothing was told. Then it is taken for the reason.
const MAX_IN_VAIN: u32 = 3;
/// How soon servers end of a request that they cannot bear. A connection that lasted longer was lost for another reason: a turn may say nothing for hours.
const SOON: Duration = Duration::from_secs(10);

/// The connections that were lost.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The editor was told or asked something on this connection.
    pub(super) has_told: bool,
    /// When this connection began.
    since: Option<Instant>,
    /// How many were lost soon, one after the other, on which nothing was told.
    in_vain: u32,
    /// The first request that was open at the last of them, and at how many.
    suspect: Option<(u64, u32)>,
}

// === impl Losses ===

impl Losses {
    /// There is a connection.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.has_told, self.since) = (false, Some(now));
    }

    /// How many were lost soon, one after the other, on which nothing was told.
    pub(super) fn in_vain(&self) -> u32 {
        self.in_vain
    }

    /// Whether the connection that is lost now says something about what was asked on it.
    fn is_in_vain(&self, now: Instant) -> bool {
        !self.has_told && self.since.is_some_and(|since| now.duration_since(since) < SOON)
    }
}

// === impl Proxy ===

impl Proxy {
    /// Answers the request that servers seem to end of: each would be asked it again.
    pub(super) fn blame(&mut self, now: Instant) {
        let losses = &mut self.losses;
        if !losses.is_in_vain(now) {
            (losses.in_vain, losses.suspect) = (0, None);
            return;
        }
        losses.in_vain = losses.in_vain.saturating_add(1);
        let Some((number, id)) = self.book.first_sent() else { return losses.suspect = None };
        let before = losses.suspect.filter(|(suspect, _)| *suspect == number);
        let times = before.map_or(1, |(_, times)| times + 1);
        losses.suspect = Some((number, times));
        if times >= MAX_IN_VAIN {
            let message = "the connection to the server broke each time that this was asked";
            self.answered(&id, None);
            self.write_error(&id, &ErrorObject::new(Code::INTERNAL_ERROR, message));
        }
    }

    /// The limit of the longest line that was not passed on since the last time.
    pub(in super::super) fn take_too_long(&mut self) -> Option<usize> {
        self.too_long.take()
    }

    /// A line of the server's is too long to be passed on: who waits for it is told, on either side.
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
