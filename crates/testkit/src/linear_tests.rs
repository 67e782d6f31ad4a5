//! Tests that the search accepts possible histories and refuses impossible ones.

use super::*;
use crate::seed::Seed;

/// A register for one number, with compare-and-set.
struct Register;

#[derive(Clone, Debug)]
enum Call {
    Write(u64),
    Read,
    /// Sets the second number if the register holds the first.
    Replace(u64, u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Answer {
    Done,
    Refused,
    Value(u64),
}

impl Sequential for Register {
    type State = u64;
    type Call = Call;
    type Answer = Answer;

    fn step(state: &u64, call: &Call, answer: Option<&Answer>) -> Option<u64> {
        let (after, says) = use_it(*state, call);
        answer.is_none_or(|answer| *answer == says).then_some(after)
    }
}

fn use_it(state: u64, call: &Call) -> (u64, Answer) {
    match *call {
        Call::Write(value) => (value, Answer::Done),
        Call::Read => (state, Answer::Value(state)),
        Call::Replace(from, to) if from == state => (to, Answer::Done),
        Call::Replace(..) => (state, Answer::Refused),
    }
}

fn operation(call: Call, answer: Answer, began: u64, ended: u64) -> Operation<Call, Answer> {
    Operation { call, answer: Some(answer), began, ended }
}

fn unknown(call: Call, began: u64) -> Operation<Call, Answer> {
    Operation { call, answer: None, began, ended: u64::MAX }
}

fn is_linearisable(history: &[Operation<Call, Answer>]) -> bool {
    match check::<Register>(history) {
        Verdict::Linearisable => true,
        Verdict::Contradiction(_) => false,
        Verdict::Undecided => panic!("the search was given up"),
    }
}

#[test]
fn a_read_behind_a_write_has_its_value() {
    let write = operation(Call::Write(7), Answer::Done, 0, 1);
    let read = |value| operation(Call::Read, Answer::Value(value), 2, 3);
    assert!(is_linearisable(&[write.clone(), read(7)]));
    assert!(!is_linearisable(&[write, read(0)]), "a stale read");
}

#[test]
fn a_read_beside_a_write_has_either_value_and_never_goes_back() {
    let write = operation(Call::Write(7), Answer::Done, 0, 9);
    let read = |value, began| operation(Call::Read, Answer::Value(value), began, began + 1);
    assert!(is_linearisable(&[write.clone(), read(0, 1), read(7, 3)]));
    assert!(!is_linearisable(&[write, read(7, 1), read(0, 3)]), "the write is taken back");
}

#[test]
fn of_two_replacements_of_one_value_one_is_refused() {
    let replace = |to, answer| operation(Call::Replace(0, to), answer, 0, 9);
    assert!(is_linearisable(&[replace(1, Answer::Done), replace(2, Answer::Refused)]));
    assert!(!is_linearisable(&[replace(1, Answer::Done), replace(2, Answer::Done)]), "both");
    assert!(!is_linearisable(&[replace(1, Answer::Refused), replace(2, Answer::Refused)]), "none");
}

#[test]
fn what_has_no_answer_may_be_taken_late_or_never_but_once() {
    let read = |value, began| operation(Call::Read, Answer::Value(value), began, began + 1);
    let write = unknown(Call::Write(7), 0);
    let other = operation(Call::Write(8), Answer::Done, 3, 4);
    assert!(is_linearisable(&[write.clone(), read(0, 1)]), "never");
    assert!(is_linearisable(&[write.clone(), other.clone(), read(8, 5), read(7, 7)]), "late");
    let twice = [write, read(7, 1), other, read(8, 5), read(7, 7)];
    assert!(!is_linearisable(&twice), "it was taken twice");
    assert!(!is_linearisable(&[read(7, 0), unknown(Call::Write(7), 2)]), "before it was made");
}

/// Accepts histories of clients whose operations take effect at one moment and return late. Refuses them once one read returns a value that was never written, or one that is older than the write before it.
#[test]
fn what_happened_is_accepted_and_what_is_changed_then_is_refused() {
    let (number, mut seed) = Seed::from_env("TRILOGUE_SEED");
    for round in 0..200 {
        let mut history = Vec::new();
        let (mut state, mut now) = (0, 0);
        for value in 1..=40 {
            let call = match seed.below(3) {
                0 => Call::Write(value),
                1 => Call::Read,
                _ => Call::Replace(state, value),
            };
            now += 10;
            let (after, says) = use_it(state, &call);
            state = after;
            let (before, behind) = (seed.below(40).min(now), 1 + seed.below(40));
            let answer = (seed.below(8) > 0).then_some(says);
            let ended = if answer.is_some() { now + behind } else { u64::MAX };
            history.push(Operation { call, answer, began: now - before, ended });
        }
        let failed = format!("TRILOGUE_SEED={number}, round {round}");
        assert!(is_linearisable(&history), "{failed}: {history:?}");
        let mut changed = history.clone();
        changed.push(operation(Call::Read, Answer::Value(99), now + 100, now + 101));
        assert!(!is_linearisable(&changed), "{failed}: {changed:?}");
        let mut changed = history.clone();
        changed.push(operation(Call::Write(98), Answer::Done, now + 100, now + 101));
        changed.push(operation(Call::Read, Answer::Value(98), now + 102, now + 103));
        assert!(is_linearisable(&changed), "{failed}: {changed:?}");
        changed.push(operation(Call::Read, Answer::Value(0), now + 104, now + 105));
        assert!(!is_linearisable(&changed), "{failed}: {changed:?}");
    }
}
