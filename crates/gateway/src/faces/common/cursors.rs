//! Positions on event streams, as requests name them.

use http::HeaderName;
use trilogue_domain::error::Result;

use crate::http::request::Request;
use crate::stream::cursor::Cursor;

pub(in crate::faces) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The position that a client asks for, `Last-Event-ID` before `after`; the beginning where it names none.
/// Errors: `invalid_cursor`.
pub(in crate::faces) fn after(request: &Request) -> Result<Cursor> {
    position(request).map_or(Ok(Cursor::START), Cursor::parse)
}

/// The position that a client names, where it names one.
pub(in crate::faces) fn position(request: &Request) -> Option<&str> {
    request.header(&LAST_EVENT_ID).filter(|id| !id.is_empty()).or(request.query("after"))
}
