//! Audit lines of requests.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use trilogue_domain::{Answer, Principal, PrincipalId, Resolution, TenantId, lock};
pub use trilogue_runtime::audit::{AUDIT_TARGET, AuditActor, AuditEvent, audit};
use trilogue_store::rows::InterruptRow;

/// How many refusals of one kind are written per interval; the others are only counted.
const MAX_FAILURES: u32 = 20;
/// The length of that interval.
const FAILURES_PER: Duration = Duration::from_secs(60);
/// How many principals have a limit of their own; further ones share one.
const MAX_PRINCIPALS: usize = 1_024;

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

/// The same for each principal: the refusals of one hide none of another.
#[derive(Debug, Default)]
pub(crate) struct RefusalLimits {
    of_principals: Mutex<HashMap<(TenantId, PrincipalId), FailureCount>>,
    of_others: FailureLimit,
}

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
        lock(&self.0).count_at(now)
    }
}

// === impl RefusalLimits ===

impl RefusalLimits {
    /// Counts a refusal as [`FailureLimit::count`] does.
    pub(crate) fn count(&self, of: &Principal) -> Option<u64> {
        self.count_at(of, Instant::now())
    }

    fn count_at(&self, of: &Principal, now: Instant) -> Option<u64> {
        let key = (of.tenant.clone(), of.id.clone());
        let mut counts = lock(&self.of_principals);
        if counts.len() >= MAX_PRINCIPALS && !counts.contains_key(&key) {
            counts.retain(|_, count| count.left_out > 0 || !count.is_over(now));
            if counts.len() >= MAX_PRINCIPALS {
                return self.of_others.count_at(now);
            }
        }
        counts.entry(key).or_default().count_at(now)
    }
}

// === impl FailureCount ===

impl FailureCount {
    fn is_over(&self, now: Instant) -> bool {
        self.begun.is_none_or(|begun| now.duration_since(begun) >= FAILURES_PER)
    }

    fn count_at(&mut self, now: Instant) -> Option<u64> {
        if self.is_over(now) {
            (self.begun, self.written) = (Some(now), 0);
        }
        if self.written >= MAX_FAILURES {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
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

    #[test]
    fn the_limits_of_principals_are_their_own_and_take_bounded_memory() {
        let (limits, begun) = (RefusalLimits::default(), Instant::now());
        let principal = |id: String| Principal {
            tenant: TenantId::parse("t").unwrap(),
            id: PrincipalId::parse(&id).unwrap(),
            rights: trilogue_domain::Rights::default(),
            own: false,
        };
        let of = |index: usize| principal(format!("p{index}"));
        for _ in 0..MAX_FAILURES {
            assert_eq!(limits.count_at(&of(0), begun), Some(0));
        }
        assert_eq!(limits.count_at(&of(0), begun), None);
        for index in 1..MAX_PRINCIPALS + 10 {
            assert_eq!(limits.count_at(&of(index), begun), Some(0), "{index}");
        }
        assert_eq!(lock(&limits.of_principals).len(), MAX_PRINCIPALS);
        let later = begun + FAILURES_PER;
        assert_eq!(limits.count_at(&of(MAX_PRINCIPALS), later), Some(0));
        // Only that of the one with lines that were left out stays.
        assert_eq!(lock(&limits.of_principals).len(), 2);
        assert_eq!(limits.count_at(&of(0), later), Some(1));
    }
}
