//! Content negotiation.

use http::header;

use crate::http::request::Request;

pub(in crate::faces) fn wants_stream(request: &Request) -> bool {
    request.header(&header::ACCEPT).is_some_and(|accept| {
        accept.split(',').any(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("text/event-stream")
        })
    })
}
