//! The origin of a request outside this server.

use trilogue_domain::Provenance;
use trilogue_mapping::provenance as mapping;

use crate::http::request::Request;

/// Returns the request's trace and the remote agents that passed it on, if it names any.
pub(in crate::faces) fn provenance(request: &Request) -> Option<Box<Provenance>> {
    let text = |name| request.headers.get(name).and_then(|value| value.to_str().ok());
    mapping::provenance(text(mapping::TRACEPARENT), text(mapping::VIA))
}
