//! Renders a run as a stream of this protocol's events.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use serde_json::json;
use trilogue_domain::content::BlobRef;
use trilogue_domain::event::Event;
use trilogue_domain::{Error, InterruptId};
use trilogue_mapping::communication::{Projection, ProjectionOptions};
use trilogue_wire::agent_communication as wire;
use trilogue_wire::native::Gap;

use super::{CommunicationCall, fault};
use crate::face::MountPoint;
use crate::stream::view::{EventPlace, Fold, View, WireEventSink};

/// A mount's view of runs on streams. Readers share its output, so it must not contain the host of one request.
#[derive(Clone, Debug)]
pub(crate) struct CommunicationView {
    strict: bool,
    base: Arc<str>,
    max_inline_bytes: u64,
}

#[derive(Clone, Debug)]
struct StreamFold(Projection);

pub(super) fn of(call: &CommunicationCall) -> Arc<CommunicationView> {
    let state = &call.state;
    Arc::new(CommunicationView::at(&state.place, state.options.strict, state.max_output_bytes))
}

// === impl CommunicationView ===

impl CommunicationView {
    pub(crate) fn at(place: &MountPoint, strict: bool, max_inline_bytes: usize) -> Self {
        Self { strict, base: Arc::clone(&place.base), max_inline_bytes: max_inline_bytes as u64 }
    }
}

impl View for CommunicationView {
    fn name(&self) -> Cow<'static, str> {
        let mode = if self.strict { "strict" } else { "compatible" };
        Cow::Owned(format!("communication {mode} {}", self.base))
    }

    fn begin(&self) -> Box<dyn Fold> {
        Box::new(StreamFold(Projection::new(ProjectionOptions {
            strict: self.strict,
            base: Arc::clone(&self.base),
            max_inline_bytes: self.max_inline_bytes,
            input: false,
        })))
    }

    fn is_stateless(&self) -> bool {
        false
    }

    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static("text/event-stream; charset=utf-8")
    }

    /// Has no blank line at its end: after an event with an id, official clients would take one for an event.
    fn heartbeat(&self) -> Bytes {
        Bytes::from_static(b": keep-alive\n")
    }

    fn error(&self, error: &Error) -> Vec<u8> {
        let error = fault::describe(error, fault::status(error.code()), None);
        line(&wire::Event::Error { error })
    }

    fn gap(&self, gap: &Gap) -> Vec<u8> {
        let Gap { after, first } = gap;
        let gap = json!({ "kind": "gap", "after": after, "first": first });
        line(&wire::Event::Generic { generic: wire::Json::from_value(&gap) })
    }
}

/// Renders an event without an id, so that a client keeps its position.
fn line(event: &wire::Event) -> Vec<u8> {
    let mut data = Vec::new();
    event.write(&mut data);
    wire::sse::safe(&mut data);
    let mut bytes = Vec::with_capacity(data.len() + 8);
    trilogue_wire::sse::encode(&mut bytes, None, None, &data);
    bytes
}

// === impl StreamFold ===

impl StreamFold {
    fn pending_interrupt(&self) -> Option<InterruptId> {
        self.0.awaiting().map(|interrupt| interrupt.id.clone())
    }
}

impl Fold for StreamFold {
    fn push(&mut self, event: &Event, place: &EventPlace<'_>, out: &mut WireEventSink) {
        let before = self.pending_interrupt();
        for data in self.0.push(event, place.thread) {
            out.push(data);
        }
        // A new question is part of the event that reports it: `run.awaiting`.
        if let Some(asked) = self.pending_interrupt()
            && before.as_ref() != Some(&asked)
        {
            out.show(&asked);
        }
    }

    fn fork(&self) -> Box<dyn Fold> {
        Box::new(self.clone())
    }

    fn wants(&self, blob: &BlobRef) -> bool {
        self.0.can_inline(blob)
    }

    fn is_waiting(&self) -> bool {
        self.0.awaiting().is_some()
    }
}
