//! The client's requests that are being processed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use trilogue_domain::lock;
use trilogue_wire::jsonrpc::Id;

use super::queue::SessionQueue;
use crate::http::receive::HeldBytes;

#[derive(Debug)]
pub(crate) struct OpenRequests {
    table: Mutex<RequestTable>,
    max_requests: usize,
    max_bytes: usize,
    /// Notified when one more request can be admitted.
    pub(crate) has_room: Notify,
}

/// Whether a request was admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Admitted,
    /// Too many requests are open; it can be admitted later.
    Full,
    /// A request with the same id is open.
    DuplicateId,
}

/// How to cancel an open request.
#[derive(Clone, Debug)]
pub(crate) enum CancelTarget {
    /// A prompt: cancelling ends its turn, and the response says so.
    Prompt { queue: Arc<SessionQueue>, token: CancellationToken },
    /// Any other request: cancelling drops its work.
    Other(CancellationToken),
}

#[derive(Debug, Default)]
struct RequestTable {
    by_id: HashMap<Id<'static>, OpenRequest>,
    /// The length of the requests' lines, in bytes.
    bytes: usize,
}

#[derive(Debug)]
struct OpenRequest {
    target: CancelTarget,
    /// The length of its line, in bytes.
    bytes: usize,
    /// Counts its line until the response, because the text of a prompt stays in memory while it waits.
    _held: Option<HeldBytes>,
}

// === impl OpenRequests ===

impl OpenRequests {
    /// Admits requests whose lines have at most this many bytes together.
    pub(crate) fn new(max_requests: usize, max_bytes: usize) -> Self {
        Self { table: Mutex::default(), max_requests, max_bytes, has_room: Notify::new() }
    }

    /// Admits a request whose line has this many bytes, and takes what counts them.
    pub(crate) fn admit(
        &self,
        id: &Id<'_>,
        bytes: usize,
        held: &mut Option<HeldBytes>,
        target: CancelTarget,
    ) -> Admission {
        let mut table = lock(&self.table);
        if table.by_id.contains_key(id) {
            return Admission::DuplicateId;
        }
        let has_room = table.bytes.saturating_add(bytes) <= self.max_bytes;
        if !has_room || table.by_id.len() >= self.max_requests {
            return Admission::Full;
        }
        table.bytes += bytes;
        let request = OpenRequest { target, bytes, _held: held.take() };
        table.by_id.insert(id.clone().into_owned(), request);
        Admission::Admitted
    }

    pub(crate) fn set_cancel_target(&self, id: &Id<'static>, target: CancelTarget) {
        if let Some(request) = lock(&self.table).by_id.get_mut(id) {
            request.target = target;
        }
    }

    pub(crate) fn cancel_target(&self, id: &Id<'_>) -> Option<CancelTarget> {
        lock(&self.table).by_id.get(id).map(|request| request.target.clone())
    }

    /// Removes a request. Returns `false` if it is not open, because a response was written before.
    pub(crate) fn close(&self, id: &Id<'static>) -> bool {
        let mut table = lock(&self.table);
        let closed = table.by_id.remove(id);
        table.bytes -= closed.as_ref().map_or(0, |request| request.bytes);
        drop(table);
        if closed.is_some() {
            self.has_room.notify_one();
        }
        closed.is_some()
    }
}
