//! Traces of runs, and their spans.
//!
//! The trace ids of a run are derived from its own id. They are the same before and after a restart, so they need not be stored.

use std::fmt;

use uuid::Uuid;

use crate::id::{RunId, TenantId};

/// Bit 0 of the flags: the trace is recorded. (W3C Trace Context, section 3.2.2.5.)
const SAMPLED: u8 = 1;
/// The number of random bits of a trace id that decide about sampling.
const SAMPLING_BITS: u32 = 56;

/// A span of a trace, like a W3C `traceparent` of version 00.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TraceContext {
    /// The trace; not all zero.
    pub trace: [u8; 16],
    /// The span; not all zero.
    pub span: [u8; 8],
    /// Whether the trace is recorded.
    pub is_sampled: bool,
}

/// The span of a run, and its caller's span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunTrace {
    /// The run's own span.
    pub context: TraceContext,
    /// The span of the caller; `None` if the trace begins with the run.
    pub caller: Option<[u8; 8]>,
}

// === impl TraceContext ===

impl TraceContext {
    /// Parses a `traceparent` of version 00: trace id, parent id, flags. Returns `None` if it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, '-');
        let (version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if version != "00" || parts.next().is_some() {
            return None;
        }
        let (trace, span, [flags]) = (bytes::<16>(trace)?, bytes::<8>(span)?, bytes::<1>(flags)?);
        let is_id = |id: &[u8]| id.iter().any(|byte| *byte != 0);
        let is_sampled = flags & SAMPLED != 0;
        (is_id(&trace) && is_id(&span)).then_some(Self { trace, span, is_sampled })
    }

    /// Returns the id of a child span for this name.
    #[must_use]
    pub fn child(&self, what: &str) -> [u8; 8] {
        span_id(&format!("{:016x}/{what}", u64::from_be_bytes(self.span)))
    }
}

/// Writes a `traceparent` header.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (u128::from_be_bytes(self.trace), u64::from_be_bytes(self.span));
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", u8::from(self.is_sampled))
    }
}

// === impl RunTrace ===

impl RunTrace {
    /// Returns the span of a run whose request had this `traceparent`. A trace that begins here is sampled with this probability.
    #[must_use]
    pub fn of(tenant: &TenantId, run: &RunId, caller: Option<&str>, sample_ratio: f64) -> Self {
        let caller = caller.and_then(TraceContext::parse);
        // Two servers of one trace can have runs with the same id, because clients choose ids.
        let above = caller.map_or(0, |caller| u64::from_be_bytes(caller.span));
        let name = format!("{tenant}/{run}/{above:016x}");
        let span = span_id(&name);
        let context = match caller {
            Some(caller) => TraceContext { span, ..caller },
            None => {
                let trace = hash(&format!("trace/{name}"));
                TraceContext { trace, span, is_sampled: is_sampled(trace, sample_ratio) }
            }
        };
        Self { context, caller: caller.map(|caller| caller.span) }
    }
}

/// Returns `true` if a trace that begins here is recorded. Every server decides the same for one id.
fn is_sampled(trace: [u8; 16], ratio: f64) -> bool {
    let most = 1_u64 << SAMPLING_BITS;
    let random = u128::from_be_bytes(trace) as u64 & (most - 1);
    (random as f64) < ratio * most as f64
}

fn hash(name: &str) -> [u8; 16] {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).into_bytes()
}

/// Returns a span id. It is never zero, because it contains the version bits of the UUID that it is cut from.
fn span_id(name: &str) -> [u8; 8] {
    let mut span = [0; 8];
    span.copy_from_slice(hash(name).split_at(8).0);
    span
}

/// Parses lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut out = [0; N];
    for (byte, [high, low]) in out.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn of(run: &str, caller: Option<&str>, ratio: f64) -> RunTrace {
        RunTrace::of(&TenantId::parse("t").unwrap(), &RunId::parse(run).unwrap(), caller, ratio)
    }

    #[test]
    fn only_a_valid_trace_context_is_read_and_it_is_written_again() {
        assert_eq!(TraceContext::parse(CALLER).unwrap().to_string(), CALLER);
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for bad in [
            String::new(),
            format!("01-{trace}-00f067aa0ba902b7-01"),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
            format!("00-{trace}-00f067aa0ba902b7-01-x"),
            format!("00-{trace}-00f067aa0ba902b7"),
        ] {
            assert_eq!(TraceContext::parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_run_continues_the_trace_of_its_caller_under_a_span_of_its_own() {
        let caller = TraceContext::parse(CALLER).unwrap();
        let run = of("r", Some(CALLER), 0.0);
        assert_eq!((run.context.trace, run.caller), (caller.trace, Some(caller.span)));
        assert!(run.context.is_sampled && run.context.span != caller.span);
        assert_eq!(run, of("r", Some(CALLER), 0.0), "the same after a restart");
        assert_ne!(run.context.span, of("s", Some(CALLER), 0.0).context.span);
        let unsampled = CALLER.replace("-01", "-00");
        assert!(!of("r", Some(&unsampled), 1.0).context.is_sampled, "the caller decides");
    }

    #[test]
    fn about_as_many_traces_are_sampled_as_the_ratio_says() {
        let sampled = (0..2_000).filter(|n| of(&n.to_string(), None, 0.25).context.is_sampled);
        let count = sampled.count();
        assert!((400..600).contains(&count), "{count}");
        assert!(of("r", None, 1.0).context.is_sampled && !of("r", None, 0.0).context.is_sampled);
    }
}
