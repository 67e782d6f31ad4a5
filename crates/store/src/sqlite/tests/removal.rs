//! Large removals: invisible at once, deleted in parts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::Code;
use trilogue_domain::{RunKey, Timestamp};

use super::seed::{
    ALONE, Folder, batch, creation, everything, frames, hold_writer, killed, naming, numbers,
    queue_hold, run_row, scope, tenant, thread_row, thread_with_run,
};
use crate::fixtures;
use crate::port::{Admin, Append, Batch, Change, Housekeeping, Queue, Read};
use crate::rows::{InterruptFilter, Page, QueueKind, RunFilter, ThreadRow};
use crate::sqlite::error::lock;
use crate::sqlite::{SqliteStore, blob, remove, verify};

/// Appends `count` frames of one run to a thread, starting at `first`.
async fn fill(
    store: &SqliteStore,
    thread: trilogue_domain::ThreadKey,
    run: trilogue_domain::RunKey,
    first: u64,
    count: u64,
) {
    for number in first..first + count {
        let frames = frames(thread, Some(run), number, number, &["content of a long run"]);
        store.append(Batch { frames, ..batch(thread, number - 1) }).await.unwrap();
    }
}

#[tokio::test]
async fn a_transaction_of_a_removal_deletes_a_bounded_number_of_frames() {
    let folder = Folder::new();
    let store = folder.open_with(|options| options.durability = crate::Durability::Buffered).await;
    let (thread, run) = thread_with_run(&store, 0).await;
    fill(&store, thread.key, run, 1, 600).await;
    store.close().await.unwrap();
    let conn = folder.raw();
    let count =
        || -> i64 { conn.query_row("SELECT count(*) FROM frames", [], |row| row.get(0)).unwrap() };
    let mut pending = blob::PendingBlobs::default();
    remove::run(&conn, &mut pending, thread.key, run).unwrap();
    assert_eq!(count(), 600, "it only notes them");
    let mut counts = Vec::new();
    while remove::has_remains(&conn).unwrap() {
        remove::sweep(&conn, &pending).unwrap();
        counts.push(count());
    }
    assert_eq!(counts, [344, 88, 0, 0]);
}

#[tokio::test]
async fn what_a_large_removal_has_left_is_seen_by_nobody_and_deleted_also_after_a_restart() {
    let folder = Folder::new();
    let store = folder.open_with(|options| options.durability = crate::Durability::Buffered).await;
    let (thread, run) = thread_with_run(&store, 300).await;
    let other = store.next_run_key();
    let behind = frames(thread.key, Some(other), 301, 1, &["of another run"]);
    store.append(Batch { frames: behind, ..batch(thread.key, 300) }).await.unwrap();
    let removal = Batch { changes: vec![Change::RemoveRun(run)], ..batch(thread.key, 301) };
    store.append(removal).await.unwrap();
    assert_eq!(numbers(&store, &thread).await, [301]);
    let copy = crate::sqlite::file::sibling_path(&folder.path, ".backup");
    store.backup(&copy).await.unwrap();
    let report = verify(&copy).unwrap();
    assert!(report.is_sound() && report.frames == 1, "{report:?}");

    // A process ended before the deletion: the note and the frames still exist.
    let (thread, run) = thread_with_run(&store, 5).await;
    store.close().await.unwrap();
    folder.raw().execute("INSERT INTO removals VALUES (?1, ?2)", [thread.key.0, run.0]).unwrap();
    folder.raw().execute("INSERT INTO gaps VALUES (?1, 1, 5)", [thread.key.0]).unwrap();
    let store = folder.open().await;
    assert_eq!(store.frames(thread.key, everything()).await.unwrap().len(), 0);
    assert_eq!(store.last_number(thread.key).await.unwrap(), 5);
    all_deleted(&folder).await;
}

#[tokio::test]
async fn large_blobs_go_after_their_names_unless_they_were_named_again() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (one, run) = thread_with_run(&store, 0).await;
    let (two, _) = thread_with_run(&store, 0).await;
    let mut blobs: Vec<BlobRef> = Vec::new();
    for number in 0..4_u8 {
        let content = Bytes::from(vec![number; 2 * 1024 * 1024]);
        blobs.push(store.put_blob(&tenant(), content, false).await.unwrap());
    }
    for (number, blob) in (1..).zip(&blobs) {
        let frames = naming(one.key, Some(run), number, number, blob);
        let blobs = vec![blob.clone()];
        store.append(Batch { frames, blobs, ..batch(one.key, number - 1) }).await.unwrap();
    }
    let removal = Batch { changes: vec![Change::RemoveRun(run)], ..batch(one.key, 4) };
    store.append(removal).await.unwrap();
    // Stored again and named at once, by another thread.
    let last = blobs.pop().unwrap();
    store.put_blob(&tenant(), Bytes::from(vec![3; 2 * 1024 * 1024]), false).await.unwrap();
    let frames = naming(two.key, None, 1, 0, &last);
    let named = Batch { frames, blobs: vec![last.clone()], ..batch(two.key, 0) };
    store.append(named).await.unwrap();
    let copy = crate::sqlite::file::sibling_path(&folder.path, ".backup");
    store.backup(&copy).await.unwrap();
    let report = verify(&copy).unwrap();
    assert!(report.is_sound() && report.blobs == 1, "{report:?}");
    assert!(store.blob(two.key, &last).await.unwrap().is_some());
}

