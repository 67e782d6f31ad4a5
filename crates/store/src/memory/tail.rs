//! Readers that wait for commits.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use trilogue_domain::ThreadKey;

use super::{Inner, KeyMap};
use crate::port::{Tail, TailGuard};
use crate::record::Frame;

/// The threads that somebody reads along.
#[derive(Debug, Default)]
pub(super) struct Tails {
    attached: KeyMap<ThreadKey, Attached>,
    /// How many of them there have been.
    count: u64,
}

#[derive(Debug)]
struct Attached {
    /// Tells it from one of the same thread that came later.
    number: u64,
    sender: Arc<watch::Sender<u64>>,
    readers: usize,
    /// Frames whose decoded events the readers share, by first number.
    shared: BTreeMap<u64, Arc<Frame>>,
    /// The bytes of the shared frames, as they are stored.
    bytes: usize,
}

/// The most bytes of frames that the readers of a thread share: the newest.
const SHARED_BYTES: usize = 1024 * 1024;
/// At least this many frames are shared, unless they are more than [`FEW_BYTES`].
const SHARED_FRAMES: usize = 4;
/// The most bytes of the fewest frames; the newest is shared whatever its size.
const FEW_BYTES: usize = 8 * 1024 * 1024;

/// Detaches one reader.
struct Guard {
    inner: Arc<Inner>,
    thread: ThreadKey,
    number: u64,
}

// === impl Tails ===

impl Tails {
    /// Who is to be woken when this thread changes.
    pub(super) fn of(&self, thread: ThreadKey) -> Option<Arc<watch::Sender<u64>>> {
        self.attached.get(&thread).map(|attached| Arc::clone(&attached.sender))
    }

    /// Notes a frame that was just written, for readers that will ask for it.
    pub(super) fn keep(&mut self, thread: ThreadKey, frame: &Arc<Frame>) {
        if let Some(attached) = self.attached.get_mut(&thread) {
            attached.put(Arc::clone(frame));
        }
    }

    /// The frame to hand out: one that all attached readers share, or one of the caller's own.
    pub(super) fn shared(&mut self, thread: ThreadKey, frame: &Frame) -> Arc<Frame> {
        let Some(attached) = self.attached.get_mut(&thread) else {
            return Arc::new(frame.undecoded());
        };
        if let Some(shared) = attached.shared.get(&frame.first()) {
            return Arc::clone(shared);
        }
        let fresh = Arc::new(frame.undecoded());
        attached.put(Arc::clone(&fresh));
        fresh
    }

    /// Forgets a frame that was removed.
    pub(super) fn forget(&mut self, thread: ThreadKey, first: u64) {
        if let Some(attached) = self.attached.get_mut(&thread)
            && let Some(frame) = attached.shared.remove(&first)
        {
            attached.bytes -= frame.bytes().len();
        }
    }

    /// Lets go of a thread that was removed: its readers learn that nothing more comes.
    pub(super) fn end(&mut self, thread: ThreadKey) {
        self.attached.remove(&thread);
    }

    /// The bytes of all shared frames.
    pub(super) fn bytes(&self) -> usize {
        self.attached.values().map(|attached| attached.bytes).sum()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.attached.is_empty()
    }
}

// === impl Attached ===

impl Attached {
    /// Adds a frame and lets the oldest go while there are too many.
    fn put(&mut self, frame: Arc<Frame>) {
        self.bytes += frame.bytes().len();
        if let Some(old) = self.shared.insert(frame.first(), frame) {
            self.bytes -= old.bytes().len();
        }
        while self.bytes > SHARED_BYTES && self.shared.len() > 1 {
            if self.shared.len() <= SHARED_FRAMES && self.bytes <= FEW_BYTES {
                return;
            }
            let Some((_, oldest)) = self.shared.pop_first() else { return };
            self.bytes -= oldest.bytes().len();
        }
    }
}

// === impl Inner ===

impl Inner {
    /// Attaches a reader.
    pub(super) fn attach(self: &Arc<Self>, thread: ThreadKey) -> Tail {
        let mut state = self.lock();
        let last = state.threads.get(&thread).map_or(0, |thread| thread.last);
        let Tails { attached, count } = &mut state.tails;
        let attached = attached.entry(thread).or_insert_with(|| Attached {
            number: next(count),
            sender: Arc::new(watch::Sender::new(last)),
            readers: 0,
            shared: BTreeMap::new(),
            bytes: 0,
        });
        attached.readers += 1;
        let committed = attached.sender.subscribe();
        let number = attached.number;
        drop(state);
        Tail { committed, guard: Box::new(Guard { inner: Arc::clone(self), thread, number }) }
    }
}

// === impl Guard ===

impl TailGuard for Guard {}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        // What was read may be gone, and with it what stood here for its readers.
        if let Some(attached) = state.tails.attached.get_mut(&self.thread)
            && attached.number == self.number
        {
            attached.readers -= 1;
            if attached.readers == 0 {
                state.tails.attached.remove(&self.thread);
            }
        }
    }
}

fn next(count: &mut u64) -> u64 {
    *count += 1;
    *count
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.thread).finish()
    }
}
