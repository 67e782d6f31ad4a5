//! Batches: their checks, their ownership, and the owners of their blobs.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{RunKey, TenantId, ThreadKey, limits};

use crate::core::ownership::{AppendAttempt, AppendVerdict, LogEnd, verdict};
use crate::port::{Batch, Change};
use crate::record::{Frame, blobs_in};
use crate::rows::ThreadRow;

/// The room that a change takes in a writer's queue is counted in permits of this many bytes.
pub(crate) const PERMIT_BYTES: usize = 1_024;

/// The end of a thread's log, and the epoch of the writer that may continue it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) epoch: u64,
    pub(crate) last: u64,
}

// === impl Batch ===

impl Batch {
    pub(crate) const MAX_BYTES: usize =
        limits::MAX_BATCH_BYTES + limits::MAX_ORIGINAL_BYTES + limits::MAX_METADATA_BYTES;

    /// Checks the batch alone, without the thread's state. Returns the bytes of its frames.
    /// Errors: `ownership_lost` if its frames do not continue the expected number; `internal` if rows belong elsewhere or the frames have too many bytes.
    pub(crate) fn check_form(&self) -> Result<usize> {
        let mut last = self.expected_last;
        for frame in &self.frames {
            if frame.thread() != self.thread || frame.first() != last.saturating_add(1) {
                let (epoch, last) = (self.epoch, self.expected_last);
                return Err(self.late(Some(Head { epoch, last })));
            }
            last = frame.last();
        }
        let mut tenant = None;
        for change in &self.changes {
            let (thread, of) = change.owner();
            let is_foreign = of.is_some_and(|of| *tenant.get_or_insert(of) != of);
            if thread.is_some_and(|thread| thread != self.thread) || is_foreign {
                return Err(self.malformed("a row of it belongs to another thread or tenant"));
            }
        }
        self.frame_bytes().ok_or_else(|| self.malformed("its frames have too many bytes"))
    }

    /// The compare of the compare-and-swap. `head` is the thread's head, `None` if the thread does not exist. Fails with `ownership_lost`.
    pub(crate) fn check_head(&self, head: Option<Head>) -> Result<()> {
        // A single writing process gives appends no stamps and tries each once.
        let end = head.map(|Head { epoch, last }| LogEnd { epoch, last, stamp: 0 });
        match verdict(&self.attempt(1, false), end) {
            AppendVerdict::Fits => Ok(()),
            _ => Err(self.late(head)),
        }
    }

    /// The members of the batch that [`verdict`] compares. `is_again` says that an earlier try may have been stored.
    pub(crate) fn attempt(&self, stamp: i64, is_again: bool) -> AppendAttempt {
        AppendAttempt {
            epoch: self.epoch,
            expected_last: self.expected_last,
            last: self.last(),
            stamp,
            creates: self.may_create(),
            removes: self.removes_thread(),
            is_again,
        }
    }

    /// Whether it creates its thread if the thread does not exist.
    pub(crate) fn may_create(&self) -> bool {
        self.expected_last == 0 && self.new_thread().is_some_and(|row| row.epoch == self.epoch)
    }

    /// The error if another writer was faster, with the head that it left.
    pub(crate) fn late(&self, head: Option<Head>) -> Error {
        let (thread, epoch, expected) = (self.thread, self.epoch, self.expected_last);
        // The numbers help an operator; a client can do nothing with them.
        tracing::info!(%thread, epoch, expected, ?head, "an append came too late");
        match head {
            Some(_) => Error::new(
                Code::OwnershipLost,
                "another server has taken the thread over; nothing of this change was stored",
            )
            .hint("send the request again: it goes to the server that has the thread now"),
            None => Error::new(
                Code::OwnershipLost,
                "the thread was removed meanwhile; nothing of this change was stored",
            )
            .hint("use another thread"),
        }
    }

    pub(crate) fn new_thread(&self) -> Option<&ThreadRow> {
        self.changes.iter().find_map(|change| match change {
            Change::Thread(row) => Some(row),
            _ => None,
        })
    }

    /// Whether it removes a run or its thread.
    pub(crate) fn removes(&self) -> bool {
        let is_removal =
            |change: &Change| matches!(change, Change::RemoveRun(_) | Change::RemoveThread);
        self.changes.iter().any(is_removal)
    }

    /// Whether it removes its thread. Even a damaged thread can be erased.
    pub(crate) fn removes_thread(&self) -> bool {
        self.changes.iter().any(|change| matches!(change, Change::RemoveThread))
    }

    pub(crate) fn last(&self) -> u64 {
        self.frames.last().map_or(self.expected_last, |frame| frame.last())
    }

