//! Reads a log in pages: the one loop under every fold and listing.

use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::{Event, RunKey, ThreadKey};
use trilogue_store::{Frame, Range, Read};

/// How much of a log is read at once, in bytes.
const PAGE_BYTES: usize = 1024 * 1024;

/// Reads the log of a thread, or of one of its runs, that the caller has looked up. Numbers count in the thread or in the run.
pub(crate) struct LogReader<'a> {
    read: &'a dyn Read,
    thread: ThreadKey,
    run: Option<RunKey>,
    after: u64,
    until: u64,
    page_bytes: usize,
    bytes: usize,
}

pub(crate) struct LogPage {
    pub(crate) frames: Vec<Arc<Frame>>,
    in_run: bool,
    /// The first frame can begin before, and the last can end after, the requested range.
    after: u64,
    until: u64,
}

// === impl LogReader ===

impl<'a> LogReader<'a> {
    pub(crate) fn new(read: &'a dyn Read, thread: ThreadKey, run: Option<RunKey>) -> Self {
        let page_bytes = PAGE_BYTES;
        Self { read, thread, run, after: 0, until: u64::MAX, page_bytes, bytes: 0 }
    }

    pub(crate) fn after(self, after: u64) -> Self {
        Self { after, ..self }
    }

    /// Sets the last number to read: with the last number of an ended run, the reader need not look for more.
    pub(crate) fn until(self, until: u64) -> Self {
        Self { until, ..self }
    }

    pub(crate) fn pages_of(self, page_bytes: usize) -> Self {
        Self { page_bytes, ..self }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the next page, or `None` at the end of the log.
    pub(crate) async fn next(&mut self) -> Result<Option<LogPage>> {
        if self.after >= self.until {
            return Ok(None);
        }
        let (run, after) = (self.run, self.after);
        let range = Range { run, after, max_bytes: self.page_bytes };
        let frames = self.read.frames(self.thread, range).await?;
        let last = match (frames.last(), run) {
            (None, _) => return Ok(None),
            (Some(frame), Some(_)) => frame.last_run(),
            (Some(frame), None) => frame.last(),
        };
        if last <= after {
            return Ok(None);
        }
        self.after = last;
        self.bytes += frames.iter().map(|frame| frame.bytes().len()).sum::<usize>();
        Ok(Some(LogPage { frames, in_run: run.is_some(), after, until: self.until }))
    }
}

// === impl LogPage ===

impl LogPage {
    /// Returns the runs of the frames on the page, once for each frame.
    pub(crate) fn runs(&self) -> impl Iterator<Item = RunKey> + '_ {
        self.frames.iter().filter_map(|frame| frame.run())
    }

    /// Returns the events within the range.
    pub(crate) fn events(&self) -> Result<Vec<&Event>> {
        let mut events = Vec::new();
        for frame in &self.frames {
            events.extend(self.events_of(frame)?);
        }
        Ok(events)
    }

    /// Returns the events of one frame within the range.
    pub(crate) fn events_of<'f>(
        &self,
        frame: &'f Frame,
    ) -> Result<impl Iterator<Item = &'f Event> + use<'f>> {
        let (after, until, in_run) = (self.after, self.until, self.in_run);
        let number = move |event: &Event| if in_run { event.run_number } else { event.number };
        let belongs = move |event: &&Event| (after + 1..=until).contains(&number(event));
        Ok(frame.events()?.iter().filter(belongs))
    }
}
