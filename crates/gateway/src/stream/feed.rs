//! Rendered events, shared between the readers of one log.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;
use tokio::sync::watch;
use trilogue_domain::error::Result;
use trilogue_domain::event::Event;
use trilogue_domain::{InterruptId, RunId, RunKey, ThreadKey, lock};
use trilogue_store::rows::RunRow;
use trilogue_store::{Frame, Read, Tail};

use super::Streams;
use super::cursor::Cursor;
use super::inline::inlined;
use super::log_reader::LogReader;
use super::view::{EventBoundary, EventPlace, Fold, View, WireEventSink};
use crate::core::log_ref::LogRef;

/// How much of the log is read at once, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// The same if rendered frames cannot be kept, in bytes: reading ahead would render them for nothing.
const READ_BYTES_WITHOUT_ROOM: usize = 4 * 1024;
const MAX_NAMES: usize = 4_096;

/// All feeds that have a reader.
#[derive(Debug)]
pub(crate) struct Feeds {
    open: Mutex<HashMap<FeedKey, Weak<Feed>>>,
    budget: Arc<Budget>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct FeedKey {
    thread: ThreadKey,
    run: Option<RunKey>,
    view: Cow<'static, str>,
}

/// The total bytes of all feeds.
#[derive(Debug)]
struct Budget {
    held: AtomicUsize,
    most: usize,
}

/// One log in one view: a thread's, or a run's.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) thread: LogRef,
    pub(crate) run: Option<(RunKey, RunId)>,
    pub(crate) view: Arc<dyn View>,
    tail: Tail,
    names: Mutex<HashMap<RunKey, Option<RunId>>>,
    /// Frames by their last number.
    chunks: Mutex<BTreeMap<u64, Arc<RenderedFrame>>>,
    budget: Arc<Budget>,
}

#[derive(Debug)]
pub(crate) struct RenderedFrame {
    /// The frame comes next for every position from here to `last`.
    follows: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    bytes: Bytes,
    marks: Vec<EventBoundary>,
    /// The shown interrupts, with their run and the position of the wire event that shows each.
    pub(crate) shown: Vec<(Cursor, RunId, InterruptId)>,
    pub(crate) ends: bool,
    /// Whether the stream's run waits here for an answer, and the view has shown the question.
    pub(crate) waits: bool,
    /// The fold after the frame, if the view has state.
    fold: Option<Box<dyn Fold>>,
}

// === impl Feeds ===

impl Feeds {
    pub(crate) fn new(most: usize) -> Self {
        let budget = Arc::new(Budget { held: AtomicUsize::new(0), most });
        Self { open: Mutex::default(), budget }
    }

    /// Opens the feed of a thread, or of one of its runs, that the caller has looked up.
    pub(crate) fn open(
        &self,
        read: &Arc<dyn Read>,
        thread: LogRef,
        run: Option<&RunRow>,
        view: Arc<dyn View>,
    ) -> Arc<Feed> {
        let key = FeedKey { thread: thread.key, run: run.map(|run| run.key), view: view.name() };
        let mut open = lock(&self.open);
        if let Some(feed) = open.get(&key).and_then(Weak::upgrade) {
            return feed;
        }
        if open.len() > 64 && open.len().is_power_of_two() {
            open.retain(|_, feed| feed.strong_count() > 0);
        }
        let feed = Arc::new(Feed {
            tail: read.tail(thread.key),
            run: run.map(|run| (run.key, run.id.clone())),
            thread,
            view,
            names: Mutex::default(),
            chunks: Mutex::default(),
            budget: Arc::clone(&self.budget),
        });
        open.insert(key, Arc::downgrade(&feed));
        feed
    }
}

// === impl Budget ===

impl Budget {
    fn has_room(&self) -> bool {
        self.held.load(Ordering::Relaxed) < self.most
    }
}

// === impl Feed ===

impl Feed {
    /// Returns a receiver that every commit on the thread wakes.
    pub(crate) fn committed(&self) -> watch::Receiver<u64> {
        self.tail.committed.clone()
    }

    pub(crate) fn cached_frame(&self, cursor: Cursor) -> Option<Arc<RenderedFrame>> {
        let whole = cursor.whole();
        let chunks = self.chunks();
        let (_, chunk) = chunks.range(whole + 1..).next()?;
        (chunk.follows <= whole).then(|| Arc::clone(chunk))
    }

