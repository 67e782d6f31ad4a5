//! The positions on event streams that requests name.

use http::HeaderName;
use trilogue_domain::error::Result;

use crate::http::request::Request;
use crate::stream::cursor::Cursor;

pub(in crate::faces) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Returns the position that a client requests: `Last-Event-ID`, otherwise `after`, otherwise the beginning.
/// Errors: `invalid_cursor`.
pub(in crate::faces) fn after(request: &Request) -> Result<Cursor> {
    position(request).map_or(Ok(Cursor::START), Cursor::parse)
}

/// Returns the position that a client names, if any.
pub(in crate::faces) fn position(request: &Request) -> Option<&str> {
    request.header(&LAST_EVENT_ID).filter(|id| !id.is_empty()).or(request.query("after"))
}
