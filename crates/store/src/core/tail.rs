//! The newest frames of threads with readers, and their wake-up.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{OnceCell, watch};
use trilogue_domain::ThreadKey;
use trilogue_domain::error::Result;
use trilogue_domain::lock;

use crate::port::{Range, Tail, TailGuard};
use crate::record::Frame;

/// The most bytes of frames that are kept for one thread, if it has more than [`THREAD_FRAMES`].
const THREAD_BYTES: usize = 1024 * 1024;
/// The fewest frames that are kept for one thread, unless they exceed [`FEW_BYTES`].
const THREAD_FRAMES: usize = 4;
/// The most bytes of the fewest frames. The newest frame is kept at any size.
const FEW_BYTES: usize = 8 * 1024 * 1024;

/// Tails of threads with readers. A thread without readers costs nothing here.
#[derive(Debug)]
pub(crate) struct Tails {
    /// The number of readers of all threads: a commit without any reader skips the lock.
    attached: AtomicUsize,
    bytes: AtomicUsize,
    max_bytes: usize,
    /// Counts all entries ever made.
    entries: AtomicU64,
    /// The store makes the keys, so a fast hash is safe: no client can choose colliding ones.
    threads: Mutex<HashMap<ThreadKey, ThreadTail, foldhash::fast::RandomState>>,
}

#[derive(Debug)]
struct ThreadTail {
    /// Distinguishes it from a later entry of the same thread.
    number: u64,
    readers: usize,
    log: Arc<TailLog>,
}

#[derive(Debug)]
struct TailLog {
    committed: watch::Sender<u64>,
    /// Whether `committed` is the end of the log, not only a first guess.
    is_known: AtomicBool,
    kept: Mutex<NewestFrames>,
}

#[derive(Debug, Default)]
struct NewestFrames {
    frames: VecDeque<Arc<Frame>>,
    bytes: usize,
    /// The mark of the append that ended the log, if another process published the newest frames.
    remote_stamp: Option<i64>,
}

struct ReaderGuard {
    tails: Arc<Tails>,
    thread: ThreadKey,
    entry: u64,
}

/// Reads in progress: an equal read waits for the first one and shares its result.
#[derive(Debug)]
pub(crate) struct SharedReads<K, T> {
    under_way: Mutex<HashMap<K, Arc<OnceCell<Result<T>>>>>,
}

// === impl Tails ===

