//! A request's origin in header fields: its trace, and the agents that passed it on.

use trilogue_domain::{Provenance, TraceContext, limits};

/// W3C Trace Context, section 3.2.
pub const TRACEPARENT: &str = "traceparent";
/// The names of the agents behind other servers that passed a request on, with commas between them. Our own header.
pub const VIA: &str = "trilogue-via";

/// Reads the values of [`TRACEPARENT`] and [`VIA`]. Malformed values are left out; of a list that is too long only the beginning is read, which is enough to refuse it.
#[must_use]
pub fn provenance(trace: Option<&str>, via: Option<&str>) -> Option<Box<Provenance>> {
    let trace = trace.filter(|trace| is_traceparent(trace)).map(str::to_owned);
    let names = via.unwrap_or_default().split(',').map(str::trim);
    let is_name = |name: &&str| uuid::Uuid::try_parse(name).is_ok();
    let hops: Vec<_> =
        names.filter(is_name).take(limits::MAX_HOPS).map(str::to_ascii_lowercase).collect();
    (trace.is_some() || !hops.is_empty()).then(|| Box::new(Provenance { trace, hops }))
}

/// Returns the header fields for a provenance.
#[must_use]
pub fn provenance_headers(provenance: Provenance) -> Vec<(&'static str, String)> {
    let Provenance { trace, hops } = provenance;
    let via = (!hops.is_empty()).then(|| (VIA, hops.join(", ")));
    trace.map(|trace| (TRACEPARENT, trace)).into_iter().chain(via).collect()
}

/// Whether this is a `traceparent` of version 00: trace id, parent id, flags.
#[must_use]
pub fn is_traceparent(value: &str) -> bool {
    TraceContext::parse(value).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_is_told_is_read_again() {
        let hops: Vec<_> = (1..=3).map(|n| uuid::Uuid::from_u128(n).to_string()).collect();
        let told = Provenance { trace: Some(TRACE.to_owned()), hops };
        let headers = provenance_headers(told.clone());
        let value = |name| headers.iter().find(|(other, _)| *other == name).map(|(_, it)| &**it);
        let read = provenance(value(TRACEPARENT), value(VIA));
        assert_eq!(read.as_deref(), Some(&told));
        assert_eq!(provenance(Some("x"), Some("a, ,b")), None);
        let many = vec![uuid::Uuid::nil().to_string(); limits::MAX_HOPS + 5].join(",");
        assert_eq!(provenance(None, Some(&many)).unwrap().hops.len(), limits::MAX_HOPS);
    }
}
