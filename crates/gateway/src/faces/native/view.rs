//! Renders events for streams of `/api/v1`.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderValue;
use trilogue_domain::event::{Event, InterruptEvent};
use trilogue_domain::{Body, Error};
use trilogue_mapping::native as mapping;
use trilogue_wire::native::Gap;
use trilogue_wire::sse;

use crate::http::problem;
use crate::stream::view::{EventPlace, Fold, View, WireEventSink};

/// The view of the native face: each log event is one object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativeView;

// === impl NativeView ===

impl View for NativeView {
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("native")
    }

    fn begin(&self) -> Box<dyn Fold> {
        Box::new(*self)
    }

    fn is_stateless(&self) -> bool {
        true
    }

    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static("text/event-stream")
    }

    fn heartbeat(&self) -> Bytes {
        Bytes::from_static(b": still here\n\n")
    }

    fn error(&self, error: &Error) -> Vec<u8> {
        let data = serde_json::to_vec(&problem::describe(error, None)).unwrap_or_default();
        let mut bytes = Vec::with_capacity(data.len() + 32);
        sse::encode(&mut bytes, None, Some("error"), &data);
        bytes
    }

    fn gap(&self, gap: &Gap) -> Vec<u8> {
        let data = serde_json::to_vec(gap).unwrap_or_default();
        let mut bytes = Vec::with_capacity(data.len() + 32);
        sse::encode(&mut bytes, None, Some("gap"), &data);
        bytes
    }
}

impl Fold for NativeView {
    fn push(&mut self, event: &Event, place: &EventPlace<'_>, out: &mut WireEventSink) {
        let wire = mapping::event::event(event, place.number, place.run_id, place.thread);
        // Serialising an event cannot fail.
        out.push(serde_json::to_vec(&wire).unwrap_or_default());
        if let Body::Interrupt(InterruptEvent::Raised(interrupt)) = &event.body {
            out.show(&interrupt.id);
        }
    }

    fn fork(&self) -> Box<dyn Fold> {
        Box::new(*self)
    }
}