impl Tails {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            attached: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            max_bytes,
            entries: AtomicU64::new(0),
            threads: Mutex::default(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Attaches a reader. For the first reader of a thread, it also returns the number of the new entry: the caller then looks up the end of the log and passes it to [`Self::set_end`].
    pub(crate) fn attach(self: &Arc<Self>, thread: ThreadKey) -> (Tail, Option<u64>) {
        // Count the reader before the look-up: otherwise a commit between the two would not wake it.
        self.attached.fetch_add(1, Ordering::SeqCst);
        let (entry, log, is_first) = {
            let mut threads = lock(&self.threads);
            let new = || ThreadTail::new(self.entries.fetch_add(1, Ordering::Relaxed));
            let entry = threads.entry(thread).or_insert_with(new);
            entry.readers += 1;
            (entry.number, Arc::clone(&entry.log), entry.readers == 1)
        };
        let committed = log.committed.subscribe();
        let guard = Box::new(ReaderGuard { tails: Arc::clone(self), thread, entry });
        (Tail { committed, guard }, is_first.then_some(entry))
    }

    /// Stores the end of a log, from a look-up for this entry, and wakes readers that did not know it.
    pub(crate) fn set_end(&self, thread: ThreadKey, entry: u64, last: u64) {
        // Ignore a look-up for an earlier entry: commits may have followed it that the later entry did not see.
        let log = lock(&self.threads).get(&thread).and_then(|tail| {
            let is_same = tail.number == entry;
            is_same.then(|| Arc::clone(&tail.log))
        });
        let Some(log) = log else { return };
        log.committed.send_if_modified(|committed| {
            let is_newer = *committed < last;
            *committed = last.max(*committed);
            is_newer
        });
        log.is_known.store(true, Ordering::Release);
    }

    /// Whether this thread has a reader, for example a client that has it open.
    pub(crate) fn has_readers(&self, thread: ThreadKey) -> bool {
        self.attached.load(Ordering::SeqCst) > 0 && lock(&self.threads).contains_key(&thread)
    }

    /// Keeps durable frames and wakes the thread's readers.
    pub(crate) fn publish_commit(&self, thread: ThreadKey, last: u64, frames: &[Arc<Frame>]) {
        self.keep(thread, frames);
        self.wake(thread, last);
    }

    /// Keeps durable frames. The frames of one thread arrive in order.
    pub(crate) fn keep(&self, thread: ThreadKey, frames: &[Arc<Frame>]) {
        if frames.is_empty() || self.attached.load(Ordering::SeqCst) == 0 {
            return;
        }
        let log = {
            // The last reader cannot detach under this lock. Detaching is what drops the frames.
            let threads = lock(&self.threads);
            let Some(tail) = threads.get(&thread) else { return };
            let mut kept = lock(&tail.log.kept);
            if !kept.is_continued_by(frames) {
                // Another process wrote between the kept frames and these.
                self.trim(&mut kept, 0, 0);
            }
            self.extend(&mut kept, frames);
            kept.remote_stamp = None;
            drop(kept);
            Arc::clone(&tail.log)
        };
        self.make_room(&log);
    }

    /// Takes what another process published about a thread: durable frames after which its log has this end and mark, or the end alone. Keeps the frames if they directly continue the log that is known here; otherwise readers read them from the store.
    pub(crate) fn receive_append(
        &self,
        thread: ThreadKey,
        last: u64,
        mark: i64,
        frames: &[Arc<Frame>],
    ) {
        if self.attached.load(Ordering::SeqCst) == 0 {
            return;
        }
        let log = {
            let threads = lock(&self.threads);
            let Some(tail) = threads.get(&thread) else { return };
            let log = Arc::clone(&tail.log);
            let mut kept = lock(&tail.log.kept);
            let committed = *log.committed.borrow();
            if last <= committed {
                return;
            }
            let is_next = frames.first().is_some_and(|frame| frame.first() == committed + 1)
                && frames.last().is_some_and(|frame| frame.last() == last);
            if is_next && log.is_known.load(Ordering::Acquire) && kept.is_continued_by(frames) {
                self.extend(&mut kept, frames);
                kept.remote_stamp = Some(mark);
            } else {
                // The kept frames end before that, so the next ones would not join them.
                self.trim(&mut kept, 0, 0);
            }
            log
        };
        self.make_room(&log);
        log.committed.send_modify(|committed| *committed = last.max(*committed));
    }

    /// Compares a log with its end and mark in the store. If the marks differ, forgets the frames that another process published: that process may have removed some since.
    pub(crate) fn reconcile_end(&self, thread: ThreadKey, last: u64, mark: i64) {
        let Some(log) = self.log(thread) else { return };
        {
            let mut kept = lock(&log.kept);
            let is_same_end = kept.frames.back().is_some_and(|frame| frame.last() == last);
            if is_same_end && kept.remote_stamp.is_some_and(|told| told != mark) {
                self.trim(&mut kept, 0, 0);
            }
        }
        self.advance_end(thread, last);
    }

    /// Forgets all frames that other processes published, because some of their messages were lost.
    pub(crate) fn forget_remote_frames(&self) {
        let logs: Vec<_> = lock(&self.threads).values().map(|tail| Arc::clone(&tail.log)).collect();
        for log in logs {
            let mut kept = lock(&log.kept);
            if kept.remote_stamp.is_some() {
                self.trim(&mut kept, 0, 0);
            }
        }
    }

    /// Keeps frames that were read from the store if they directly precede the kept ones. The caller must keep commits out meanwhile.
    pub(crate) fn prepend(&self, thread: ThreadKey, frames: &[Arc<Frame>]) {
        if self.attached.load(Ordering::SeqCst) == 0 {
            return;
        }
        let threads = lock(&self.threads);
        let Some(tail) = threads.get(&thread) else { return };
        let mut kept = lock(&tail.log.kept);
        let next = match kept.frames.front() {
            Some(oldest) => oldest.first(),
            None if tail.log.is_known.load(Ordering::Acquire) => {
                tail.log.committed.borrow().saturating_add(1)
            }
            None => return,
        };
        let count = frames.partition_point(|frame| frame.last() < next);
        let older = frames.get(..count).unwrap_or_default();
        if older.last().is_none_or(|frame| frame.last() + 1 != next) {
            return;
        }
        for frame in older.iter().rev() {
            kept.frames.push_front(Arc::clone(frame));
        }
        self.count(&mut kept, older);
        self.trim(&mut kept, THREAD_BYTES, THREAD_FRAMES);
    }

    /// Wakes the thread's readers because its log now ends here or its rows have changed.
    pub(crate) fn wake(&self, thread: ThreadKey, last: u64) {
        let Some(log) = self.log(thread) else { return };
        log.committed.send_modify(|committed| *committed = last.max(*committed));
        log.is_known.store(true, Ordering::Release);
    }

    /// Forgets a thread's frames after some were removed, and wakes its readers: the store has the remaining ones up to `last`.
    pub(crate) fn forget_frames(&self, thread: ThreadKey, last: u64) {
        let Some(log) = self.log(thread) else { return };
        self.trim(&mut lock(&log.kept), 0, 0);
        log.committed.send_modify(|committed| *committed = last.max(*committed));
    }

    /// The threads with readers, and the ends of their logs that are known here.
    pub(crate) fn threads_with_readers(&self) -> Vec<(ThreadKey, u64)> {
        let threads = lock(&self.threads);
        threads.iter().map(|(key, tail)| (*key, *tail.log.committed.borrow())).collect()
    }

    /// Wakes the readers of a log that another process has continued up to `last`. Forgets the kept frames: they end earlier, so the next ones would not join them.
    pub(crate) fn advance_end(&self, thread: ThreadKey, last: u64) {
        let Some(log) = self.log(thread) else { return };
        if *log.committed.borrow() < last {
            self.forget_frames(thread, last);
        }
    }

    /// The end of a log in its tail. Zero for a log without readers.
    pub(crate) fn end(&self, thread: ThreadKey) -> u64 {
        self.log(thread).map_or(0, |log| *log.committed.borrow())
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.threads).is_empty()
    }

