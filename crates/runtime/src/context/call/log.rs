//! A child run's log, read by number as it grows.

use std::collections::VecDeque;
use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Event, RunKey, ThreadKey};
use trilogue_store::rows::RunRow;
use trilogue_store::{Range, Store, Tail};

/// How much of the log is read at once, in bytes.
const PAGE_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct ChildLog {
    store: Arc<dyn Store>,
    thread: ThreadKey,
    run: RunKey,
    tail: Tail,
    /// The last run number that was read.
    after: u64,
    page: VecDeque<Event>,
    has_ended: bool,
}

// === impl ChildLog ===

impl ChildLog {
    pub(super) fn of(store: &Arc<dyn Store>, row: &RunRow) -> Self {
        Self {
            store: Arc::clone(store),
            thread: row.thread,
            run: row.key,
            tail: store.tail(row.thread),
            after: 0,
            page: VecDeque::new(),
            has_ended: false,
        }
    }

    /// Returns the next event if it was already read.
    pub(super) fn take(&mut self) -> Option<Event> {
        let event = self.page.pop_front()?;
        self.has_ended |= event.body.is_run_end();
        Some(event)
    }

    /// Returns the next event as soon as it is durable, or `None` after the run's end.
    /// Fails if the store cannot be read, and with `run_not_found` if the thread was removed.
    pub(super) async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.take() {
                return Ok(Some(event));
            }
            if self.has_ended {
                return Ok(None);
            }
            self.tail.committed.borrow_and_update();
            let range = Range { run: Some(self.run), after: self.after, max_bytes: PAGE_BYTES };
            let frames = self.store.frames(self.thread, range).await?;
            let last = frames.last().map_or(0, |frame| frame.last_run());
            if last > self.after {
                let after = std::mem::replace(&mut self.after, last);
                for frame in &frames {
                    let new = frame.events()?.iter().filter(|event| event.run_number > after);
                    self.page.extend(new.cloned());
                }
            } else if self.tail.committed.changed().await.is_err() {
                return Err(Error::new(Code::RunNotFound, "the called run was removed"));
            }
        }
    }
}