    /// Returns the frame after a position, or `None` at the end of the log. `before` is the frame that ends there, if the reader has it.
    pub(crate) async fn next_frame(
        &self,
        streams: &Streams,
        cursor: Cursor,
        before: Option<&Arc<RenderedFrame>>,
    ) -> Result<Option<Arc<RenderedFrame>>> {
        if let Some(frame) = self.cached_frame(cursor) {
            return Ok(Some(frame));
        }
        let advanced = self.advance(&streams.read, cursor, before).await?;
        Ok(advanced.map(|(frame, rendered)| {
            streams.meters.frames_rendered.increment(rendered as u64);
            frame
        }))
    }

    /// Reads and renders the frame after a position; returns `None` at the end of the log. `before` is the frame that ends there, if the reader has it: then its state need not be folded again.
    pub(crate) async fn advance(
        &self,
        read: &Arc<dyn Read>,
        cursor: Cursor,
        before: Option<&Arc<RenderedFrame>>,
    ) -> Result<Option<(Arc<RenderedFrame>, usize)>> {
        let after = cursor.whole();
        let run = self.run.as_ref().map(|(key, _)| *key);
        let has_room = self.budget.has_room();
        let max_bytes = if has_room { READ_BYTES } else { READ_BYTES_WITHOUT_ROOM };
        let log = LogReader::new(read.as_ref(), self.thread.key, run).after(after);
        let Some(page) = log.pages_of(max_bytes).next().await? else { return Ok(None) };
        let (mut follows, mut next, mut rendered) = (after, None, 0);
        let mut before = before.cloned();
        for frame in &page.frames {
            if next.is_some() && !self.budget.has_room() {
                break;
            }
            let (first, last) = self.numbers(frame);
            if last <= after {
                continue;
            }
            let chunk = match self.cached_frame(Cursor::after(follows.max(first - 1))) {
                Some(chunk) if chunk.last == last => chunk,
                _ => {
                    rendered += 1;
                    let fold = self.fold_before(read, first, before.as_ref()).await?;
                    let chunk = self.render(read, frame, follows.min(first - 1), fold).await?;
                    self.keep(chunk)
                }
            };
            follows = last;
            next.get_or_insert_with(|| Arc::clone(&chunk));
            before = Some(chunk);
        }
        Ok(next.map(|chunk| (chunk, rendered)))
    }

    /// Returns the first and last number of a frame in this feed's counting.
    fn numbers(&self, frame: &Frame) -> (u64, u64) {
        match self.run {
            Some(_) => (frame.first_run().max(1), frame.last_run()),
            None => (frame.first().max(1), frame.last()),
        }
    }

    async fn render(
        &self,
        read: &Arc<dyn Read>,
        frame: &Frame,
        follows: u64,
        mut fold: Box<dyn Fold>,
    ) -> Result<RenderedFrame> {
        let (first, last) = self.numbers(frame);
        let run_id = self.name(read, frame.run()).await?;
        let mut out = WireEventSink::with_event_name(self.view.event_name());
        let mut ends = false;
        for event in frame.events()? {
            let number = self.number(event);
            let place = self.place(number, run_id.as_ref());
            let event = inlined(read, self.thread.key, event, |blob| fold.wants(blob)).await?;
            fold.push(&event, &place, &mut out);
            out.close(number);
            ends |= self.run.is_some() && event.body.is_run_end();
        }
        let shown = run_id.map_or_else(Vec::new, |run| {
            out.shown.into_iter().map(|(cursor, id)| (cursor, run.clone(), id)).collect()
        });
        Ok(RenderedFrame {
            follows,
            first,
            last,
            bytes: Bytes::from(out.bytes),
            marks: out.marks,
            shown,
            ends,
            waits: fold.is_waiting(),
            fold: (!self.view.is_stateless()).then_some(fold),
        })
    }

