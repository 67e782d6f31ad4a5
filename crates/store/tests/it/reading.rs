//! Ranges of logs, and the gaps that removed runs leave.

use trilogue_domain::RunKey;
use trilogue_store::{Change, Range};

use crate::harness::{Log, World, contract, read};

contract!(
    a_range_begins_behind_its_number,
    a_range_ends_with_the_frame_that_passes_its_bytes,
    a_range_of_a_run_counts_run_numbers,
    a_removed_run_leaves_a_gap,
    the_last_number_outlives_its_run,
    frames_are_as_they_were_written,
    a_run_of_another_thread_has_no_events_here,
);

/// Five frames: 1-3 of `one`, 4-5 of `two`, 6 without a run, 7-8 of `one`, 9 of `two`.
async fn two_runs(world: &World) -> (Log, RunKey, RunKey) {
    let mut log = world.thread("t").await;
    let (one, two) = (log.run_row("one"), log.run_row("two"));
    let step = log.step().run(&one).say(Some(one.key), &["1", "2", "3"]);
    step.commit().await.unwrap();
    let step = log.step().run(&two).say(Some(two.key), &["4", "5"]);
    step.commit().await.unwrap();
    log.step().say(None, &["6"]).commit().await.unwrap();
    log.step().say(Some(one.key), &["7", "8"]).commit().await.unwrap();
    log.step().say(Some(two.key), &["9"]).commit().await.unwrap();
    (log, one.key, two.key)
}

async fn firsts(log: &Log, run: Option<RunKey>, after: u64, max_bytes: usize) -> Vec<u64> {
    let range = Range { run, after, max_bytes };
    let frames = log.store.frames(log.row.key, range).await.unwrap();
    frames.iter().map(|frame| frame.first()).collect()
}

async fn a_range_begins_behind_its_number(world: World) {
    let (log, ..) = two_runs(&world).await;
    for (after, expected) in [
        (0, &[1, 4, 6, 7, 9][..]),
        (1, &[1, 4, 6, 7, 9]),
        (2, &[1, 4, 6, 7, 9]),
        (3, &[4, 6, 7, 9]),
        (5, &[6, 7, 9]),
        (7, &[7, 9]),
        (8, &[9]),
        (9, &[]),
        (10, &[]),
        (u64::MAX, &[]),
    ] {
        assert_eq!(firsts(&log, None, after, usize::MAX).await, expected, "after {after}");
    }
}

async fn a_range_ends_with_the_frame_that_passes_its_bytes(world: World) {
    let (log, ..) = two_runs(&world).await;
    let sizes: Vec<_> =
        log.frames(0, usize::MAX).await.iter().map(|frame| frame.bytes().len()).collect();
    assert_eq!(firsts(&log, None, 0, 0).await, [1]);
    assert_eq!(firsts(&log, None, 0, sizes[0] - 1).await, [1]);
    assert_eq!(firsts(&log, None, 0, sizes[0]).await, [1, 4]);
    assert_eq!(firsts(&log, None, 0, sizes[0] + sizes[1] - 1).await, [1, 4]);
    assert_eq!(firsts(&log, None, 0, sizes[0] + sizes[1]).await, [1, 4, 6]);
    assert_eq!(firsts(&log, None, 8, 0).await, [9]);
}

async fn a_range_of_a_run_counts_run_numbers(world: World) {
    let (log, one, two) = two_runs(&world).await;
    assert_eq!(firsts(&log, Some(one), 0, usize::MAX).await, [1, 7]);
    assert_eq!(firsts(&log, Some(one), 2, usize::MAX).await, [1, 7]);
    assert_eq!(firsts(&log, Some(one), 3, usize::MAX).await, [7]);
    assert_eq!(firsts(&log, Some(one), 5, usize::MAX).await, [0_u64; 0]);
    assert_eq!(firsts(&log, Some(one), 0, 0).await, [1]);
    let texts: Vec<_> =
        read(&*log.store, &log.row, Some(two)).await.into_iter().map(|event| event.1).collect();
    assert_eq!(texts, ["4", "5", "9"]);
}

async fn a_removed_run_leaves_a_gap(world: World) {
    let (mut log, one, two) = two_runs(&world).await;
    log.step().say(None, &["10"]).change(Change::RemoveRun(one)).commit().await.unwrap();
    let numbers: Vec<_> = log.read().await.into_iter().map(|event| event.0).collect();
    assert_eq!(numbers, [4, 5, 6, 9, 10]);
    assert_eq!(firsts(&log, None, 2, usize::MAX).await, [4, 6, 9, 10]);
    assert_eq!(firsts(&log, None, 7, usize::MAX).await, [9, 10]);
    assert_eq!(firsts(&log, Some(one), 0, usize::MAX).await, [0_u64; 0]);
    assert_eq!(firsts(&log, Some(two), 0, usize::MAX).await, [4, 9]);
    log.write([Change::RemoveRun(two)]).await;
    assert_eq!(firsts(&log, None, 0, usize::MAX).await, [6, 10]);
    // Removing a run twice is not an error: the result is the same.
    log.write([Change::RemoveRun(two)]).await;
}

async fn the_last_number_outlives_its_run(world: World) {
    let (mut log, run) = world.thread_with_ended_run("t", "r").await;
    log.write([Change::RemoveRun(run.key)]).await;
    assert_eq!(log.read().await, []);
    let acquired = world.store.acquire(log.row.key, crate::harness::NODE).await.unwrap();
    assert_eq!(acquired.last, 2, "a number is never given again");
    log.step().say(None, &["next"]).commit().await.unwrap();
    assert_eq!(log.read().await, [(3, "next".to_owned())]);
}

async fn frames_are_as_they_were_written(world: World) {
    let mut log = world.thread("t").await;
    let run = log.run_row("r");
    let step = log.step().run(&run).say(Some(run.key), &["a", "ü"]);
    let written = step.batch.frames.clone();
    step.commit().await.unwrap();
    let read = log.frames(0, usize::MAX).await;
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].bytes(), written[0].bytes());
    assert_eq!(read[0].events().unwrap(), written[0].events().unwrap());
    assert_eq!(read[0].run(), Some(run.key));
    assert_eq!((read[0].first_run(), read[0].last_run()), (1, 2));
}

async fn a_run_of_another_thread_has_no_events_here(world: World) {
    let (log, ..) = two_runs(&world).await;
    let (_, other) = world.thread_with_ended_run("u", "r").await;
    assert_eq!(firsts(&log, Some(other.key), 0, usize::MAX).await, [0_u64; 0]);
}
