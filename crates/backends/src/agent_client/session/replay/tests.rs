use super::*;

#[test]
fn before_the_response_everything_is_replayed_and_behind_it_what_only_a_turn_says() {
    let began = Instant::now();
    let mut replay = Replay::default();
    assert!(replay.takes("usage_update", began) && replay.takes("from_the_future", began));
    replay.set_opened_at(began);
    assert!(replay.takes("tool_call", began) && !replay.takes("usage_update", began));
    // Each piece extends the time for the next one.
    let late = began + MAX_GAP - Duration::from_millis(1);
    assert!(replay.takes("plan", late) && replay.takes("plan", late + MAX_GAP / 2));
    assert!(!replay.takes("plan", late + 2 * MAX_GAP));
}

#[test]
fn an_empty_history_is_not_waited_for() {
    let began = Instant::now();
    let mut replay = Replay::default();
    replay.set_opened_at(began);
    assert_eq!((replay.ends(false), replay.ends(true)), (None, Some(began + MAX_DELAY)));
    assert!(replay.takes("agent_message_chunk", began));
    assert_eq!((replay.ends(false), replay.ends(true)), (Some(began + QUIET), Some(began + QUIET)));
}
