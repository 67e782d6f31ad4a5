//! Counts, health and closing.

use trilogue_domain::{Code, Scope};
use trilogue_store::Change;

use crate::harness::{World, alice, code, contract, thread_id};
use crate::rows;

contract!(counts_follow_what_is_stored, nothing_works_after_the_end, a_quarantined_thread_is_alone);

async fn counts_follow_what_is_stored(world: World) {
    assert!(world.store.health().is_ok());
    let before = world.store.stats().await.unwrap();
    let (mut log, _) = world.thread_with_ended_run("t", "r").await;
    let stats = world.store.stats().await.unwrap();
    assert_eq!((stats.threads, stats.runs, stats.quarantined), (1, 1, 0));
    assert_eq!(stats.frames - before.frames, 2);
    assert!(stats.commits > before.commits && stats.bytes > 0);
    log.write([Change::RemoveThread]).await;
    let stats = world.store.stats().await.unwrap();
    assert_eq!((stats.threads, stats.runs), (0, 0));
}

async fn nothing_works_after_the_end(world: World) {
    let mut log = world.thread("t").await;
    let tail = world.store.tail(log.row.key);
    world.store.close().await.unwrap();
    log.step().say(None, &["a"]).commit().await.unwrap_err();
    world.store.thread(&alice(), &thread_id("t")).await.unwrap_err();
    world.store.health().unwrap_err();
    drop(tail);
}

async fn a_quarantined_thread_is_alone(world: World) {
    let (mut bad, _) = world.thread_with_ended_run("bad", "r").await;
    let (mut good, _) = world.thread_with_ended_run("good", "s").await;
    world.store.quarantine(bad.row.key, "a test says so");
    assert_eq!(world.store.stats().await.unwrap().quarantined, 1);
    let store = &world.store;
    let range = trilogue_store::Range { run: None, after: 0, max_bytes: 1 };
    assert_eq!(code(store.frames(bad.row.key, range).await), Code::ThreadQuarantined);
    assert_eq!(code(bad.step().say(None, &["x"]).commit().await), Code::ThreadQuarantined);
    assert_eq!(code(store.acquire(bad.row.key, "n").await), Code::ThreadQuarantined);
    assert_eq!(code(store.thread(&alice(), &thread_id("bad")).await), Code::ThreadQuarantined);
    good.step().say(None, &["x"]).commit().await.unwrap();
    assert_eq!(good.read().await.len(), 3);
    // A damaged thread can be erased; an undamaged one is left alone.
    assert_eq!(store.erase_quarantined(&alice(), &thread_id("good")).await.unwrap(), None);
    let stranger = Scope { tenant: rows::tenant("another"), owner: None };
    assert_eq!(store.erase_quarantined(&stranger, &thread_id("bad")).await.unwrap(), None);
    assert!(store.erase_quarantined(&alice(), &thread_id("bad")).await.unwrap().is_some());
    assert_eq!(store.stats().await.unwrap().quarantined, 0);
    assert_eq!(store.thread(&alice(), &thread_id("bad")).await.unwrap(), None);
}
