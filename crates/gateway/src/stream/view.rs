//! Views: how a face renders a log.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use http::HeaderValue;
use trilogue_domain::content::BlobRef;
use trilogue_domain::event::Event;
use trilogue_domain::{Error, InterruptId, ThreadId};
use trilogue_wire::native::Gap;
use trilogue_wire::sse;

use super::cursor::Cursor;

/// A face's view of a log: a fold that yields any number of wire events for each log event.
pub(crate) trait View: Send + Sync + fmt::Debug {
    /// Returns dialect and mode: rendered bytes are shared under this name.
    fn name(&self) -> Cow<'static, str>;
    /// Returns a fold at the beginning of a run or thread.
    fn begin(&self) -> Box<dyn Fold>;
    /// Whether the rendering of an event does not depend on earlier events, so that a stream can begin in the middle without folding.
    fn is_stateless(&self) -> bool;
    /// Returns the name of the wire events, if the protocol names them.
    fn event_name(&self) -> Option<&'static str> {
        None
    }
    /// Returns the content type of a stream of this view.
    fn content_type(&self) -> HeaderValue;
    /// Returns the heartbeat of an idle stream.
    fn heartbeat(&self) -> Bytes;
    /// Returns the last bytes of a stream that ends before its log. They have no id, so that a client keeps its position.
    fn error(&self, error: &Error) -> Vec<u8>;
    /// Returns the notice that events after a client's position were removed; without id.
    fn gap(&self, gap: &Gap) -> Vec<u8>;
}

/// A view's state between two events.
pub(crate) trait Fold: Send + Sync + fmt::Debug {
    fn push(&mut self, event: &Event, place: &EventPlace<'_>, out: &mut WireEventSink);
    fn fork(&self) -> Box<dyn Fold>;
    /// Whether large content that the next event refers to must be inlined in that event.
    fn wants(&self, _: &BlobRef) -> bool {
        false
    }
    /// Whether the run waits for an answer: a stream that has shown the question ends here.
    fn is_waiting(&self) -> bool {
        false
    }
}

/// The position and run of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventPlace<'a> {
    pub(crate) thread: &'a ThreadId,
    /// The event's run, if it belongs to one that still exists.
    pub(crate) run_id: Option<&'a str>,
    /// The event's number on the stream: run number or thread number.
    pub(crate) number: u64,
}

/// Collects the wire events of a part of the log.
#[derive(Debug, Default)]
pub(crate) struct WireEventSink {
    name: Option<&'static str>,
    open: Vec<Data>,
    /// The interrupt that the current log event shows, and how many wire events show it.
    showing: Option<(InterruptId, usize)>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) marks: Vec<EventBoundary>,
    /// The shown interrupts, with the position of the wire event that shows each.
    pub(crate) shown: Vec<(Cursor, InterruptId)>,
}

/// The JSON of a wire event: created for it, or shared with others.
#[derive(Debug)]
pub(crate) enum Data {
    Own(Vec<u8>),
    Shared(Bytes),
}

/// The end of a wire event in the rendered bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventBoundary {
    pub(crate) cursor: Cursor,
    pub(crate) end: usize,
}

// === impl WireEventSink ===

impl WireEventSink {
    pub(crate) fn with_event_name(name: Option<&'static str>) -> Self {
        Self { name, ..Self::default() }
    }

    pub(crate) fn push(&mut self, data: impl Into<Data>) {
        self.open.push(data.into());
    }

    /// Marks that the wire events of the current log event so far show this interrupt to their readers.
    pub(crate) fn show(&mut self, interrupt: &InterruptId) {
        self.showing = Some((interrupt.clone(), self.open.len()));
    }

    /// Ends the current log event: its last wire event gets the number as id, earlier ones `number.1`, `number.2`…
    pub(crate) fn close(&mut self, number: u64) {
        let last = self.open.len();
        let showing = self.showing.take();
        for (sub, data) in (1_u32..).zip(std::mem::take(&mut self.open)) {
            let place = usize::try_from(sub).unwrap_or(usize::MAX);
            let (id, cursor) = if place == last {
                (number.to_string(), Cursor::after(number))
            } else {
                (format!("{number}.{sub}"), Cursor { number, sub })
            };
            sse::encode(&mut self.bytes, Some(&id), self.name, &data);
            self.marks.push(EventBoundary { cursor, end: self.bytes.len() });
            if let Some((interrupt, shows)) = &showing
                && *shows == place
            {
                self.shown.push((cursor, interrupt.clone()));
            }
        }
    }

    /// Takes the wire events of the current log event, without ids.
    pub(crate) fn take_open(&mut self) -> Vec<Data> {
        std::mem::take(&mut self.open)
    }
}

// === impl Data ===

impl std::ops::Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Own(bytes)
    }
}

impl From<Bytes> for Data {
    fn from(bytes: Bytes) -> Self {
        Self::Shared(bytes)
    }
}
