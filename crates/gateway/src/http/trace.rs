//! W3C trace context and request ids.

use http::{HeaderMap, HeaderName, HeaderValue};
use tracing::Span;

use super::reply::REQUEST_ID;

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const MAX_REQUEST_ID_BYTES: usize = 128;

/// The trace a request belongs to, when its client named a valid one.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) parent: Option<HeaderValue>,
}

// === impl Trace ===

impl Trace {
    /// Reads `traceparent`: version 00, trace id, parent id, flags; a malformed one is ignored, as the standard wants.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let parent = headers.get(TRACEPARENT);
        Self { parent: parent.filter(|value| is_traceparent(value.as_bytes())).cloned() }
    }

    /// A span for the request: where the client wants to find it again, by a trace or by an id of its own, from level `info` on, else from `debug` on.
    /// What fails by a fault of ours is logged with the request's id in either case.
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

/// The id that the client chose, where it is fit for a log.
pub(crate) fn chosen_request_id(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(REQUEST_ID)?.to_str().ok()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    (!text.is_empty() && text.len() <= MAX_REQUEST_ID_BYTES && text.bytes().all(fits))
        .then_some(text)
}

fn is_traceparent(value: &[u8]) -> bool {
    let lower_hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let some = |part: &[u8]| part.iter().any(|byte| *byte != b'0');
    let parts: Vec<_> = value.split(|byte| *byte == b'-').collect();
    matches!(
        parts.as_slice(),
        [b"00", trace, parent, flags]
            if trace.len() == 32 && parent.len() == 16 && flags.len() == 2
                && [trace, parent, flags].into_iter().all(|part| lower_hex(part))
                && some(trace) && some(parent)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_trace_context_is_taken() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert!(is_traceparent(format!("00-{trace}-00f067aa0ba902b7-01").as_bytes()));
        for bad in [
            String::new(),
            format!("01-{trace}-00f067aa0ba902b7-01"),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
            format!("00-{trace}-00f067aa0ba902b7-01-x"),
        ] {
            assert!(!is_traceparent(bad.as_bytes()), "{bad}");
        }
    }
}
