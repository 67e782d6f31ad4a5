//! Events in the form for clients without special capabilities.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderValue;
use trilogue_domain::content::BlobRef;
use trilogue_domain::{Error, Event, ThreadId};
use trilogue_mapping::agent_client::{self as mapping, Gate, IdFormat, Updates};
use trilogue_wire::native::Gap;

use crate::stream::view::{EventPlace, Fold, View, WireEventSink};

/// Renders a thread's log as notifications that every client can take.
#[derive(Clone, Debug)]
pub(crate) struct EventForm(pub(crate) ThreadId);

#[derive(Clone, Debug)]
struct NotificationFold(Updates);

// === impl EventForm ===

/// No stream uses this view: callers render each event separately.
impl View for EventForm {
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("client notifications")
    }

    fn begin(&self) -> Box<dyn Fold> {
        Box::new(NotificationFold(Updates::with_ids(&self.0, IdFormat::default())))
    }

    fn is_stateless(&self) -> bool {
        false
    }

    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static("application/json")
    }

    fn heartbeat(&self) -> Bytes {
        Bytes::new()
    }

    fn error(&self, _: &Error) -> Vec<u8> {
        Vec::new()
    }

    fn gap(&self, _: &Gap) -> Vec<u8> {
        Vec::new()
    }
}

// === impl NotificationFold ===

impl Fold for NotificationFold {
    fn push(&mut self, event: &Event, place: &EventPlace<'_>, out: &mut WireEventSink) {
        let mut updates = Vec::new();
        self.0.push(event, place.run_id, &mut updates);
        // Updates from a hosted agent are relayed unchanged.
        let mut relayed = Vec::new();
        let is_relayed = event.original.as_ref().is_some_and(|original| {
            let relay = self.0.relay();
            original.version == mapping::VERSION
                && relay.push_line_into(&original.dialect, &original.bytes, &mut relayed).is_some()
        });
        if is_relayed {
            out.push(relayed);
            return;
        }
        // A notice has a second form for clients that cannot take it; omit the first.
        for update in updates.iter().filter(|update| update.gate != Gate::NoNotices) {
            let mut line = Vec::new();
            update.push_line_into(&mut line);
            out.push(line);
        }
    }

    fn fork(&self) -> Box<dyn Fold> {
        Box::new(self.clone())
    }

    fn wants(&self, blob: &BlobRef) -> bool {
        self.0.can_inline(blob)
    }
}
