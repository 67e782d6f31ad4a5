//! Tests of the SQLite store alone: it survives a restart, and one process holds it.

use std::path::Path;

use bytes::Bytes;
use trilogue_domain::Code;
use trilogue_store::rows::{QueueKind, ThreadFilter};
use trilogue_store::{Change, Durability, Options, open};

use crate::erasure::{MARKER, furnish};
use crate::harness::{World, alice, at, code, options, page, read, run_id, thread_id};
use crate::rows;

#[tokio::test]
async fn everything_is_there_again() {
    for durability in [Durability::Fsync, Durability::Buffered] {
        let mut world = World::sqlite().await;
        world.store.close().await.unwrap();
        world.store = open(&world.url(), Options { durability, ..options() }).await.unwrap();
        assert_eq!(world.store.durability(), durability.as_str());
        let log = furnish(&world, "t", "r").await;
        let (mut other, ended) = world.thread_with_ended_run("u", "s").await;
        let gone = other.start("gone").await;
        other.write([Change::RemoveRun(gone.key)]).await;
        let before = everything(&world).await;
        let keys = (world.store.next_thread_key(), world.store.next_run_key());
        let world = world.reopen().await;
        assert_eq!(everything(&world).await, before);
        assert_eq!(read(&*world.store, &log.row, None).await.last().unwrap().1, MARKER);
        assert!(world.store.next_thread_key() > log.row.key, "keys go on");
        assert!(world.store.next_run_key() > gone.key && keys.1 > gone.key);
        assert!(world.store.run(&alice(), &ended.id).await.unwrap().is_some());
        let acquired = world.store.acquire(other.row.key, "node").await.unwrap();
        assert_eq!(acquired.last, other.last, "what was removed last still counts");
    }
}

async fn everything(world: &World) -> String {
    let (store, scope, all) = (&world.store, alice(), page(99, None));
    let threads = store.threads(&scope, &ThreadFilter::default(), &all).await.unwrap();
    let mut logs = Vec::new();
    let mut paths = Vec::new();
    for row in &threads.rows {
        logs.push(read(&**store, row, None).await);
        paths.push(store.path(&scope, &row.id, None, 9).await.unwrap());
        paths.push(Vec::from_iter(
            store.checkpoint(&scope, &row.id, &checkpoint("c-t-r")).await.unwrap(),
        ));
    }
    let filter = ThreadFilter {
        metadata: vec![("k".to_owned(), format!("\"{MARKER}\""))],
        ..ThreadFilter::default()
    };
    format!(
        "{threads:?} {logs:?} {paths:?} {:?} {:?} {:?} {:?} {:?}",
        store.threads(&scope, &filter, &all).await.unwrap(),
        store.runs(&scope, &Default::default(), &all).await.unwrap(),
        store.interrupts(&scope, &Default::default(), &all).await.unwrap(),
        store.next_due(QueueKind::Callback).await.unwrap(),
        store.open_threads().await.unwrap(),
    )
}

fn checkpoint(id: &str) -> trilogue_domain::CheckpointId {
    rows::checkpoint_id(id)
}

#[tokio::test]
async fn a_second_opening_is_refused_and_a_third_after_the_end_is_not() {
    let world = World::sqlite().await;
    world.thread("t").await;
    let error = open(&world.url(), options()).await.unwrap_err();
    assert_eq!(error.code(), Code::StoreLocked);
    assert!(error.message().contains(&std::process::id().to_string()), "{error:?}");
    world.thread("u").await;
    let world = world.reopen().await;
    assert!(world.store.thread(&alice(), &thread_id("u")).await.unwrap().is_some());
}

fn holds_marker(world: &World) -> bool {
    let folder = world.file().parent().unwrap().to_owned();
    let holds = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(MARKER.len()).any(|window| window == MARKER.as_bytes())
    };
    std::fs::read_dir(folder).unwrap().any(|entry| holds(&entry.unwrap().path()))
}

#[tokio::test]
async fn erased_content_is_not_in_the_file() {
    let world = World::sqlite().await;
    let mut log = furnish(&world, "t", "r").await;
    assert!(holds_marker(&world), "the search finds what is there");
    log.write([Change::RemoveThread]).await;
    let world = world.reopen().await;
    world.store.close().await.unwrap();
    assert!(!holds_marker(&world));
}

#[tokio::test]
async fn a_removed_run_is_not_in_the_file() {
    let world = World::sqlite().await;
    let mut log = world.thread("t").await;
    let mut run = log.start("r").await;
    let secret = crate::harness::json(&serde_json::json!({"k": MARKER}));
    run.metadata = secret.clone();
    let mut made = log.checkpoint("c", None);
    (made.run, made.value) = (Some(run.key), Some(secret));
    let blob = Bytes::from(format!("{MARKER} in a blob"));
    let blob = world.store.put_blob(&log.row.tenant, blob, true).await.unwrap();
    let step = log.step().run(&run).say(Some(run.key), &[MARKER]).blob(&blob);
    step.change(Change::Checkpoint(made)).commit().await.unwrap();
    log.write([Change::RemoveRun(run.key)]).await;
    world.store.close().await.unwrap();
    assert!(!holds_marker(&world));
}

#[tokio::test]
async fn a_lease_and_its_fence_outlive_a_restart() {
    let world = World::sqlite().await;
    let mut log = world.thread("t").await;
    let item = log.item(QueueKind::ScheduledRun, "k", 1);
    log.write([Change::Offer(item)]).await;
    let claim = |store: std::sync::Arc<dyn trilogue_store::Store>, now, until| async move {
        store.claim(QueueKind::ScheduledRun, at(now), at(until), 9).await.unwrap()
    };
    let held = claim(world.store.clone(), 1, 100).await.remove(0);
    let world = world.reopen().await;
    assert_eq!(claim(world.store.clone(), 99, 200).await, []);
    let again = claim(world.store.clone(), 100, 200).await.remove(0);
    assert_eq!(again.attempts, 2);
    assert!(!world.store.finish(&held).await.unwrap());
    assert!(world.store.finish(&again).await.unwrap());
}

#[tokio::test]
async fn a_blob_without_a_frame_is_swept_at_start() {
    let world = World::sqlite().await;
    let mut log = world.thread("t").await;
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    let named = world.store.put_blob(&log.row.tenant, bytes("named"), true).await.unwrap();
    log.step().say(None, &["x"]).blob(&named).commit().await.unwrap();
    let lost = world.store.put_blob(&log.row.tenant, bytes("lost"), true).await.unwrap();
    let world = world.reopen().await;
    log.store = world.store.clone();
    assert_eq!(world.store.blob(log.row.key, &named).await.unwrap(), Some(bytes("named")));
    let step = log.step().say(None, &["y"]).blob(&lost);
    assert_eq!(code(step.commit().await), Code::Internal);
}

#[tokio::test]
async fn a_backup_is_a_store() {
    let world = World::sqlite().await;
    let log = furnish(&world, "t", "r").await;
    let copy = world.file().with_file_name("copy.db");
    world.store.backup(&copy).await.unwrap();
    assert_eq!(code(world.store.backup(&copy).await), Code::AlreadyExists);
    world.thread("later").await;
    let restored = open(&format!("sqlite:{}", copy.display()), options()).await.unwrap();
    assert!(restored.run(&alice(), &run_id("r")).await.unwrap().is_some());
    assert_eq!(restored.thread(&alice(), &thread_id("later")).await.unwrap(), None);
    assert_eq!(read(&*restored, &log.row, None).await, log.read().await);
    restored.close().await.unwrap();
}
