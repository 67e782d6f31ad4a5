//! No map keeps anything of removed or forgotten data, and no map has unexpected entries.

use trilogue_domain::event::{Body, MessageEvent, RunEvent};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{Json, RunStatus, Timestamp};

use super::*;
use crate::fixtures;
use crate::port::{Admin as _, Append as _, Batch, Change, Housekeeping as _, Range, Read as _};
use crate::record::{Draft, Frame, NoOriginals};
use crate::rows::{CheckpointRow, QueueKind, RunRow, ThreadRow};

const AT: Timestamp = Timestamp::from_micros(1);

fn reader() -> Arc<dyn ReadOriginal> {
    Arc::new(NoOriginals)
}

async fn whole_thread(store: &MemoryStore, name: &str, is_ephemeral: bool) -> Batch {
    let tenant = fixtures::tenant("default");
    let blob = store.put_blob(&tenant, name.to_owned().into(), true).await.unwrap();
    let (key, run) = (store.next_thread_key(), store.next_run_key());
    let thread = ThreadRow {
        metadata: Json::parse("{\"a\":1}").unwrap(),
        ephemeral: is_ephemeral,
        ..fixtures::thread_row(key, "default", name)
    };
    let ended = RunRow {
        status: RunStatus::Completed,
        ended_at: Some(AT),
        metadata: Json::parse("{\"b\":[1]}").unwrap(),
        config: Some(Json::null()),
        ..fixtures::run_row(&thread, run, name)
    };
    let checkpoint = CheckpointRow {
        run: Some(run),
        value: Some(Json::null()),
        ..fixtures::checkpoint_row(key, store.next_checkpoint_key(), name)
    };
    let item = |kind| Change::Offer(fixtures::queue_item(&thread, kind, name, AT));
    let mut draft = Draft::default();
    draft.push(AT, &Body::Run(RunEvent::Started), None).unwrap();
    let mut frames = draft.seal(key, Some(run), 1, 1, &reader());
    let mut draft = Draft::default();
    draft.push(AT, &Body::Opaque, None).unwrap();
    frames.extend(draft.seal(key, None, 2, 0, &reader()));
    let changes = vec![
        Change::Thread(thread.clone()),
        Change::Message(fixtures::message_row(&thread, run, name)),
        Change::Interrupt(Box::new(fixtures::interrupt_row(&ended, name))),
        Change::Run(Box::new(ended.clone())),
        Change::Checkpoint(checkpoint),
        Change::Binding(fixtures::binding_row(key, "s")),
        Change::Idempotency(fixtures::idempotency_row(&ended, name)),
        item(QueueKind::Deadline),
        item(QueueKind::Callback),
    ];
    let blobs = vec![blob];
    Batch { thread: key, epoch: 1, expected_last: 0, frames, changes, blobs, vital: false }
}

/// Every map, by its name and size.
fn sizes(store: &MemoryStore) -> Vec<(&'static str, usize)> {
    let state = store.inner.lock();
    let mut sizes = vec![
        ("threads", state.threads.len()),
        ("runs", state.runs.len()),
        ("checkpoints", state.checkpoints.len()),
        ("interrupts", state.interrupts.len()),
        ("idempotency", state.idempotency.len()),
        ("queue", state.queue.len()),
        ("blobs", state.blobs.len()),
        ("blob bytes", state.blobs.bytes()),
        ("ended", state.ended.len()),
        ("idle", state.idle.len()),
        ("bytes", state.bytes),
    ];
    for tenant in state.tenants.values() {
        sizes.extend([
            ("tenant threads", tenant.threads.len()),
            ("tenant listed", tenant.listed.len()),
            ("tenant runs", tenant.runs.len()),
            ("tenant run keys", tenant.run_keys.len()),
            ("tenant interrupts", tenant.interrupts.len()),
            ("tenant interrupt keys", tenant.interrupt_keys.len()),
        ]);
    }
    sizes
}