    /// Returns the view's state before a number: from the frame before, folded on from the nearest earlier frame, or from the beginning.
    async fn fold_before(
        &self,
        read: &Arc<dyn Read>,
        first: u64,
        before: Option<&Arc<RenderedFrame>>,
    ) -> Result<Box<dyn Fold>> {
        if first == 1 || self.view.is_stateless() {
            return Ok(self.view.begin());
        }
        let kept = self.chunks().range(..first).next_back().map(|(_, chunk)| Arc::clone(chunk));
        let nearest =
            before.into_iter().chain(&kept).filter(|it| it.last < first).max_by_key(|it| it.last);
        let at_hand = nearest.and_then(|chunk| Some((chunk.fold.as_ref()?.fork(), chunk.last)));
        let (mut fold, after) = at_hand.unwrap_or_else(|| (self.view.begin(), 0));
        let run = self.run.as_ref().map(|(key, _)| *key);
        let mut log = LogReader::new(read.as_ref(), self.thread.key, run)
            .after(after)
            .until(first - 1)
            .pages_of(READ_BYTES);
        while let Some(page) = log.next().await? {
            for frame in &page.frames {
                let run_id = self.name(read, frame.run()).await?;
                for event in page.events_of(frame)? {
                    let place = self.place(self.number(event), run_id.as_ref());
                    let wants = |blob: &_| fold.wants(blob);
                    let event = inlined(read, self.thread.key, event, wants).await?;
                    fold.push(&event, &place, &mut WireEventSink::default());
                }
            }
        }
        Ok(fold)
    }

    fn number(&self, event: &Event) -> u64 {
        if self.run.is_some() { event.run_number } else { event.number }
    }

    fn place<'a>(&'a self, number: u64, run_id: Option<&'a RunId>) -> EventPlace<'a> {
        EventPlace { thread: &self.thread.id, run_id: run_id.map(RunId::as_str), number }
    }

    /// Keeps a frame for other readers, and drops the oldest if the feeds hold too much.
    fn keep(&self, chunk: RenderedFrame) -> Arc<RenderedFrame> {
        let chunk = Arc::new(chunk);
        let mut chunks = self.chunks();
        if let Some(known) = chunks.get(&chunk.last) {
            return Arc::clone(known);
        }
        self.budget.held.fetch_add(chunk.weight(), Ordering::Relaxed);
        chunks.insert(chunk.last, Arc::clone(&chunk));
        while self.budget.held.load(Ordering::Relaxed) > self.budget.most && chunks.len() > 1 {
            if let Some((_, oldest)) = chunks.pop_first() {
                self.budget.held.fetch_sub(oldest.weight(), Ordering::Relaxed);
            }
        }
        chunk
    }

    fn chunks(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<RenderedFrame>>> {
        lock(&self.chunks)
    }

    /// Returns the id of a run of this thread, or `None` if the run was removed.
    pub(crate) async fn name(
        &self,
        read: &Arc<dyn Read>,
        key: Option<RunKey>,
    ) -> Result<Option<RunId>> {
        let Some(key) = key else { return Ok(None) };
        if let Some((own, id)) = &self.run
            && *own == key
        {
            return Ok(Some(id.clone()));
        }
        let known = lock(&self.names).get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let name = run_id(read, &self.thread, key).await?;
        let mut names = lock(&self.names);
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(key, name.clone());
        Ok(name)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let held: usize = self.chunks().values().map(|chunk| chunk.weight()).sum();
        self.budget.held.fetch_sub(held, Ordering::Relaxed);
    }
}

// === impl RenderedFrame ===

impl RenderedFrame {
    pub(crate) fn after(&self, cursor: Cursor) -> Bytes {
        let passed = self.marks.partition_point(|mark| mark.cursor <= cursor);
        match passed.checked_sub(1).and_then(|index| self.marks.get(index)) {
            Some(mark) => self.bytes.slice(mark.end..),
            None => self.bytes.clone(),
        }
    }

    pub(crate) fn between(&self, after: Cursor, until: Cursor) -> Bytes {
        let end_of = |cursor: Cursor| {
            let passed = self.marks.partition_point(|mark| mark.cursor <= cursor);
            passed.checked_sub(1).and_then(|index| self.marks.get(index)).map_or(0, |it| it.end)
        };
        let (begin, end) = (end_of(after), end_of(until));
        self.bytes.slice(begin..end.max(begin))
    }

    fn weight(&self) -> usize {
        self.bytes.len() + self.marks.len() * size_of::<EventBoundary>() + size_of::<Self>()
    }
}

/// Returns the id of a run of this thread, or `None` if the run was removed.
pub(crate) async fn run_id(
    read: &Arc<dyn Read>,
    thread: &LogRef,
    key: RunKey,
) -> Result<Option<RunId>> {
    Ok(run_row(read, thread, key).await?.map(|run| run.id))
}

/// Returns a run of this thread, or `None` if it was removed.
pub(crate) async fn run_row(
    read: &Arc<dyn Read>,
    thread: &LogRef,
    key: RunKey,
) -> Result<Option<RunRow>> {
    let run = read.run_of(&thread.scope(), key).await?;
    Ok(run.filter(|run| run.thread_id == thread.id))
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
