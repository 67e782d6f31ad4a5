//! Wake-ups of readers: events are durable first, then visible.

use std::time::Duration;

use tokio::time::timeout;
use trilogue_store::{Change, Tail};

use crate::harness::{World, contract};

contract!(
    a_tail_begins_with_what_is_committed,
    a_tail_wakes_for_commits_and_what_it_names_can_be_read,
    a_refused_append_does_not_move_a_tail,
    every_reader_of_a_thread_is_woken,
    a_tail_may_come_before_its_thread,
    a_tail_reads_what_a_cold_reader_reads,
    removal_wakes_readers,
    a_tail_ends_with_its_thread,
);

/// The longest wait for a wake-up.
const DEADLINE: Duration = Duration::from_secs(60);

async fn woken(tail: &mut Tail) -> u64 {
    timeout(DEADLINE, tail.committed.changed()).await.expect("a wake-up").unwrap();
    *tail.committed.borrow_and_update()
}

/// Waits until the tail has seen this number.
async fn reaches(tail: &mut Tail, number: u64) {
    let wait = tail.committed.wait_for(|committed| *committed >= number);
    timeout(DEADLINE, wait).await.expect("a wake-up").unwrap();
}

async fn a_tail_begins_with_what_is_committed(world: World) {
    let mut log = world.thread("t").await;
    log.step().say(None, &["a", "b"]).commit().await.unwrap();
    let mut tail = world.store.tail(log.row.key);
    // An engine may look the number up in the background and then wake the reader.
    reaches(&mut tail, 2).await;
    assert_eq!(log.read().await.len(), 2);
    assert_eq!(world.store.last_number(log.row.key).await.unwrap(), 2);
    assert_eq!(world.store.last_number(trilogue_domain::ThreadKey(77)).await.unwrap(), 0);
}

async fn a_tail_wakes_for_commits_and_what_it_names_can_be_read(world: World) {
    let mut log = world.thread("t").await;
    let mut tail = world.store.tail(log.row.key);
    let reader = tokio::spawn({
        let (store, row) = (log.store.clone(), log.row.clone());
        async move {
            let mut seen = 0;
            while seen < 50 {
                seen = woken(&mut tail).await;
                let read = crate::harness::read(&*store, &row, None).await;
                let last = read.last().map_or(0, |event| event.0);
                assert!(last >= seen, "woken for {seen}, but only {last} can be read");
            }
        }
    });
    for _ in 0..50 {
        log.step().say(None, &["x"]).commit().await.unwrap();
        tokio::task::yield_now().await;
    }
    timeout(DEADLINE, reader).await.expect("the reader sees the end").unwrap();
}

async fn a_refused_append_does_not_move_a_tail(world: World) {
    let mut log = world.thread("t").await;
    log.step().say(None, &["a"]).commit().await.unwrap();
    let mut tail = world.store.tail(log.row.key);
    reaches(&mut tail, 1).await;
    let mut step = log.step().say(None, &["b"]);
    step.batch.epoch = 9;
    step.commit().await.unwrap_err();
    assert_eq!(*tail.committed.borrow(), 1);
}

async fn every_reader_of_a_thread_is_woken(world: World) {
    let mut log = world.thread("t").await;
    let mut tails: Vec<_> = (0..10).map(|_| world.store.tail(log.row.key)).collect();
    tails.truncate(9);
    log.step().say(None, &["a"]).commit().await.unwrap();
    for tail in &mut tails {
        reaches(tail, 1).await;
    }
    drop(tails);
    // The next reader of a thread starts with an empty tail.
    log.step().say(None, &["b"]).commit().await.unwrap();
    let mut tail = world.store.tail(log.row.key);
    reaches(&mut tail, 2).await;
}

async fn a_tail_may_come_before_its_thread(world: World) {
    let row =
        crate::harness::thread_row(world.store.next_thread_key(), &crate::harness::alice(), "t");
    let mut tail = world.store.tail(row.key);
    let mut log = world.create(row).await.unwrap();
    log.step().say(None, &["a"]).commit().await.unwrap();
    reaches(&mut tail, 1).await;
}

async fn a_tail_reads_what_a_cold_reader_reads(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await;
    let tail = world.store.tail(log.row.key);
    for number in 0..40 {
        let text = "x".repeat(1 + number * 97);
        log.step().say(Some(run.key), &[&text, "y"]).commit().await.unwrap();
    }
    log.step().say(None, &["z"]).commit().await.unwrap();
    let row = log.row.clone();
    let bytes = async |after, run, max_bytes| {
        let range = trilogue_store::Range { run, after, max_bytes };
        let frames = world.store.frames(row.key, range).await.unwrap();
        frames.iter().map(|frame| frame.bytes().clone()).collect::<Vec<_>>()
    };
    let mut warm = Vec::new();
    for after in [0, 1, 2, 41, 79, 80, 81, 82] {
        for max_bytes in [0, 1_000, usize::MAX] {
            warm.push((after, max_bytes, bytes(after, None, max_bytes).await));
            warm.push((after, max_bytes, bytes(after, Some(run.key), max_bytes).await));
        }
    }
    drop(tail);
    let whole = warm.iter().find(|(after, most, _)| (*after, *most) == (0, usize::MAX)).unwrap();
    assert_eq!(whole.2.len(), 42, "the frame that starts the run, and one for each append");
    for chunk in warm.chunks(2) {
        let [(after, max_bytes, thread), (.., of_run)] = chunk else { panic!("they are pairs") };
        let cold = bytes(*after, None, *max_bytes).await;
        assert_eq!(&cold, thread, "thread after {after} up to {max_bytes}");
        let cold = bytes(*after, Some(run.key), *max_bytes).await;
        assert_eq!(&cold, of_run, "run after {after} up to {max_bytes}");
    }
}

async fn removal_wakes_readers(world: World) {
    let (mut log, run) = world.thread_with_ended_run("t", "r").await;
    let mut tail = world.store.tail(log.row.key);
    reaches(&mut tail, 2).await;
    tail.committed.borrow_and_update();
    log.step().say(None, &["gone"]).change(Change::RemoveRun(run.key)).commit().await.unwrap();
    reaches(&mut tail, 3).await;
    assert_eq!(log.read().await.len(), 1);
}

async fn a_tail_ends_with_its_thread(world: World) {
    let (mut log, _) = world.thread_with_ended_run("t", "r").await;
    let mut tails = [world.store.tail(log.row.key), world.store.tail(log.row.key)];
    let other = world.store.tail(world.thread("u").await.row.key);
    log.write([Change::RemoveThread]).await;
    for tail in &mut tails {
        // A look-up that started with the attaching may still wake the reader once.
        let ended = async { while tail.committed.changed().await.is_ok() {} };
        timeout(DEADLINE, ended).await.expect("an end");
    }
    // A later reader gets a new tail. The earlier readers do not affect it.
    let late = world.store.tail(log.row.key);
    drop(tails);
    assert!(late.committed.has_changed().is_ok() && other.committed.has_changed().is_ok());
}
