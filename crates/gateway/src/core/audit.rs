//! Audit lines of requests.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use trilogue_domain::{Answer, Resolution, lock};
pub use trilogue_runtime::audit::{AUDIT_TARGET, AuditActor, AuditEvent, audit};
use trilogue_store::rows::InterruptRow;

/// How many refusals of one kind are written per interval; the others are only counted.
const MAX_FAILURES: u32 = 20;
/// The length of that interval.
const FAILURES_PER: Duration = Duration::from_secs(60);

/// Returns the audit detail of an answer: where it belongs, and the chosen option. The content of other answers stays out of this log.
pub(crate) fn answer_detail(row: &InterruptRow) -> String {
    let option = match &row.resolution {
        Some(Resolution::Answered { answer: Answer::Option(id), .. }) => format!("; option {id}"),
        _ => String::new(),
    };
    format!("agent {}; run {}{option}", row.agent, row.run_id)
}

/// Limits how many refusals of one kind are logged: any caller can cause them.
#[derive(Debug, Default)]
pub(crate) struct FailureLimit(Mutex<FailureCount>);

#[derive(Debug, Default)]
struct FailureCount {
    /// When the current interval began.
    begun: Option<Instant>,
    written: u32,
    left_out: u64,
}

// === impl FailureLimit ===

impl FailureLimit {
    /// Counts a refusal. Returns how many were omitted since the last written one, or `None` if this one is omitted too.
    pub(crate) fn count(&self) -> Option<u64> {
        self.count_at(Instant::now())
    }

    fn count_at(&self, now: Instant) -> Option<u64> {
        let mut count = lock(&self.0);
        if count.begun.is_none_or(|begun| now.duration_since(begun) >= FAILURES_PER) {
            (count.begun, count.written) = (Some(now), 0);
        }
        if count.written >= MAX_FAILURES {
            count.left_out += 1;
            return None;
        }
        count.written += 1;
        Some(std::mem::take(&mut count.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_failures_is_counted_and_not_written() {
        let (limit, begun) = (FailureLimit::default(), Instant::now());
        let at = |seconds| limit.count_at(begun + Duration::from_secs(seconds));
        for _ in 0..MAX_FAILURES {
            assert_eq!(at(0), Some(0));
        }
        assert_eq!((at(1), at(59)), (None, None));
        assert_eq!((at(60), at(61)), (Some(2), Some(0)));
    }
}