    /// Drops a removed thread. Its readers' channels close.
    pub(crate) fn remove_thread(&self, thread: ThreadKey) {
        if self.attached.load(Ordering::SeqCst) == 0 {
            return;
        }
        let entry = lock(&self.threads).remove(&thread);
        if let Some(entry) = entry {
            self.trim(&mut lock(&entry.log.kept), 0, 0);
        }
    }

    /// Serves a read from the kept frames, without the store. `None` if they do not reach back far enough.
    pub(crate) fn frames(&self, thread: ThreadKey, range: Range) -> Option<Vec<Arc<Frame>>> {
        let log = self.log(thread)?;
        let is_known = log.is_known.load(Ordering::Acquire);
        let committed = *log.committed.borrow();
        let kept = lock(&log.kept);
        if kept.frames.back().is_some_and(|newest| newest.last() < committed) {
            // The store has more.
            return None;
        }
        let from = match range.run {
            None if is_known && range.after >= committed => return Some(Vec::new()),
            None => kept.position(range.after)?,
            Some(run) => {
                // Search from the newest frame: the cost is then proportional to the part that is read.
                let covers = |frame: &Arc<Frame>| {
                    frame.run() == Some(run) && frame.first_run() <= range.after.saturating_add(1)
                };
                kept.frames.iter().rposition(covers)?
            }
        };
        let wanted = kept.frames.iter().skip(from).filter(|frame| match range.run {
            None => frame.last() > range.after,
            Some(run) => frame.run() == Some(run) && frame.last_run() > range.after,
        });
        Some(bounded(wanted.cloned(), range.max_bytes))
    }

    fn log(&self, thread: ThreadKey) -> Option<Arc<TailLog>> {
        if self.attached.load(Ordering::SeqCst) == 0 {
            return None;
        }
        lock(&self.threads).get(&thread).map(|entry| Arc::clone(&entry.log))
    }

    fn extend(&self, kept: &mut NewestFrames, frames: &[Arc<Frame>]) {
        kept.frames.extend(frames.iter().cloned());
        self.count(kept, frames);
        self.trim(kept, THREAD_BYTES, THREAD_FRAMES);
    }

    fn count(&self, kept: &mut NewestFrames, added: &[Arc<Frame>]) {
        let added: usize = added.iter().map(|frame| frame.bytes().len()).sum();
        kept.bytes += added;
        self.bytes.fetch_add(added, Ordering::Relaxed);
    }

