//! Tests of the memory store alone: it keeps a limited amount and forgets the oldest data.

use bytes::Bytes;
use trilogue_domain::Code;
use trilogue_store::rows::{RunFilter, ThreadFilter};
use trilogue_store::{Options, open};

use crate::harness::{World, alice, code, options, page, read, run_id, thread_id, thread_row};

async fn world(memory_runs: usize, memory_bytes: usize) -> World {
    World::of(open("memory:", Options { memory_runs, memory_bytes, ..options() }).await.unwrap())
}

#[tokio::test]
async fn the_oldest_ended_runs_go_and_open_ones_never() {
    let world = world(10, usize::MAX / 8).await;
    let mut open = world.thread("open").await;
    let kept = open.start("open").await;
    for number in 0..50 {
        world.thread_with_ended_run(&format!("t{number}"), &format!("r{number}")).await;
    }
    let listing = world.store.runs(&alice(), &RunFilter::default(), &page(99, None)).await.unwrap();
    let ids: Vec<_> = listing.rows.iter().map(|row| row.id.to_string()).collect();
    let mut expected: Vec<_> = (41..50).rev().map(|number| format!("r{number}")).collect();
    expected.push("open".to_owned());
    assert_eq!(ids, expected);
    assert_eq!(world.store.stats().await.unwrap().runs, 10);
    let thread = world.store.thread(&alice(), &thread_id("t3")).await.unwrap().unwrap();
    assert!(read(&*world.store, &thread, None).await.is_empty(), "its run is forgotten");
    assert_eq!(world.store.run(&alice(), &kept.id).await.unwrap(), Some(kept));
}

#[tokio::test]
async fn an_ephemeral_thread_goes_with_its_run() {
    let world = world(5, usize::MAX / 8).await;
    for number in 0..20 {
        let id = number.to_string();
        let mut row = thread_row(world.store.next_thread_key(), &alice(), &id);
        row.ephemeral = true;
        let mut log = world.create(row).await.unwrap();
        let run = log.start(&id).await;
        log.end(run).await;
    }
    let stats = world.store.stats().await.unwrap();
    assert_eq!((stats.threads, stats.runs), (5, 5));
    assert_eq!(world.store.thread(&alice(), &thread_id("3")).await.unwrap(), None);
    assert!(world.store.run(&alice(), &run_id("19")).await.unwrap().is_some());
}

#[tokio::test]
async fn bytes_are_bounded() {
    let limit = 1024 * 1024;
    let world = world(usize::MAX, limit).await;
    let text = "x".repeat(50_000);
    for number in 0..100 {
        let mut log = world.thread(&format!("t{number}")).await;
        let run = log.start(&format!("r{number}")).await;
        let blob = Bytes::from(format!("{number} {text}"));
        let blob = world.store.put_blob(&log.row.tenant, blob, true).await.unwrap();
        log.step().say(Some(run.key), &[&text]).blob(&blob).commit().await.unwrap();
        log.end(run).await;
        let held = world.store.stats().await.unwrap().bytes;
        assert!(held <= 2 * limit as u64, "{held} bytes after {number}");
    }
    assert!(world.store.run(&alice(), &run_id("r99")).await.unwrap().is_some());
    assert!(world.store.run(&alice(), &run_id("r0")).await.unwrap().is_none());
}

#[tokio::test]
async fn threads_without_runs_are_bounded_too() {
    let world = world(10, 256 * 1024).await;
    for number in 0..2_000 {
        world.thread(&format!("t{number}")).await;
    }
    let stats = world.store.stats().await.unwrap();
    assert!(stats.bytes <= 256 * 1024 && stats.threads > 10, "{stats:?}");
    let filter = ThreadFilter::default();
    let newest = world.store.threads(&alice(), &filter, &page(1, None)).await.unwrap();
    assert_eq!(newest.rows[0].id.as_str(), "t1999");
}

#[tokio::test]
async fn open_runs_alone_fill_it_until_it_refuses() {
    let limit = 64 * 1024;
    let world = world(10, limit).await;
    let mut log = world.thread("t").await;
    let run = log.start("r").await;
    let text = "x".repeat(10_000);
    let refused = loop {
        if let Err(error) = log.step().say(Some(run.key), &[&text]).commit().await {
            break error;
        }
        assert!(log.last < 100, "nothing stops it");
    };
    assert_eq!(refused.code(), Code::DiskFull);
    let late = thread_row(world.store.next_thread_key(), &alice(), "late");
    assert_eq!(code(world.create(late).await), Code::DiskFull);
    let mut row = run.clone();
    row.status = trilogue_domain::RunStatus::Failed;
    let mut step = log.step().say(Some(run.key), &["end"]).run(&row);
    step.batch.vital = true;
    step.commit().await.unwrap();
    assert_eq!(world.store.run(&alice(), &row.id).await.unwrap(), Some(row));
}

#[tokio::test]
async fn it_says_what_it_is() {
    let world = World::memory().await;
    assert_eq!(world.store.durability(), "memory");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    assert_eq!(code(world.store.backup(&copy).await), Code::InvalidRequest);
    assert!(!copy.exists());
    assert!(world.store.health().is_ok());
}

#[tokio::test]
async fn what_somebody_has_open_goes_last() {
    let world = world(10, usize::MAX / 8).await;
    let mut opened = Vec::new();
    for number in 0..3 {
        let (log, run) =
            world.thread_with_ended_run(&format!("open{number}"), &format!("mine{number}")).await;
        opened.push((world.store.tail(log.row.key), run));
    }
    for number in 0..100 {
        world.thread_with_ended_run(&format!("t{number}"), &format!("r{number}")).await;
    }
    for (_, run) in &opened {
        assert!(world.store.run(&alice(), &run.id).await.unwrap().is_some(), "{}", run.id);
    }
    assert!(world.store.run(&alice(), &run_id("r99")).await.unwrap().is_some());
    assert_eq!(world.store.stats().await.unwrap().runs, 10);
    // Once closed, they are the oldest again.
    let first = opened.remove(0).1;
    for number in 100..105 {
        world.thread_with_ended_run(&format!("t{number}"), &format!("r{number}")).await;
    }
    assert_eq!(world.store.run(&alice(), &first.id).await.unwrap(), None);
    for (_, run) in &opened {
        assert!(world.store.run(&alice(), &run.id).await.unwrap().is_some(), "{}", run.id);
    }
    // The bound also holds if every thread has a reader.
    let mut tails = Vec::new();
    for number in 200..220 {
        let (log, _) =
            world.thread_with_ended_run(&format!("t{number}"), &format!("r{number}")).await;
        tails.push(world.store.tail(log.row.key));
    }
    world.thread_with_ended_run("last", "last").await;
    assert_eq!(world.store.stats().await.unwrap().runs, 10);
}

#[tokio::test]
async fn a_thread_that_somebody_has_open_survives_others_that_fill_the_store() {
    let world = world(usize::MAX, 256 * 1024).await;
    let mut session = world.thread("session").await;
    let tail = world.store.tail(session.row.key);
    for number in 0..2_000 {
        world.thread(&format!("t{number}")).await;
    }
    session.start("prompt").await;
    assert!(world.store.stats().await.unwrap().bytes <= 256 * 1024);
    drop(tail);
}