/// The tables that have rows of threads.
const TABLES: [&str; 10] = [
    "threads",
    "frames",
    "gaps",
    "runs",
    "messages",
    "checkpoints",
    "interrupts",
    "idempotency",
    "queue",
    "blob_refs",
];

fn rows(folder: &Folder) -> i64 {
    let conn = folder.raw();
    let count = |table: &&str| -> i64 {
        conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    TABLES.iter().map(count).sum()
}

/// Waits until all removed data is deleted.
async fn all_deleted(folder: &Folder) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while remove::has_remains(&folder.raw()).unwrap() {
        assert!(Instant::now() < deadline, "nothing deletes the rest");
        tokio::task::yield_now().await;
    }
}

/// How many runs a large thread has, each with rows of every kind.
const RUNS: i64 = 400;

/// A thread with more rows than one transaction deletes.
async fn large_thread(store: &SqliteStore) -> (ThreadRow, RunKey) {
    let (thread, run) = thread_with_run(store, 0).await;
    let content = Bytes::from_static(b"content that every run names");
    let blob = store.put_blob(&tenant(), content, false).await.unwrap();
    let mut changes = Vec::new();
    for number in 0..RUNS {
        let key = if number == 0 { run } else { store.next_run_key() };
        let row = run_row(thread.key, key);
        changes.push(Change::Message(fixtures::message_row(&thread, key, &format!("m-{key}"))));
        changes
            .push(Change::Interrupt(Box::new(fixtures::interrupt_row(&row, &format!("i-{key}")))));
        changes.push(Change::Idempotency(fixtures::idempotency_row(&row, &format!("k-{key}"))));
        let due = fixtures::START;
        let item = fixtures::queue_item(&thread, QueueKind::Deadline, &format!("q-{key}"), due);
        changes.push(Change::Offer(item));
        let checkpoint = store.next_checkpoint_key();
        let row_of = fixtures::checkpoint_row(thread.key, checkpoint, &format!("c-{key}"));
        changes.push(Change::Checkpoint(row_of));
        changes.push(Change::Run(Box::new(row)));
    }
    store.append(Batch { changes, ..batch(thread.key, 0) }).await.unwrap();
    let frames = naming(thread.key, Some(run), 1, 1, &blob);
    store.append(Batch { frames, blobs: vec![blob], ..batch(thread.key, 0) }).await.unwrap();
    (thread, run)
}

/// No look-up finds anything of the thread.
async fn assert_gone(store: &SqliteStore, thread: &ThreadRow, run: RunKey) {
    let row = run_row(thread.key, run);
    assert_eq!(store.thread(&scope(), &thread.id).await.unwrap(), None);
    assert_eq!(store.thread_of(&scope(), thread.key).await.unwrap(), None);
    assert_eq!(store.thread_by_key(thread.key).await.unwrap(), None);
    assert_eq!(store.run(&scope(), &row.id).await.unwrap(), None);
    assert_eq!(store.run_by_key(run).await.unwrap(), None);
    let page = Page::default();
    assert!(store.runs(&scope(), &RunFilter::default(), &page).await.unwrap().rows.is_empty());
    let filter = InterruptFilter::default();
    assert!(store.interrupts(&scope(), &filter, &page).await.unwrap().rows.is_empty());
    let id = fixtures::interrupt_id(&format!("i-{run}"));
    assert_eq!(store.interrupt(&scope(), &id).await.unwrap(), None);
    let id = fixtures::message_id(&format!("m-{run}"));
    assert_eq!(store.message(&scope(), &thread.id, &id).await.unwrap(), None);
    let used = fixtures::idempotency_row(&row, &format!("k-{run}"));
    assert_eq!(Housekeeping::idempotency(store, &used.key, used.created_at).await.unwrap(), None);
    assert!(store.frames(thread.key, everything()).await.unwrap().is_empty());
    assert_eq!(store.last_number(thread.key).await.unwrap(), 0);
    assert!(store.open_threads().await.unwrap().is_empty());
    let late = Timestamp::from_micros(i64::MAX / 2);
    assert!(store.claim(QueueKind::Deadline, late, late, 9).await.unwrap().is_empty());
    let acquired = store.acquire(thread.key, "node").await;
    assert_eq!(acquired.unwrap_err().code(), Code::ThreadNotFound);
    let append = Batch { frames: frames(thread.key, None, 2, 0, &["x"]), ..batch(thread.key, 1) };
    assert!(store.append(append).await.is_err());
}