fn nothing(sizes: &[(&'static str, usize)]) -> bool {
    sizes.iter().all(|(_, size)| *size == 0)
}

#[tokio::test]
async fn a_removed_thread_leaves_no_trace() {
    let store = MemoryStore::default();
    let batch = whole_thread(&store, "t", false).await;
    let thread = batch.thread;
    store.append(batch).await.unwrap();
    let held = sizes(&store);
    let idle = |what: &str| what == "idle";
    assert!(held.iter().all(|(what, size)| *size > 0 || idle(what)), "{held:?}");
    let removal = Batch {
        thread,
        epoch: 1,
        expected_last: 2,
        frames: Vec::new(),
        changes: vec![Change::RemoveThread],
        blobs: Vec::new(),
        vital: true,
    };
    store.append(removal).await.unwrap();
    assert!(nothing(&sizes(&store)), "{:?}", sizes(&store));
}

#[tokio::test]
async fn forgotten_runs_leave_no_trace() {
    let store = MemoryStore::new(Options { max_runs: 3, max_bytes: usize::MAX });
    for number in 100..200 {
        store.append(whole_thread(&store, &number.to_string(), true).await).await.unwrap();
    }
    let full = sizes(&store);
    for number in 200..300 {
        store.append(whole_thread(&store, &number.to_string(), true).await).await.unwrap();
    }
    assert_eq!(sizes(&store), full);
    assert!(full.contains(&("threads", 3)) && full.contains(&("queue", 6)), "{full:?}");
}

#[tokio::test]
async fn the_end_takes_everything_and_readers_let_go() {
    let store = MemoryStore::default();
    let batch = whole_thread(&store, "t", false).await;
    let tails = [store.tail(batch.thread), store.tail(batch.thread)];
    store.append(batch).await.unwrap();
    assert_eq!(*tails[0].committed.borrow(), 2);
    store.close().await.unwrap();
    assert!(nothing(&sizes(&store)));
    drop(tails);
    assert!(store.inner.tails.is_empty());
}

#[tokio::test]
async fn attached_readers_share_the_newest_frames_and_nothing_stays_decoded() {
    let store = MemoryStore::default();
    let batch = whole_thread(&store, "t", false).await;
    let (key, frames) = (batch.thread, batch.frames.clone());
    store.append(batch).await.unwrap();
    let row = store.thread_by_key(key).await.unwrap().unwrap();
    let read = async || {
        let range = Range { run: None, after: 0, max_bytes: usize::MAX };
        store.frames(row.key, range).await.unwrap()
    };
    let is_same = |one: &[Arc<Frame>], two: &[Arc<Frame>]| {
        one.iter().zip(two).all(|(one, two)| Arc::ptr_eq(one, two))
    };
    assert!(!is_same(&read().await, &read().await), "each reader alone has its own");
    assert!(!is_same(&read().await, &frames), "the writer's are not handed out");
    let tail = store.tail(key);
    assert!(is_same(&read().await, &read().await));
    assert!(store.stats().await.unwrap().cache_bytes > 0);
    let shared = read().await;
    drop(tail);
    assert!(shared.iter().all(|frame| Arc::strong_count(frame) == 1), "the readers had the last");
    assert_eq!(store.stats().await.unwrap().cache_bytes, 0);
}

#[tokio::test]
async fn what_readers_share_is_bounded() {
    let store = MemoryStore::default();
    let batch = whole_thread(&store, "t", false).await;
    let key = batch.thread;
    store.append(batch).await.unwrap();
    let _tail = store.tail(key);
    let text: Arc<str> = "x".repeat(200_000).into();
    for number in 3..23 {
        let mut draft = Draft::default();
        let body = Body::Message(MessageEvent::Thought { message: None, text: Arc::clone(&text) });
        draft.push(AT, &body, None).unwrap();
        let frames = draft.seal(key, None, number, 0, &reader());
        let expected_last = number - 1;
        let (changes, blobs) = (Vec::new(), Vec::new());
        let batch =
            Batch { thread: key, epoch: 1, expected_last, frames, changes, blobs, vital: false };
        store.append(batch).await.unwrap();
        let bytes = store.stats().await.unwrap().cache_bytes;
        assert!(bytes <= 1024 * 1024, "{bytes} bytes after {number}");
    }
}
