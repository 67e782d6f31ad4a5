//! W3C trace context and request ids.

use http::{HeaderMap, HeaderName, HeaderValue};
use tracing::Span;
use trilogue_mapping::provenance;

use super::reply::REQUEST_ID;

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static(provenance::TRACEPARENT);
const MAX_REQUEST_ID_BYTES: usize = 128;

/// The trace of a request, if its client named a valid one.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) parent: Option<HeaderValue>,
}

// === impl Trace ===

impl Trace {
    /// Reads `traceparent`: version 00, trace id, parent id, flags; ignores a malformed one, as the standard requires.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let parent = headers.get(TRACEPARENT);
        let is_valid = |value: &&HeaderValue| value.to_str().is_ok_and(provenance::is_traceparent);
        Self { parent: parent.filter(is_valid).cloned() }
    }

    /// Returns a span for the request: at level `info` if the client named a trace or its own request id, otherwise at `debug`.
    /// Server errors are logged with the request's id in either case.
    pub(crate) fn span(&self, operation: &'static str, request_id: &str, is_chosen: bool) -> Span {
        if !is_chosen && self.parent.is_none() {
            return tracing::debug_span!("request", operation, request_id);
        }
        let parent = self.parent.as_ref().and_then(|value| value.to_str().ok());
        tracing::info_span!(
            "request",
            operation,
            request_id,
            trace_id = parent.and_then(|parent| parent.get(3..35)),
            parent_id = parent.and_then(|parent| parent.get(36..52)),
        )
    }
}

/// Returns the id that the client chose, if it is suitable for a log.
pub(crate) fn chosen_request_id(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(REQUEST_ID)?.to_str().ok()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    (!text.is_empty() && text.len() <= MAX_REQUEST_ID_BYTES && text.bytes().all(fits))
        .then_some(text)
}
