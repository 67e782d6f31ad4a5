//! The CORS headers that let a page of another origin read a response.
//!
//! Only configured origins get these headers, each with its own name and never `*`. Credentials that a browser adds by itself are never allowed: a page must send its token.

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use super::body::ReplyBody;
use super::reply::Reply;
use crate::access::origin_guard::AllowedOrigin;

const ORIGIN: HeaderValue = HeaderValue::from_static("Origin");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, x-api-key, content-type, idempotency-key, interrupt-id, last-event-id, traceparent, acp-connection-id, acp-session-id",
);
/// The headers that a page can read in addition to the default ones.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "trilogue-durability, x-request-id, location, content-location, run-id, x-run-id, interrupt-id, x-acp-error-code, x-acp-error-transient, retry-after, warning, link, trilogue-next, www-authenticate, acp-connection-id",
);
/// How long a browser can cache a preflight response, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
const REQUEST_METHOD: HeaderName = header::ACCESS_CONTROL_REQUEST_METHOD;

/// Lets the page of this origin read a response.
pub(crate) fn mark(reply: Reply, origin: AllowedOrigin) -> Reply {
    reply
        .header(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.0)
        .header(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED)
        .header(header::VARY, ORIGIN)
}

/// Whether this is a browser's preflight request.
pub(crate) fn is_preflight(head: &Parts) -> bool {
    head.method == Method::OPTIONS && head.headers.contains_key(REQUEST_METHOD)
}

/// Returns the response to a preflight request on a path with these methods.
pub(crate) fn preflight(methods: &str) -> Reply {
    Reply::new(StatusCode::NO_CONTENT, ReplyBody::Whole(None))
        .header_text(header::ACCESS_CONTROL_ALLOW_METHODS, methods)
        .header(header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS)
        .header(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE)
}