#[tokio::test]
async fn a_large_thread_is_gone_at_once_and_its_rows_are_deleted_in_parts() {
    let folder = Folder::new();
    let store = Arc::new(folder.open().await);
    let (thread, run) = large_thread(&store).await;
    let mut tail = store.tail(thread.key);
    // The writer is held after the removal, before more than one part of the rest is deleted.
    let first = hold_writer(&store, ALONE).await;
    let removing = tokio::spawn({
        let store = Arc::clone(&store);
        let removal = Batch { changes: vec![Change::RemoveThread], ..batch(thread.key, 1) };
        async move { store.append(removal).await }
    });
    let jobs = lock(&store.jobs).clone().unwrap();
    while jobs.max_capacity() - jobs.capacity() < 1 {
        tokio::task::yield_now().await;
    }
    let (second, is_held) = queue_hold(&store, ALONE);
    while jobs.max_capacity() - jobs.capacity() < 2 {
        tokio::task::yield_now().await;
    }
    drop((first, jobs));
    removing.await.unwrap().unwrap();
    is_held.await.unwrap();
    assert!(rows(&folder) > RUNS, "{} rows are left", rows(&folder));
    while tail.committed.changed().await.is_ok() {}
    let killed = killed(&folder);
    drop(second);
    assert_gone(&store, &thread, run).await;
    // Its id and its idempotency keys can be used again.
    let key = store.next_thread_key();
    let again = ThreadRow { id: thread.id.clone(), ..thread_row(key) };
    store
        .append(Batch { changes: vec![Change::Thread(again.clone())], ..creation(key) })
        .await
        .unwrap();
    let other = run_row(key, store.next_run_key());
    let used = fixtures::idempotency_row(&other, &format!("k-{run}"));
    let reused = Batch { changes: vec![Change::Idempotency(used)], ..batch(key, 0) };
    store.append(reused).await.unwrap();
    all_deleted(&folder).await;
    assert_eq!(rows(&folder), 2, "the new thread and its key");
    assert_eq!(store.thread(&scope(), &thread.id).await.unwrap(), Some(again));

    // After a sudden end, the next start continues the deletion, and no reader sees the rest.
    assert!(rows(&killed) > RUNS);
    let store = killed.open().await;
    assert_gone(&store, &thread, run).await;
    all_deleted(&killed).await;
    assert_eq!(rows(&killed), 0);
    let blobs: i64 =
        killed.raw().query_row("SELECT count(*) FROM blobs", [], |row| row.get(0)).unwrap();
    assert_eq!(blobs, 0);
    assert!(store.next_run_key() > run);
}

#[tokio::test]
async fn no_part_of_a_large_thread_has_many_rows() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, _) = large_thread(&store).await;
    store.close().await.unwrap();
    let conn = folder.raw();
    conn.execute("INSERT INTO removals VALUES (?1, 0)", [thread.key.0]).unwrap();
    conn.execute("DELETE FROM threads", []).unwrap();
    let pending = blob::PendingBlobs::default();
    let (mut left, mut parts) = (rows(&folder), 0);
    while remove::has_remains(&conn).unwrap() {
        remove::sweep(&conn, &pending).unwrap();
        let now = rows(&folder);
        assert!(left - now <= 256, "{} rows in a transaction", left - now);
        (left, parts) = (now, parts + 1);
    }
    assert_eq!(left, 0);
    assert!(parts < 40, "{parts} transactions");
}

#[tokio::test]
async fn stateless_threads_that_are_removed_together_share_a_transaction() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut threads = Vec::new();
    for _ in 0..64 {
        let key = store.next_thread_key();
        let row = ThreadRow { ephemeral: true, ..thread_row(key) };
        let mut run = run_row(key, store.next_run_key());
        (run.stateless, run.ended_at) = (true, Some(fixtures::START));
        run.status = trilogue_domain::RunStatus::Completed;
        let changes = vec![Change::Thread(row), Change::Run(Box::new(run.clone()))];
        let frames = frames(key, Some(run.key), 1, 1, &["hello"]);
        store.append(Batch { frames, changes, ..batch(key, 0) }).await.unwrap();
        threads.push(key);
    }
    let kept = thread_with_run(&store, 1).await.0;
    let before = store.stats().await.unwrap();
    let asked: Vec<_> = threads.iter().copied().chain([kept.key]).collect();
    assert_eq!(store.remove_ephemeral(&asked).await.unwrap(), threads);
    let after = store.stats().await.unwrap();
    assert_eq!((after.commits - before.commits, after.threads, after.runs), (1, 1, 1));
    assert_eq!(numbers(&store, &kept).await, [1]);
    assert_eq!(rows(&folder), 3);
    // Their keys are not given again.
    store.close().await.unwrap();
    assert!(folder.open().await.next_thread_key() > kept.key);
}
