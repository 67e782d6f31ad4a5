//! The requests that wait for a thread's owner, bounded by count and by bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc::error::{SendError, TrySendError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::Envelope;
use crate::request::Options;

/// The unit in which requests are charged for room.
const ROOM_BYTES: usize = 1_024;

/// The sending end. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct OwnerInbox {
    requests: mpsc::Sender<QueuedRequest>,
    /// Room for bytes, in units of [`ROOM_BYTES`].
    room: Arc<Semaphore>,
    most: u32,
    /// The epoch under which the owner holds the thread; zero until it is loaded.
    epoch: Arc<AtomicU64>,
}

/// A request with its share of room. Dropping it frees the room.
#[derive(Debug)]
pub(crate) struct QueuedRequest {
    pub(super) request: Envelope,
    /// `None` for a request that needs no room.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

pub(crate) type OwnerRequests = mpsc::Receiver<QueuedRequest>;

// === impl OwnerInbox ===

impl OwnerInbox {
    pub(crate) fn new(options: &Options) -> (Self, OwnerRequests) {
        let (requests, receiver) = mpsc::channel(options.max_commands_per_thread);
        let most = options.max_command_bytes_per_thread / ROOM_BYTES;
        let most = u32::try_from(most.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        let room = Arc::new(Semaphore::new(most as usize));
        (Self { requests, room, most, epoch: Arc::default() }, receiver)
    }

    pub(super) fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Returns the epoch under which the owner holds the thread; `None` until it is loaded.
    pub(crate) fn epoch(&self) -> Option<u64> {
        Some(self.epoch.load(Ordering::Acquire)).filter(|epoch| *epoch > 0)
    }

    /// Sends a request. Waits while the inbox is full, by count or bytes. A request that is larger than the whole room waits until it is alone.
    /// Fails with the request if the owner is gone.
    pub(crate) async fn send(&self, request: Envelope) -> Result<(), SendError<Envelope>> {
        // Room comes before the place in the queue: a large request that waits for room does not hold up requests without room.
        let room = match self.permits(&request) {
            0 => None,
            // The semaphore is never closed: requests that an owner leaves behind return their room.
            permits => Arc::clone(&self.room).acquire_many_owned(permits).await.ok(),
        };
        let sent = self.requests.send(QueuedRequest { request, room }).await;
        sent.map_err(|SendError(queued)| SendError(queued.request))
    }

    /// Sends a small request unless the queue is full. Fails with the request.
    pub(crate) fn try_send_small(&self, request: Envelope) -> Result<(), TrySendError<Envelope>> {
        let sent = self.requests.try_send(QueuedRequest { request, room: None });
        sent.map_err(|error| match error {
            TrySendError::Full(queued) => TrySendError::Full(queued.request),
            TrySendError::Closed(queued) => TrySendError::Closed(queued.request),
        })
    }

    fn permits(&self, request: &Envelope) -> u32 {
        u32::try_from(request.bytes() / ROOM_BYTES).unwrap_or(u32::MAX).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;
    use trilogue_domain::{Json, RunKey};

    use super::*;
    use crate::request::ThreadPatch;
    use crate::step::Command;

    const ROOM: usize = 64 * ROOM_BYTES;

    fn channel() -> (OwnerInbox, OwnerRequests) {
        let options = Options {
            max_commands_per_thread: 4,
            max_command_bytes_per_thread: ROOM,
            ..Options::default()
        };
        OwnerInbox::new(&options)
    }

    fn patch(bytes: usize) -> Envelope {
        let values = Some(Json::from_value(&"x".repeat(bytes - 2).into()));
        let patch = Box::new(ThreadPatch { values, ..ThreadPatch::default() });
        let checkpoint =
            (trilogue_domain::CheckpointKey(1), trilogue_domain::CheckpointId::generate());
        let command = Box::new(Command::Patch { patch, from: None, checkpoint });
        Envelope::Change { command, reply: oneshot::channel().0 }
    }

    #[tokio::test]
    async fn what_waits_for_an_owner_is_bounded_in_bytes() {
        let (inbox, mut requests) = channel();
        inbox.send(patch(ROOM / 2)).await.unwrap();
        inbox.send(patch(ROOM / 2)).await.unwrap();
        let mut waiting = Box::pin(inbox.send(patch(2 * ROOM_BYTES)));
        assert!((&mut waiting).now_or_never().is_none());
        // Requests of a run's task need no room.
        inbox.try_send_small(Envelope::Progress { run: RunKey(1) }).unwrap();
        inbox.send(Envelope::Wake).await.unwrap();
        let taken = requests.recv().await.unwrap();
        assert!((&mut waiting).now_or_never().is_none(), "the owner is still at it");
        drop(taken);
        waiting.await.unwrap();
        // A request that is larger than the whole room waits until it is alone.
        let mut large = Box::pin(inbox.send(patch(2 * ROOM)));
        for _ in 0..4 {
            assert!((&mut large).now_or_never().is_none());
            drop(requests.recv().await.unwrap());
        }
        large.await.unwrap();
        assert!(requests.recv().await.unwrap().room.is_some());
    }

    #[tokio::test]
    async fn a_request_that_waits_for_an_owner_that_ends_comes_back() {
        let (inbox, mut requests) = channel();
        inbox.send(patch(ROOM)).await.unwrap();
        let mut waiting = Box::pin(inbox.send(patch(ROOM)));
        assert!((&mut waiting).now_or_never().is_none());
        requests.close();
        while requests.recv().await.is_some() {}
        let SendError(back) = waiting.await.unwrap_err();
        assert!(matches!(back, Envelope::Change { .. }));
    }
}
