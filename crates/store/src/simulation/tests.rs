use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt as _;

use super::*;

const SCHEDULES: u64 = 100_000;

/// The first failure among the schedules of these seeds, which run on all cores.
fn first_failure(rules: Rules, seeds: u64) -> Option<Box<Failure>> {
    let next = AtomicU64::new(0);
    let run = || {
        while let Some(seed) =
            Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds)
        {
            let checked = check(seed, rules, Register::new(rules), 0).now_or_never();
            if let Err(failure) = checked.expect("nothing in memory waits") {
                next.store(seeds, Ordering::Relaxed);
                return Some(failure);
            }
        }
        None
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let failures = runs.into_iter().filter_map(|run| run.join().unwrap());
        failures.min_by_key(|failure| failure.seed)
    })
}

#[test]
fn nodes_keep_their_promises_under_every_schedule() {
    if let Some(failure) = first_failure(Rules::STORE, SCHEDULES) {
        panic!("{failure}");
    }
}

/// Checks that the simulation detects a wrong decision, with a failure that contains `how`.
#[track_caller]
fn check_noticed(rules: Rules, how: &str) {
    let failure = first_failure(rules, SCHEDULES).expect("a wrong decision is noticed");
    let text = failure.to_string();
    assert!(failure.what.contains(how), "{text}");
    assert!(text.starts_with("seed ") && text.lines().count() > 3, "{text}");
}

#[test]
fn it_is_noticed_when_a_live_owner_is_robbed() {
    let acquisition =
        |found: Ownership| ownership::acquisition(Ownership { is_owner_alive: false, ..found });
    check_noticed(Rules { acquisition, ..Rules::STORE }, "robbed the live process");
}

#[test]
fn it_is_noticed_when_an_outage_makes_nodes_look_dead() {
    // The whole gap counts, as if the database's clock alone decided.
    let counted_gap = |gap: Option<Duration>, _| gap.unwrap_or_default();
    check_noticed(Rules { counted_gap, ..Rules::STORE }, "robbed the live process");
}

#[test]
fn it_is_noticed_when_no_time_counts_and_nobody_dies() {
    let counted_gap = |_: Option<Duration>, _| Duration::ZERO;
    check_noticed(Rules { counted_gap, ..Rules::STORE }, "gets no command");
}

#[test]
fn it_is_noticed_when_the_epoch_does_not_grow() {
    let acquisition = |found: Ownership| match ownership::acquisition(found) {
        Acquisition::TakeOver { .. } => Acquisition::TakeOver { epoch: found.epoch },
        other => other,
    };
    check_noticed(Rules { acquisition, ..Rules::STORE }, "is not a new one");
}

#[test]
fn it_is_noticed_when_an_append_of_an_old_epoch_is_stored() {
    let verdict = |append: &AppendAttempt, end: Option<LogEnd>| {
        let end = end.map(|end| LogEnd { epoch: append.epoch, ..end });
        ownership::verdict(append, end)
    };
    check_noticed(Rules { verdict, ..Rules::STORE }, "was stored in epoch");
}

#[test]
fn it_is_noticed_when_a_number_is_not_compared() {
    let verdict = |append: &AppendAttempt, end: Option<LogEnd>| {
        let last = append.expected_last;
        ownership::verdict(append, end.map(|end| LogEnd { last, ..end }))
    };
    check_noticed(Rules { verdict, ..Rules::STORE }, "was stored behind number");
}

#[test]
fn it_is_noticed_when_a_repeated_append_is_not_recognised() {
    let verdict = |append: &AppendAttempt, end: Option<LogEnd>| {
        ownership::verdict(&AppendAttempt { is_again: false, stamp: -1, ..*append }, end)
    };
    check_noticed(Rules { verdict, ..Rules::STORE }, "was refused");
}

#[test]
fn it_is_noticed_when_an_append_that_may_be_stored_is_called_late() {
    let verdict = |append: &AppendAttempt, end: Option<LogEnd>| {
        ownership::verdict(&AppendAttempt { is_again: false, ..*append }, end)
    };
    check_noticed(Rules { verdict, ..Rules::STORE }, "was refused");
}

#[test]
fn it_is_noticed_when_the_frames_are_not_looked_at() {
    let verdict_of_frames = |_: Option<bool>| AppendVerdict::Stored;
    check_noticed(Rules { verdict_of_frames, ..Rules::STORE }, "accepted: ");
}

#[test]
fn it_is_noticed_when_a_request_is_sent_again_that_may_be_taken() {
    let next_try = |_: bool, is_time_over: bool| ownership::next_try(false, is_time_over);
    check_noticed(Rules { next_try, ..Rules::STORE }, "accepted: ");
}

#[test]
fn it_is_noticed_when_an_owner_stays_that_was_replaced() {
    check_noticed(Rules { leaves: false, ..Rules::STORE }, "gets no command");
}
