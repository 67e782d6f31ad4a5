//! Streams of the Agent Connect Protocol: samples of a run's output, its own updates, and one end.
//!
//! A sample is never sent before the updates that it folded in, and updates never overtake the sampler: ids only grow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderName, HeaderValue, StatusCode, header};
use tokio::time::{Interval, MissedTickBehavior, interval};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Right, RunId};
use trilogue_runtime::Presence;
use trilogue_store::rows::RunRow;

use super::Call;
use super::disconnect::CancelOnDrop;
use super::view::{ConnectView, HEARTBEAT};
use crate::access::authenticator::Caller;
use crate::core::log_ref::LogRef;
use crate::http::body::ReplyBody;
use crate::http::reply::Reply;
use crate::stream::cursor::Cursor;
use crate::stream::feed::{Chunk, Feed};
use crate::stream::sample::{End, Sample, SampleView, State, Watching};
use crate::stream::view::View;
use crate::stream::{OpenStream, Streams, stopping};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");
/// The longest that a stream without news is silent.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// How long a stream still waits for its run's end once the server is stopping.
const FAREWELL: Duration = Duration::from_millis(200);

/// What a stream shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Modes {
    /// The output so far, the newest in place of what came before.
    pub(super) values: bool,
    /// Each of the agent's own updates, in order.
    pub(super) updates: bool,
}

/// Where on a run's stream a client begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Since {
    /// At the run's beginning.
    Beginning,
    /// With what comes from now on, and the newest state.
    Now,
    /// Behind the event with this number, and behind the sample of it where `sampled`.
    After { number: u64, sampled: bool },
}

/// One client's place on a stream. It pulls: there is no queue.
struct Reader {
    streams: Arc<Streams>,
    caller: Caller,
    run: RunId,
    values: bool,
    watching: Watching,
    /// The agent's own updates, where they are shown.
    feed: Option<Arc<Feed>>,
    /// Up to where updates were sent.
    cursor: Cursor,
    /// The chunk that ends at the cursor.
    at: Option<Arc<Chunk>>,
    /// The number up to which samples and ends are known, and whether its sample is.
    seen: Option<(u64, bool)>,
    /// Whether a sample comes before the end, however soon that is.
    begins: bool,
    /// How many events the run had when it was looked up, at least.
    known: u64,
    view: Arc<ConnectView>,
    done: bool,
    ticks: Interval,
    heartbeat: Duration,
    checked_at: Instant,
    sent_at: Instant,
    on_disconnect: Option<CancelOnDrop>,
    _presence: Option<Presence>,
    _open: OpenStream,
}

/// What the sampler has for a reader.
enum NextPiece {
    Sample(Arc<Sample>),
    End(Arc<End>),
    /// Nothing yet.
    Nothing,
    /// Nothing any more: the client has the end.
    Over,
}

/// What woke a reader.
enum WakeReason {
    News,
    /// The sampler is gone and said nothing.
    Broken,
    Tick,
    Stopping,
}

// === impl Since ===

