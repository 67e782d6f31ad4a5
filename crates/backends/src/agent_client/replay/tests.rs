use super::*;

#[test]
fn before_the_answer_everything_is_history_and_behind_it_what_only_a_turn_says() {
    let began = Instant::now();
    let mut replay = Replay::default();
    assert!(replay.takes("usage_update", began) && replay.takes("from_the_future", began));
    replay.answered(began);
    assert!(replay.takes("tool_call", began) && !replay.takes("usage_update", began));
    // Each piece gives the next one time.
    let late = began + NEW - Duration::from_millis(1);
    assert!(replay.takes("plan", late) && replay.takes("plan", late + NEW / 2));
    assert!(!replay.takes("plan", late + 2 * NEW));
}

#[test]
fn nobody_waits_for_a_history_that_there_is_not() {
    let began = Instant::now();
    let mut replay = Replay::default();
    replay.answered(began);
    assert_eq!((replay.ends(false), replay.ends(true)), (None, Some(began + LATE)));
    assert!(replay.takes("agent_message_chunk", began));
    assert_eq!((replay.ends(false), replay.ends(true)), (Some(began + QUIET), Some(began + QUIET)));
}
