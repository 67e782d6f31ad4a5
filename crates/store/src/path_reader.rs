//! Reading a path as far as it is needed.

use std::collections::VecDeque;

use trilogue_domain::error::Result;
use trilogue_domain::{CheckpointKey, Scope, ThreadId};

use crate::port::Read;
use crate::rows::CheckpointRow;

/// The most checkpoints that are read at once: each may hold a state.
const MAX_PART: usize = 64;
/// How much longer each part is than the one before. The first is one checkpoint: the head usually has the state.
const GROWTH: usize = 4;
/// A part behind one whose states have more bytes than this is shorter than it.
const PART_BYTES: usize = 1024 * 1024;

/// Reads the path of a visible thread, newest first, in parts: it costs as much as is asked of it, and has no end but the thread's beginning.
#[derive(Debug)]
pub struct PathReader<'a> {
    read: &'a dyn Read,
    scope: &'a Scope,
    thread: &'a ThreadId,
    ready: VecDeque<CheckpointRow>,
    next: NextPart,
    part: usize,
    read_count: usize,
    /// A checkpoint that was read, and how many were read when it is replaced: meeting it again is a damaged link that leads in a circle.
    mark: (Option<CheckpointKey>, usize),
}

#[derive(Clone, Copy, Debug)]
enum NextPart {
    /// The part that begins with this checkpoint, or with the head.
    From(Option<CheckpointKey>),
    End,
}

// === impl PathReader ===

impl<'a> PathReader<'a> {
    /// From a checkpoint, or from the head, back to the beginning.
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

    /// Whether the path goes on there, and not in a circle. Keys do not tell: a newer checkpoint may have the smaller one.
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

    /// The next older checkpoint; `None` behind the first of the thread. Fails as reading the store.
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
