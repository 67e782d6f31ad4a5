use trilogue_domain::{RunStatus, ThreadActivity};
use trilogue_wire::agent_connect::{RunStatus as WireStatus, ThreadStatus};

/// Converts a run's status. The protocol has five: a cancelled run ended with an error.
pub fn status(status: RunStatus) -> WireStatus {
    match status {
        RunStatus::Queued | RunStatus::Running | RunStatus::Cancelling => WireStatus::Pending,
        RunStatus::Interrupted => WireStatus::Interrupted,
        RunStatus::Completed => WireStatus::Success,
        RunStatus::Failed | RunStatus::Cancelled => WireStatus::Error,
        RunStatus::TimedOut => WireStatus::Timeout,
    }
}

/// Returns the statuses that a search for a wire status selects.
pub fn statuses(status: WireStatus) -> &'static [RunStatus] {
    match status {
        WireStatus::Pending => &[RunStatus::Queued, RunStatus::Running, RunStatus::Cancelling],
        WireStatus::Interrupted => &[RunStatus::Interrupted],
        WireStatus::Success => &[RunStatus::Completed],
        WireStatus::Error => &[RunStatus::Failed, RunStatus::Cancelled],
        WireStatus::Timeout => &[RunStatus::TimedOut],
    }
}

/// Returns a run's more precise status; a run that waits for its start time is scheduled.
pub fn phase(status: RunStatus, is_scheduled: bool) -> &'static str {
    match status {
        RunStatus::Queued if is_scheduled => "scheduled",
        other => other.as_str(),
    }
}

pub fn thread_status(standing: ThreadActivity) -> ThreadStatus {
    match standing {
        ThreadActivity::Idle => ThreadStatus::Idle,
        ThreadActivity::Busy => ThreadStatus::Busy,
        ThreadActivity::Interrupted => ThreadStatus::Interrupted,
        ThreadActivity::Failed => ThreadStatus::Error,
    }
}

pub fn thread_activity(status: ThreadStatus) -> ThreadActivity {
    match status {
        ThreadStatus::Idle => ThreadActivity::Idle,
        ThreadStatus::Busy => ThreadActivity::Busy,
        ThreadStatus::Interrupted => ThreadActivity::Interrupted,
        ThreadStatus::Error => ThreadActivity::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_found_by_the_word_it_is_shown_as() {
        for known in RunStatus::ALL {
            assert!(statuses(status(known)).contains(&known), "{known:?}");
        }
        let found: usize = WireStatus::ALL.into_iter().map(|word| statuses(word).len()).sum();
        assert_eq!(found, RunStatus::ALL.len());
    }

    #[test]
    fn threads_stand_as_they_are_shown() {
        for known in [
            ThreadActivity::Idle,
            ThreadActivity::Busy,
            ThreadActivity::Interrupted,
            ThreadActivity::Failed,
        ] {
            assert_eq!(thread_activity(thread_status(known)), known);
        }
    }

    #[test]
    fn a_run_that_waits_for_its_time_is_scheduled() {
        assert_eq!(phase(RunStatus::Queued, true), "scheduled");
        assert_eq!(phase(RunStatus::Queued, false), "queued");
        assert_eq!(phase(RunStatus::Running, true), "running");
    }
}