impl Since {
    /// The place that the header `Last-Event-ID` names, else this one. `0` and `-1` are the beginning.
    ///
    /// # Errors
    /// `invalid_cursor`.
    pub(super) fn of(call: &Call, otherwise: Self) -> Result<Self> {
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
///
/// # Errors
/// `overloaded` when there are too many, `shutting_down`, `invalid_cursor` when the place lies beyond the log.
pub(super) async fn open(
    call: &Call,
    run: &RunRow,
    modes: Modes,
    since: Since,
    on_disconnect: Option<CancelOnDrop>,
) -> Result<Reply> {
    let streams = &call.state.streams;
    let open = streams.open()?;
    if let Since::After { number, .. } = since
        && run.status.is_terminal()
        && number > run.last_run_number
    {
        return Err(Cursor::after(number).beyond(run.last_run_number));
    }
    let view = Arc::new(ConnectView::of(call, run));
    let sampled = Arc::clone(&view) as Arc<dyn SampleView>;
    let Modes { values, updates } = modes;
    let mut watching = streams.samplers.watch(&streams.read, run, sampled, values, updates);
    let cursor = match since {
        Since::Beginning => Cursor::START,
        Since::After { number, .. } => Cursor::after(number),
        Since::Now if updates => Cursor::after(present(&mut watching).await),
        Since::Now => Cursor::START,
    };
    let updates_view = || Arc::clone(&view) as Arc<dyn View>;
    let feed = updates
        .then(|| streams.feeds.open(&streams.read, LogRef::from(run), Some(run), updates_view()));
    let heartbeat = streams.heartbeat.min(MAX_SILENCE);
    let mut ticks = interval(streams.token_recheck.min(heartbeat));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    let may_answer = call.principal().rights.has(Right::Answer);
    let reader = Reader {
        caller: call.caller.clone(),
        run: run.id.clone(),
        values,
        watching,
        feed,
        cursor,
        at: None,
        seen: match since {
            Since::After { number, sampled } => Some((number, sampled)),
            Since::Beginning | Since::Now => None,
        },
        begins: since == Since::Beginning,
        known: run.last_run_number,
        view,
        done: false,
        ticks,
        heartbeat,
        checked_at: Instant::now(),
        sent_at: Instant::now(),
        on_disconnect,
        _presence: may_answer.then(|| streams.runtime.present(run.thread)),
        _open: open,
        streams: Arc::clone(streams),
    };
    Ok(Reply::new(StatusCode::OK, ReplyBody::pieces(pieces(reader)))
        .header(header::CONTENT_TYPE, EVENT_STREAM)
        .header(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")))
}

/// The number of the run's last event when the stream is opened.
async fn present(watching: &mut Watching) -> u64 {
    let known = |state: &State| state.caught_up || state.end.is_some() || state.failed.is_some();
    // A sampler that broke has said nothing: the reader finds out.
    watching.states.wait_for(known).await.map_or(0, |state| state.last)
}

fn pieces(reader: Reader) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
    futures_util::stream::unfold(reader, |mut reader| async move {
        let Some(piece) = reader.next().await else {
            reader.finish();
            return None;
        };
        reader.sent_at = Instant::now();
        reader.streams.meters.stream_bytes.increment(piece.len() as u64);
        Some((Ok(piece), reader))
    })
}

// === impl Reader ===

impl Reader {
    async fn next(&mut self) -> Option<Bytes> {
        while !self.done {
            if self.checked_at.elapsed() >= self.streams.token_recheck
                && let Some(end) = self.check_token().await
            {
                return Some(end);
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
                    self.begins = false;
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

    fn due(&self, state: &State) -> NextPiece {
        let is_new = |number: u64| self.seen.is_none_or(|(seen, _)| number > seen);
        let newest = state.newest.as_ref().filter(|sample| {
            let unseen = is_new(sample.number) || self.seen == Some((sample.number, false));
            // One that updates have overtaken on another way is old news.
            let overtaken = self.feed.is_some() && sample.number < self.cursor.whole();
            self.values && unseen && !overtaken
        });
        let end = state.end_at(self.known);
        match (end, newest) {
            (Some(end), Some(sample)) if self.begins && is_new(end.number) => {
                match sample.number < end.number {
                    true => NextPiece::Sample(Arc::clone(sample)),
                    false => NextPiece::End(Arc::clone(end)),
                }
            }
            (Some(end), _) if is_new(end.number) => NextPiece::End(Arc::clone(end)),
            // A place beyond the run's end is none that a stream has given: nobody who has it knows the end.
            (Some(end), _)
                if end.asks.is_none() && self.seen.is_some_and(|it| it.0 > end.number) =>
            {
                NextPiece::End(Arc::clone(end))
            }
            (Some(end), _) if end.asks.is_none() => NextPiece::Over,
            (_, Some(sample)) => NextPiece::Sample(Arc::clone(sample)),
            (_, None) => NextPiece::Nothing,
        }
    }

    /// The next updates up to a number; `None` when there are no more. What shows nothing is passed.
    async fn updates(&mut self, until: u64) -> Result<Option<Bytes>> {
        let Some(feed) = self.feed.clone() else { return Ok(None) };
        while self.cursor.whole() < until {
            let chunk = match feed.rendered(self.cursor) {
                Some(chunk) => chunk,
                None => {
                    let read = &self.streams.read;
                    let advanced = feed.advance(read, self.cursor, self.at.as_ref());
                    let Some((chunk, rendered)) = advanced.await? else { return Ok(None) };
                    self.streams.meters.frames_rendered.increment(rendered as u64);
                    chunk
                }
            };
            let end = Cursor::after(chunk.last.min(until));
            let bytes = chunk.between(self.cursor, end);
            self.cursor = end;
            if chunk.last <= until {
                self.at = Some(chunk);
            }
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    fn take_end(&mut self, end: &End) -> Bytes {
        if let Some(interrupt) = &end.asks {
            let to = &self.caller.principal.id;
            self.streams.runtime.shown(to, &self.run, interrupt);
        }
        self.finish();
        end.bytes.clone()
    }

    /// Waits for news; gives what is to be sent without any.
    async fn wait(&mut self) -> Option<Bytes> {
        let woken = tokio::select! {
            changed = self.watching.states.changed() => match changed {
                Ok(()) => WakeReason::News,
                Err(_) => WakeReason::Broken,
            },
            () = self.streams.lifecycle.streams_ended() => WakeReason::Stopping,
            _ = self.ticks.tick() => WakeReason::Tick,
        };
        match woken {
            WakeReason::News => None,
            WakeReason::Broken => self.is_over_or(&Error::new(Code::Internal, "the sampler broke")),
            WakeReason::Stopping => {
                // The shutdown itself may just have ended the run.
                let ended = self.watching.states.wait_for(|state| state.end.is_some());
                drop(tokio::time::timeout(FAREWELL, ended).await);
                self.is_over_or(&stopping())
            }
            WakeReason::Tick => self.tick().await,
        }
    }

    /// The last piece of a stream that is ended by us, unless its end has just come.
    fn is_over_or(&mut self, error: &Error) -> Option<Bytes> {
        let state = self.watching.states.borrow_and_update().clone();
        match self.due(&state) {
            NextPiece::End(end) if self.feed.is_none() || self.cursor.whole() >= end.number => {
                Some(self.take_end(&end))
            }
            _ => Some(self.end_with(error)),
        }
    }

    /// A sign of life, or the end of a stream whose token is gone or whose store is broken.
    async fn tick(&mut self) -> Option<Bytes> {
        if let Some(end) = self.check_token().await {
            return Some(end);
        }
        if let Err(error) = self.streams.check_store() {
            return Some(self.end_with(&error));
        }
        (self.sent_at.elapsed() >= self.heartbeat).then_some(HEARTBEAT)
    }

    async fn check_token(&mut self) -> Option<Bytes> {
        self.checked_at = Instant::now();
        let error = self.streams.check_token(&self.caller).await.err()?;
        Some(self.end_with(&error))
    }

    /// The last piece of a stream that ends before its run does. It has no id, so that a client's place stays.
    fn end_with(&mut self, error: &Error) -> Bytes {
        self.finish();
        Bytes::from(self.view.error(error))
    }

    /// We end the stream: that is no disconnect of the client's.
    fn finish(&mut self) {
        self.done = true;
        if let Some(guard) = &mut self.on_disconnect {
            guard.disarm();
        }
    }
}