    /// Drops the oldest frames while the kept ones exceed `max_bytes`, but keeps at least `min_frames`.
    fn trim(&self, kept: &mut NewestFrames, max_bytes: usize, min_frames: usize) {
        loop {
            let has_few = kept.frames.len() <= min_frames;
            let is_enough = match kept.frames.len() {
                0 => true,
                1 => has_few,
                _ if has_few => kept.bytes <= FEW_BYTES,
                _ => kept.bytes <= max_bytes && max_bytes > 0,
            };
            if is_enough {
                break;
            }
            let Some(frame) = kept.frames.pop_front() else { break };
            kept.bytes -= frame.bytes().len();
            self.bytes.fetch_sub(frame.bytes().len(), Ordering::Relaxed);
        }
        if kept.frames.is_empty() {
            kept.remote_stamp = None;
        }
    }

    /// Drops frames if all threads together have too many: first in the thread that grew, then in others.
    fn make_room(&self, grown: &TailLog) {
        if self.bytes() <= self.max_bytes {
            return;
        }
        self.trim(&mut lock(&grown.kept), 0, THREAD_FRAMES);
        let logs: Vec<_> = {
            let threads = lock(&self.threads);
            threads.values().map(|entry| Arc::clone(&entry.log)).collect()
        };
        for log in logs {
            if self.bytes() <= self.max_bytes {
                return;
            }
            self.trim(&mut lock(&log.kept), 0, 0);
        }
    }

    fn detach(&self, thread: ThreadKey, number: u64) {
        let dropped = {
            let mut threads = lock(&self.threads);
            match threads.get_mut(&thread) {
                Some(entry) if entry.number == number => {
                    entry.readers -= 1;
                    if entry.readers == 0 { threads.remove(&thread) } else { None }
                }
                // The thread and its entry were removed meanwhile.
                _ => None,
            }
        };
        if let Some(entry) = dropped {
            self.trim(&mut lock(&entry.log.kept), 0, 0);
        }
        self.attached.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The frames up to the one with which the sum of their sizes exceeds the bound; at least one.
pub(crate) fn bounded(
    frames: impl Iterator<Item = Arc<Frame>>,
    max_bytes: usize,
) -> Vec<Arc<Frame>> {
    let (mut taken, mut bytes) = (Vec::new(), 0);
    for frame in frames {
        bytes += frame.bytes().len();
        taken.push(frame);
        if bytes > max_bytes {
            break;
        }
    }
    taken
}

// === impl ThreadTail ===

impl ThreadTail {
    fn new(number: u64) -> Self {
        let log = TailLog {
            committed: watch::Sender::new(0),
            is_known: AtomicBool::new(false),
            kept: Mutex::default(),
        };
        Self { number, readers: 0, log: Arc::new(log) }
    }
}

// === impl NewestFrames ===

impl NewestFrames {
    /// The index of the first frame after this thread number. `None` if older frames than the kept ones are needed.
    fn position(&self, after: u64) -> Option<usize> {
        let oldest = self.frames.front()?;
        if oldest.first() > after.saturating_add(1) {
            return None;
        }
        Some(self.frames.partition_point(|frame| frame.last() <= after))
    }

    /// Whether these frames directly follow the kept ones.
    fn is_continued_by(&self, frames: &[Arc<Frame>]) -> bool {
        match (self.frames.back(), frames.first()) {
            (Some(newest), Some(next)) => newest.last() + 1 == next.first(),
            _ => true,
        }
    }
}

// === impl ReaderGuard ===

impl TailGuard for ReaderGuard {}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        self.tails.detach(self.thread, self.entry);
    }
}

impl fmt::Debug for ReaderGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaderGuard").field("thread", &self.thread).finish_non_exhaustive()
    }
}

// === impl SharedReads ===

impl<K: Copy + Eq + Hash, T: Clone> SharedReads<K, T> {
    pub(crate) fn new() -> Self {
        Self { under_way: Mutex::default() }
    }

    /// Joins the read under this key that is in progress, or starts it. Returns its result.
    pub(crate) async fn join(&self, key: K, read: impl Future<Output = Result<T>>) -> Result<T> {
        let cell = Arc::clone(lock(&self.under_way).entry(key).or_default());
        // If the reading caller is cancelled, the next waiting caller takes over.
        let found = cell.get_or_init(|| read).await.clone();
        let mut under_way = lock(&self.under_way);
        if under_way.get(&key).is_some_and(|other| Arc::ptr_eq(other, &cell)) {
            under_way.remove(&key);
        }
        found
    }
}
