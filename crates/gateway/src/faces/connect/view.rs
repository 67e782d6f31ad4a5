//! Renders a run as this protocol's streams: samples of its output, its own updates, and its end.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use trilogue_domain::content::BlobRef;
use trilogue_domain::{
    AgentCard, AgentName, Code, Error, Event, InputKind, InterruptId, Outcome, RunId, ThreadId,
};
use trilogue_mapping::connect::{Updates, Values, ValuesOptions, run_error};
use trilogue_runtime::Runtime;
use trilogue_store::rows::RunRow;
use trilogue_wire::agent_connect::{self as wire, sse};
use trilogue_wire::native::Gap;

use super::{ConnectCall, fault};
use crate::face::MountPoint;
use crate::stream::sample::{SampleFold, SampleView};
use crate::stream::view::{EventPlace, Fold, View, WireEventSink};

/// The heartbeat of an idle stream.
pub(super) const HEARTBEAT: Bytes = Bytes::from_static(sse::PING);

/// A mount's view of one run on streams. Readers share its output, so it must not contain the host of one request.
#[derive(Clone, Debug)]
pub(crate) struct ConnectView {
    runtime: Runtime,
    agent: AgentName,
    run: RunId,
    thread: ThreadId,
    base: Arc<str>,
    max_inline_bytes: u64,
}

#[derive(Debug)]
struct ValuesFold {
    values: Values,
    /// The version of the output in the last snapshot.
    shown: u64,
}

#[derive(Clone, Debug)]
struct UpdatesFold(Updates);

/// Returns the card of a run's agent; for an agent that is not served any more, a card built from its name.
pub(super) fn card_of(runtime: &Runtime, agent: &AgentName) -> AgentCard {
    runtime.agent(agent).cloned().unwrap_or_else(|_| unknown(agent.clone()))
}

/// Returns the card of an agent of which only the name is known.
pub(super) fn unknown(name: AgentName) -> AgentCard {
    AgentCard::new(name, InputKind::Chat)
}

// === impl ConnectView ===

impl ConnectView {
    pub(super) fn of(call: &ConnectCall, run: &RunRow) -> Self {
        let state = &call.state;
        let (place, max_inline_bytes) = (&state.place, state.max_output_bytes);
        Self::at(place, &state.runtime, run, max_inline_bytes)
    }

    pub(crate) fn at(
        place: &MountPoint,
        runtime: &Runtime,
        run: &RunRow,
        max_inline_bytes: usize,
    ) -> Self {
        Self {
            runtime: runtime.clone(),
            agent: run.agent.clone(),
            run: run.id.clone(),
            thread: run.thread_id.clone(),
            base: Arc::clone(&place.base),
            max_inline_bytes: max_inline_bytes as u64,
        }
    }

    fn card(&self) -> AgentCard {
        card_of(&self.runtime, &self.agent)
    }
}

impl SampleView for ConnectView {
    fn name(&self) -> Cow<'static, str> {
        Cow::Owned(format!("connect {}", self.base))
    }

    fn begin(&self) -> Box<dyn SampleFold> {
        let show = ValuesOptions {
            card: Arc::new(self.card()),
            base: Arc::clone(&self.base),
            max_inline_bytes: self.max_inline_bytes,
        };
        Box::new(ValuesFold { values: Values::new(show, &self.run, &self.thread), shown: 0 })
    }

    fn event(&self, id: &str, data: &[u8]) -> Bytes {
        Bytes::from(sse::event(id, data))
    }

    fn removed_run_data(&self) -> Bytes {
        let outcome = Outcome::Cancelled { reason: Some(Code::RunRolledBack) };
        let error = run_error(&outcome, &self.card(), self.run.as_str());
        let event = error.map(|error| {
            let status = wire::RunStatus::Error;
            wire::StreamPayload::Error(wire::ErrorUpdate { status, error })
        });
        event.and_then(|event| serde_json::to_vec(&event).ok()).unwrap_or_default().into()
    }
}

impl View for ConnectView {
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("connect updates")
    }

    fn begin(&self) -> Box<dyn Fold> {
        Box::new(UpdatesFold(Updates::new(&self.card(), &self.run, &self.thread)))
    }

    fn is_stateless(&self) -> bool {
        false
    }

    fn event_name(&self) -> Option<&'static str> {
        Some(sse::EVENT)
    }

    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static("text/event-stream; charset=utf-8")
    }

    fn heartbeat(&self) -> Bytes {
        HEARTBEAT
    }

    /// The run continues, so its status is `pending`.
    fn error(&self, error: &Error) -> Vec<u8> {
        let told = fault::describe(error);
        let error = wire::RunError {
            run_id: self.run.as_str().to_owned(),
            errcode: i64::from(told.errcode),
            description: told.description,
            code: Some(told.code),
            transient: told.transient,
            data: told.data,
        };
        let status = wire::RunStatus::Pending;
        let event = wire::StreamPayload::Error(wire::ErrorUpdate { status, error });
        let data = sse::ascii(&serde_json::to_vec(&event).unwrap_or_default());
        let mut bytes = Vec::with_capacity(data.len() + 32);
        trilogue_wire::sse::encode(&mut bytes, None, Some(sse::EVENT), &data);
        bytes
    }

    /// A run's own numbers have no gaps.
    fn gap(&self, _: &Gap) -> Vec<u8> {
        Vec::new()
    }
}

// === impl ValuesFold ===

impl SampleFold for ValuesFold {
    fn push(&mut self, event: &Event) {
        self.values.push(event);
    }

    fn wants(&self, blob: &BlobRef) -> bool {
        self.values.can_inline(blob)
    }

    fn has_news(&self) -> bool {
        self.values.version() > self.shown
    }

    fn snapshot(&mut self) -> Option<Bytes> {
        self.shown = self.values.version();
        self.values.snapshot()
    }

    fn end(&self) -> Option<Bytes> {
        self.values.terminal()
    }

    fn pending_interrupt(&self) -> Option<InterruptId> {
        self.values.interrupt().map(|interrupt| interrupt.id.clone())
    }
}

// === impl UpdatesFold ===

impl Fold for UpdatesFold {
    fn push(&mut self, event: &Event, _: &EventPlace<'_>, out: &mut WireEventSink) {
        if let Some(data) = self.0.push(event) {
            out.push(sse::ascii(&data));
        }
    }

    fn fork(&self) -> Box<dyn Fold> {
        Box::new(self.clone())
    }
}
