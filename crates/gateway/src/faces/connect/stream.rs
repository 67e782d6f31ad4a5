//! Streams of the Agent Connect Protocol: samples of a run's output, its own updates, and one end.
//!
//! A sample is sent only after the updates that it includes, and updates never overtake the sampler: ids only grow.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, RunId};
use trilogue_mapping::connect::Modes;
use trilogue_store::rows::RunRow;

use super::ConnectCall;
use super::disconnect::CancelOnDrop;
use super::view::{ConnectView, HEARTBEAT};
use crate::core::log_ref::LogRef;
use crate::faces::common::cursors::LAST_EVENT_ID;
use crate::http::reply::Reply;
use crate::stream::cursor::Cursor;
use crate::stream::feed::{Feed, RenderedFrame};
use crate::stream::sample::{End, Sample, SampleSubscription, SampleView, State};
use crate::stream::view::View;
use crate::stream::{OpenStream, StreamSource, stopping, stream_reply};

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");
/// The longest silence of a stream without news.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// How long a stream waits for its run's end while the server is stopping.
const FAREWELL: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Since {
    Beginning,
    /// From the newest state on.
    Now,
    /// After the event with this number, and if `sampled` also after its sample.
    After {
        number: u64,
        sampled: bool,
    },
}

/// The request that opened a stream.
pub(super) enum OpenedBy {
    /// It created the run.
    Create {
        /// The first event: the run as it was accepted, if the mount shows it.
        run: Option<Bytes>,
        /// Ends the run with the connection.
        on_disconnect: Option<CancelOnDrop>,
    },
    /// It joins an existing run.
    Join,
}

/// One client's position on a stream. The client pulls pieces, so the stream needs no queue.
struct Reader {
    open: OpenStream,
    /// The run itself, until it is sent.
    run_event: Option<Bytes>,
    run: RunId,
    values: bool,
    watching: SampleSubscription,
    /// The agent's own updates, if they are shown.
    feed: Option<Arc<Feed>>,
    /// The position up to which updates were sent.
    cursor: Cursor,
    /// The frame that ends at the cursor.
    last_frame: Option<Arc<RenderedFrame>>,
    /// The number up to which the client has samples and ends, and whether it has the sample of that number.
    seen: Option<(u64, bool)>,
    /// Whether a sample must come before the end, even if the run ends at once.
    needs_first_sample: bool,
    /// The least number of events that the run had at its lookup.
    known_events: u64,
    view: Arc<ConnectView>,
    is_done: bool,
    on_disconnect: Option<CancelOnDrop>,
}

/// The sampler's next piece for a reader.
enum NextPiece {
    Sample(Arc<Sample>),
    End(Arc<End>),
    /// No piece yet.
    Nothing,
    /// No further piece: the client has the end.
    Over,
}

enum RunWake {
    News,
    /// The sampler stopped without a report.
    Broken,
    Tick,
    Stopping,
}

// === impl Since ===

impl Since {
    /// Returns the position in the header `Last-Event-ID`, or this one without the header. `0` and `-1` are the beginning.
    /// Errors: `invalid_cursor`.
    pub(super) fn of(call: &ConnectCall, otherwise: Self) -> Result<Self> {
        match call.header(&LAST_EVENT_ID).map(str::trim) {
            None | Some("") => Ok(otherwise),
            Some("0" | "-1") => Ok(Self::Beginning),
            Some(text) => {
                let Cursor { number, .. } = Cursor::parse(text)?;
                Ok(Self::After { number, sampled: text.ends_with(".v") })
            }
        }
    }
}

