//! Views: how a face shows a log.

use std::fmt;

use trilogue_domain::event::{Event, InterruptEvent};
use trilogue_domain::{Body, InterruptId, ThreadId};
use trilogue_mapping::native as mapping;
use trilogue_wire::sse;

/// How a face shows a log: a fold that yields any number of wire events for each log event.
pub(crate) trait View: Send + Sync + fmt::Debug {
    /// Dialect and mode: rendered bytes are shared under this name.
    fn name(&self) -> &'static str;
    /// A fold at the beginning of a run or thread.
    fn begin(&self) -> Box<dyn Fold>;
    /// Whether an event looks the same whatever came before, so that nothing needs to be folded to begin in the middle.
    fn is_stateless(&self) -> bool;
}

/// A view's state between two events.
pub(crate) trait Fold: Send + Sync + fmt::Debug {
    /// Takes the next event and writes what it looks like.
    fn push(&mut self, event: &Event, place: &Place<'_>, out: &mut Out);
    /// The same state once more.
    fn fork(&self) -> Box<dyn Fold>;
}

/// Where an event stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) thread: &'a ThreadId,
    /// The event's run, when it belongs to one that still exists.
    pub(crate) run_id: Option<&'a str>,
    /// The event's number on the stream: run number or thread number.
    pub(crate) number: u64,
}

/// Takes the wire events of a stretch of log.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// The wire events of the current log event.
    open: Vec<Vec<u8>>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) shown: Vec<(u64, InterruptId)>,
}

/// Where a wire event ends in the rendered bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) cursor: super::cursor::Cursor,
    pub(crate) end: usize,
}

/// Our own face: each log event is one object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativeView;

// === impl Out ===

impl Out {
    /// Adds a wire event of the current log event.
    pub(crate) fn push(&mut self, data: Vec<u8>) {
        self.open.push(data);
    }

    /// Ends the current log event: its last wire event gets the number as id, earlier ones `number.1`, `number.2`…
    pub(crate) fn close(&mut self, event: &Event, number: u64) {
        use super::cursor::Cursor;
        if let Body::Interrupt(InterruptEvent::Raised(interrupt)) = &event.body {
            self.shown.push((number, interrupt.id.clone()));
        }
        let last = self.open.len();
        for (sub, data) in (1_u32..).zip(std::mem::take(&mut self.open)) {
            let (id, cursor) = if usize::try_from(sub).is_ok_and(|sub| sub == last) {
                (number.to_string(), Cursor::after(number))
            } else {
                (format!("{number}.{sub}"), Cursor { number, sub })
            };
            sse::encode(&mut self.bytes, Some(&id), None, &data);
            self.marks.push(Mark { cursor, end: self.bytes.len() });
        }
    }

    /// The wire events of the current log event, without ids.
    pub(crate) fn take_open(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.open)
    }
}

// === impl NativeView ===

impl View for NativeView {
    fn name(&self) -> &'static str {
        "native"
    }

    fn begin(&self) -> Box<dyn Fold> {
        Box::new(*self)
    }

    fn is_stateless(&self) -> bool {
        true
    }
}

impl Fold for NativeView {
    fn push(&mut self, event: &Event, place: &Place<'_>, out: &mut Out) {
        let event = mapping::event::event(event, place.number, place.run_id, place.thread);
        // Nothing in an event can fail to be written.
        out.push(serde_json::to_vec(&event).unwrap_or_default());
    }

    fn fork(&self) -> Box<dyn Fold> {
        Box::new(*self)
    }
}
