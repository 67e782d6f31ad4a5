//! Where a request for a run came from beyond this server.

use trilogue_domain::Provenance;
use trilogue_mapping::provenance as mapping;

use crate::http::request::Request;

/// The trace that the request belongs to, and the agents elsewhere that passed it on, where it names any.
pub(in crate::faces) fn provenance(request: &Request) -> Option<Box<Provenance>> {
    let text = |name| request.headers.get(name).and_then(|value| value.to_str().ok());
    mapping::provenance(text(mapping::TRACEPARENT), text(mapping::VIA))
}