/// Opens a stream of a run that the caller has looked up.
/// Errors: `overloaded` if there are too many, `shutting_down`, `invalid_cursor` if the position is beyond the log.
pub(super) async fn open(
    call: &ConnectCall,
    run: &RunRow,
    modes: Modes,
    since: Since,
    by: OpenedBy,
) -> Result<Reply> {
    // A repeated create request can carry the position that its client has reached.
    let is_new = matches!(by, OpenedBy::Create { .. }) && !run.status.is_terminal();
    let (first, on_disconnect) = match by {
        OpenedBy::Create { run, on_disconnect } => {
            (run.filter(|_| since == Since::Beginning), on_disconnect)
        }
        OpenedBy::Join => (None, None),
    };
    let streams = &call.state.streams;
    let mut open = OpenStream::begin(streams, &call.caller, MAX_SILENCE)?;
    if let Since::After { number, .. } = since
        && !is_new
    {
        Cursor::after(number).check(streams.read.as_ref(), run.thread, Some(run)).await?;
    }
    let view = Arc::new(ConnectView::of(call, run));
    let sampled = Arc::clone(&view) as Arc<dyn SampleView>;
    let Modes { values, updates } = modes;
    let mut watching = streams.samplers.watch(&streams.read, run, sampled, values, updates);
    let cursor = match since {
        Since::Beginning => Cursor::START,
        Since::After { number, .. } => Cursor::after(number),
        Since::Now if updates => Cursor::after(current_number(&mut watching).await),
        Since::Now => Cursor::START,
    };
    let updates_view = || Arc::clone(&view) as Arc<dyn View>;
    let feed = updates
        .then(|| streams.feeds.open(&streams.read, LogRef::from(run), Some(run), updates_view()));
    open.attend(run.thread);
    let reader = Reader {
        open,
        run_event: first,
        run: run.id.clone(),
        values,
        watching,
        feed,
        cursor,
        last_frame: None,
        seen: match since {
            Since::After { number, sampled } => Some((number, sampled)),
            Since::Beginning | Since::Now => None,
        },
        needs_first_sample: since == Since::Beginning,
        known_events: run.last_run_number,
        view,
        is_done: false,
        on_disconnect,
    };
    Ok(stream_reply(EVENT_STREAM, reader))
}

/// Returns the number of the run's last event when the stream is opened.
async fn current_number(watching: &mut SampleSubscription) -> u64 {
    let known = |state: &State| state.caught_up || state.end.is_some() || state.failed.is_some();
    // The reader detects a broken sampler itself.
    watching.states.wait_for(known).await.map_or(0, |state| state.last)
}

// === impl Reader ===

impl StreamSource for Reader {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(run) = self.run_event.take() {
            return Some(run);
        }
        while !self.is_done {
            if let Err(error) = self.open.check().await {
                return Some(self.end_with(&error));
            }
            let state = self.watching.states.borrow_and_update().clone();
            if let Some(error) = &state.failed {
                return Some(self.end_with(error));
            }
            let due = self.due(&state);
            let until = match &due {
                NextPiece::Sample(sample) => sample.number,
                NextPiece::End(end) => end.number,
                NextPiece::Nothing | NextPiece::Over => state.last,
            };
            match self.updates(until).await {
                Ok(Some(bytes)) if !bytes.is_empty() => return Some(bytes),
                Ok(_) => {}
                Err(error) => return Some(self.end_with(&error)),
            }
            match due {
                NextPiece::Sample(sample) => {
                    self.seen = Some((sample.number, true));
                    self.needs_first_sample = false;
                    return Some(sample.bytes.clone());
                }
                NextPiece::End(end) => return Some(self.take_end(&end)),
                NextPiece::Over => return None,
                NextPiece::Nothing => {}
            }
            if let Some(piece) = self.wait().await {
                return Some(piece);
            }
        }
        None
    }

    fn open(&mut self) -> &mut OpenStream {
        &mut self.open
    }

    /// Ends the stream from our side, which is not a client's disconnect.
    fn finish(&mut self) {
        self.is_done = true;
        if let Some(guard) = &mut self.on_disconnect {
            guard.disarm();
        }
    }
}