    /// The runs whose frames name a blob of the batch: the blob is removed with the last of them. `None` means frames of no run.
    pub(crate) fn runs_naming(&self, blob: &BlobRef) -> BTreeSet<Option<RunKey>> {
        let mut runs: BTreeSet<_> = self.frames.iter().map(|frame| frame.run()).collect();
        if runs.len() > 1 {
            let names = |frame: &&Arc<Frame>| {
                let mut named = Vec::new();
                // The batch's own frames must not stay decoded.
                for event in frame.undecoded().events().unwrap_or_default() {
                    blobs_in(&event.body, &mut named);
                }
                named.contains(blob)
            };
            let naming: BTreeSet<_> =
                self.frames.iter().filter(names).map(|frame| frame.run()).collect();
            // A blob that no frame names lives as long as the last of the runs.
            runs.retain(|run| if naming.is_empty() { run.is_some() } else { naming.contains(run) });
        }
        if runs.is_empty() {
            runs.insert(None);
        }
        runs
    }

    pub(crate) fn blob_missing(&self, blob: &BlobRef) -> Error {
        self.malformed(&format!("it names a blob of {} bytes that is not stored", blob.length))
    }

    /// The error of a malformed batch, which is a bug of the runtime.
    pub(crate) fn malformed(&self, why: &str) -> Error {
        let message = format!("the change of thread {} is malformed: {why}", self.thread);
        Error::new(Code::Internal, message)
    }

    /// The error of a retried append whose thread has continued without a trace of it.
    pub(crate) fn uncertain(&self) -> Error {
        let (thread, epoch, expected) = (self.thread, self.epoch, self.expected_last);
        tracing::info!(%thread, epoch, expected, "an append may have been stored");
        Error::new(
            Code::OwnershipLost,
            "another server has taken the thread over; this change may have been stored, or not",
        )
        .hint("look at the thread before you send the request again")
    }

    /// The bytes of its frames. `None` if they exceed the bound of a batch.
    fn frame_bytes(&self) -> Option<usize> {
        let bytes = |frame: &Arc<Frame>| frame.bytes().len();
        let all: usize = self.frames.iter().map(bytes).sum();
        if all <= limits::MAX_BATCH_BYTES {
            return Some(all);
        }
        let mut large = self.frames.iter().filter(|frame| frame.is_large()).map(bytes);
        let fits = all - large.next()? <= limits::MAX_BATCH_BYTES && large.next().is_none();
        fits.then_some(all)
    }
}

// === impl Change ===

impl Change {
    fn owner(&self) -> (Option<ThreadKey>, Option<&TenantId>) {
        match self {
            Self::Thread(row) => (Some(row.key), Some(&row.tenant)),
            Self::Run(row) => (Some(row.thread), Some(&row.tenant)),
            Self::Message(row) => (Some(row.thread), Some(&row.tenant)),
            Self::Checkpoint(row) => (Some(row.thread), None),
            Self::Interrupt(row) => (Some(row.thread), Some(&row.tenant)),
            Self::Binding(row) => (Some(row.thread), None),
            Self::Idempotency(row) => (Some(row.thread), Some(&row.key.tenant)),
            Self::Offer(item) => (item.thread, Some(&item.tenant)),
            Self::Alias(..) | Self::Withdraw(..) | Self::RemoveRun(_) | Self::RemoveThread => {
                (None, None)
            }
        }
    }
}

/// The permits of a write queue with this many bytes: at least enough for the largest change.
pub(crate) fn queue_permits(bytes: usize) -> usize {
    let least = limits::MAX_BLOB_BYTES.max(Batch::MAX_BYTES) / PERMIT_BYTES;
    (bytes / PERMIT_BYTES).clamp(least, Semaphore::MAX_PERMITS)
}

/// Whether stored content matches its name.
pub(crate) fn is_blob_whole(hash: &[u8], length: i64, crc: i64, data: &[u8]) -> bool {
    data.len() as u64 == length.cast_unsigned()
        && i64::from(crc32c::crc32c(data)) == crc
        && Sha256::digest(data).as_slice() == hash
}

/// Names content before it is stored; fails with `blob_too_large`.
pub(crate) fn blob_ref(bytes: &Bytes, is_text: bool) -> Result<BlobRef> {
    let length = bytes.len();
    if length > limits::MAX_BLOB_BYTES {
        let most = limits::MAX_BLOB_BYTES;
        let message = format!("the content has {length} bytes; 'max_blob' is {most} bytes");
        return Err(Error::new(Code::BlobTooLarge, message)
            .hint("send a link to the content, or send it in several parts"));
    }
    Ok(BlobRef { hash: Sha256::digest(bytes).into(), length: length as u64, is_text })
}
