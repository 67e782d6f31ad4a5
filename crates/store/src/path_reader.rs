//! Reads a path in parts, only as much as the caller needs.

use std::collections::VecDeque;

use trilogue_domain::error::Result;
use trilogue_domain::{CheckpointKey, Scope, ThreadId};

use crate::port::Read;
use crate::rows::CheckpointRow;

/// The most checkpoints of one read: each may hold a state.
const MAX_PART: usize = 64;
/// The factor by which each part is longer than the one before. The first is one checkpoint, because the head usually has the state.
const GROWTH: usize = 4;
/// If the states of a part exceed this many bytes, the next part is shorter.
const PART_BYTES: usize = 1024 * 1024;

/// Reads the path of a visible thread, newest first, in parts. The cost depends on how much the caller reads; the path ends only at the thread's beginning.
#[derive(Debug)]
pub struct PathReader<'a> {
    read: &'a dyn Read,
    scope: &'a Scope,
    thread: &'a ThreadId,
    ready: VecDeque<CheckpointRow>,
    next: NextPart,
    part: usize,
    read_count: usize,
    /// A checkpoint that was read, and the count at which it is replaced. Reading it again means a damaged link that leads in a circle.
    mark: (Option<CheckpointKey>, usize),
}

#[derive(Clone, Copy, Debug)]
enum NextPart {
    /// The part that begins with this checkpoint, or with the head for `None`.
    From(Option<CheckpointKey>),
    End,
}

// === impl PathReader ===

impl<'a> PathReader<'a> {
    /// Starts at a checkpoint, or at the head for `None`, and reads back to the beginning.
    #[must_use]
    pub fn new(
        read: &'a dyn Read,
        scope: &'a Scope,
        thread: &'a ThreadId,
        from: Option<CheckpointKey>,
    ) -> Self {
        let (ready, next) = (VecDeque::new(), NextPart::From(from));
        Self { read, scope, thread, ready, next, part: 1, read_count: 0, mark: (None, 1) }
    }

    /// Whether the path continues there without a circle. Keys cannot decide this: a newer checkpoint may have the smaller key.
    fn is_ahead(&mut self, parent: CheckpointKey, count: usize) -> bool {
        if self.mark.0 == Some(parent) {
            return false;
        }
        self.read_count += count;
        if self.read_count >= self.mark.1 {
            self.mark = (Some(parent), self.read_count * 2);
        }
        true
    }

    /// The next older checkpoint. `None` after the first checkpoint of the thread. Fails like a read of the store.
    pub async fn next(&mut self) -> Result<Option<CheckpointRow>> {
        if self.ready.is_empty()
            && let NextPart::From(from) = self.next
        {
            let part = self.read.path(self.scope, self.thread, from, self.part).await?;
            let parent = part.last().and_then(|row| row.parent);
            self.next = match parent {
                Some(parent) if part.len() == self.part && self.is_ahead(parent, part.len()) => {
                    NextPart::From(Some(parent))
                }
                _ => NextPart::End,
            };
            let bytes: usize = part.iter().map(CheckpointRow::state_bytes).sum();
            self.part = if bytes > PART_BYTES {
                (self.part / GROWTH).max(1)
            } else {
                (self.part * GROWTH).min(MAX_PART)
            };
            self.ready = part.into();
        }
        Ok(self.ready.pop_front())
    }
}