impl Reader {
    fn due(&self, state: &State) -> NextPiece {
        let is_new = |number: u64| self.seen.is_none_or(|(seen, _)| number > seen);
        let newest = state.newest.as_ref().filter(|sample| {
            let unseen = is_new(sample.number) || self.seen == Some((sample.number, false));
            // Skip a sample if the updates are already past it.
            let overtaken = self.feed.is_some() && sample.number < self.cursor.whole();
            self.values && unseen && !overtaken
        });
        let end = state.end_at(self.known_events);
        match (end, newest) {
            (Some(end), Some(sample)) if self.needs_first_sample && is_new(end.number) => {
                match sample.number < end.number {
                    true => NextPiece::Sample(Arc::clone(sample)),
                    false => NextPiece::End(Arc::clone(end)),
                }
            }
            (Some(end), _) if is_new(end.number) => NextPiece::End(Arc::clone(end)),
            // No stream hands out a position beyond the run's end, so a client with such a position has not seen the end.
            (Some(end), _)
                if end.interrupt.is_none() && self.seen.is_some_and(|it| it.0 > end.number) =>
            {
                NextPiece::End(Arc::clone(end))
            }
            (Some(end), _) if end.interrupt.is_none() => NextPiece::Over,
            (_, Some(sample)) => NextPiece::Sample(Arc::clone(sample)),
            (_, None) => NextPiece::Nothing,
        }
    }

    /// Returns the next updates up to a number, or `None` if there are no more. Events without output are skipped.
    async fn updates(&mut self, until: u64) -> Result<Option<Bytes>> {
        let Some(feed) = self.feed.clone() else { return Ok(None) };
        while self.cursor.whole() < until {
            let following =
                feed.next_frame(&self.open.streams, self.cursor, self.last_frame.as_ref());
            let Some(frame) = following.await? else { return Ok(None) };
            let end = Cursor::after(frame.last.min(until));
            let bytes = frame.between(self.cursor, end);
            self.cursor = end;
            if frame.last <= until {
                self.last_frame = Some(frame);
            }
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    fn take_end(&mut self, end: &End) -> Bytes {
        if let Some(interrupt) = &end.interrupt {
            let to = &self.open.caller.principal.id;
            self.open.streams.runtime.record_shown_question(to, &self.run, interrupt);
        }
        self.finish();
        end.bytes.clone()
    }

    /// Waits for news. Returns the next piece if it must be sent without news.
    async fn wait(&mut self) -> Option<Bytes> {
        let streams = Arc::clone(&self.open.streams);
        let woken = tokio::select! {
            changed = self.watching.states.changed() => match changed {
                Ok(()) => RunWake::News,
                Err(_) => RunWake::Broken,
            },
            () = streams.lifecycle.streams_ended() => RunWake::Stopping,
            () = self.open.next_tick() => RunWake::Tick,
        };
        match woken {
            RunWake::News => None,
            RunWake::Broken => self.end_or_error(&Error::new(Code::Internal, "the sampler broke")),
            RunWake::Stopping => {
                // The shutdown itself may just have ended the run.
                let ended = self.watching.states.wait_for(|state| state.end.is_some());
                // The next line checks itself whether the end has arrived.
                drop(tokio::time::timeout(FAREWELL, ended).await);
                self.end_or_error(&stopping())
            }
            RunWake::Tick => self.tick().await,
        }
    }

    /// Returns the last piece of a stream that the server ends, unless the run's end has just arrived.
    fn end_or_error(&mut self, error: &Error) -> Option<Bytes> {
        let state = self.watching.states.borrow_and_update().clone();
        match self.due(&state) {
            NextPiece::End(end) if self.feed.is_none() || self.cursor.whole() >= end.number => {
                Some(self.take_end(&end))
            }
            _ => Some(self.end_with(error)),
        }
    }

    /// Returns a heartbeat, or the end of a stream whose token was revoked or whose store has failed.
    async fn tick(&mut self) -> Option<Bytes> {
        match self.open.tick().await {
            Ok(is_silent) => is_silent.then_some(HEARTBEAT),
            Err(error) => Some(self.end_with(&error)),
        }
    }

    /// Returns the last piece of a stream that ends before its run. It has no id, so that the client keeps its position.
    fn end_with(&mut self, error: &Error) -> Bytes {
        self.finish();
        Bytes::from(self.view.error(error))
    }
}
