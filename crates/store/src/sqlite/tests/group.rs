use std::sync::Arc;

use trilogue_domain::ThreadKey;
use trilogue_domain::error::Code;

use super::seed::{
    Folder, batch, creation, frames, hold_writer, numbers, run_row, thread_row, thread_with_run,
};
use crate::port::{Admin, Append, Batch, Change, Housekeeping, Read};
use crate::sqlite::SqliteStore;
use crate::sqlite::error::{SqliteError, lock};
use crate::sqlite::job::{WorkKind, WriteContext};

/// Appends all batches at once, so that they share transactions. Returns the codes of the refused ones.
async fn all_at_once(store: &Arc<SqliteStore>, batches: Vec<Batch>) -> Vec<Option<Code>> {
    let tasks: Vec<_> = batches
        .into_iter()
        .map(|batch| {
            let store = Arc::clone(store);
            tokio::spawn(async move { store.append(batch).await })
        })
        .collect();
    let mut codes = Vec::new();
    for task in tasks {
        codes.push(task.await.unwrap().err().map(|error| error.code()));
    }
    codes
}

#[tokio::test]
async fn a_culprit_fails_alone_wherever_it_stands() {
    let folder = Folder::new();
    let store = Arc::new(folder.open().await);
    let (taken, _) = thread_with_run(&store, 1).await;
    let mut batches = Vec::new();
    let mut keys = Vec::new();
    for number in 0..60 {
        let key = store.next_thread_key();
        let mut creation = creation(key);
        if number % 7 == 3 {
            let row = crate::rows::ThreadRow { id: taken.id.clone(), ..thread_row(key) };
            creation.changes = vec![Change::Thread(row)];
        }
        creation.frames = frames(key, None, 1, 0, &["hello"]);
        batches.push(creation);
        keys.push(key);
    }
    let codes = all_at_once(&store, batches).await;
    for (number, (code, key)) in codes.iter().zip(keys).enumerate() {
        let found = store.thread_by_key(key).await.unwrap();
        if number % 7 == 3 {
            assert_eq!((*code, found), (Some(Code::AlreadyExists), None));
        } else {
            assert_eq!((*code, found), (None, Some(thread_row(key))));
            assert_eq!(numbers(&store, &thread_row(key)).await, [1]);
        }
    }
}

#[tokio::test]
async fn what_follows_a_culprit_on_its_thread_is_refused_and_what_it_displaced_is_not() {
    let folder = Folder::new();
    let store = Arc::new(folder.open().await);
    let (taken, run) = thread_with_run(&store, 1).await;
    let (thread, _) = thread_with_run(&store, 0).await;
    // The first fails because of its row, the second builds on it, the third would come too late after the first.
    let other = crate::rows::RunRow {
        id: run_row(taken.key, run).id,
        ..run_row(thread.key, store.next_run_key())
    };
    let culprit = Batch {
        frames: frames(thread.key, None, 1, 0, &["culprit"]),
        changes: vec![Change::Run(Box::new(other))],
        ..batch(thread.key, 0)
    };
    let follower =
        Batch { frames: frames(thread.key, None, 2, 0, &["follower"]), ..batch(thread.key, 1) };
    let late = Batch { frames: frames(thread.key, None, 1, 0, &["late"]), ..batch(thread.key, 0) };
    let codes = all_at_once(&store, vec![culprit, follower, late]).await;
    assert_eq!(codes, [Some(Code::AlreadyExists), Some(Code::OwnershipLost), None]);
    assert_eq!(numbers(&store, &thread).await, [1]);
}

#[tokio::test]
async fn appends_of_many_threads_share_commits() {
    let folder = Folder::new();
    let store = Arc::new(folder.open().await);
    let mut threads = Vec::new();
    for _ in 0..64 {
        threads.push(thread_with_run(&store, 0).await.0.key);
    }
    let before = store.stats().await.unwrap();
    let first = |key: &ThreadKey| Batch {
        frames: frames(*key, None, 1, 0, &["together"]),
        ..batch(*key, 0)
    };
    // The writer is held in a transaction until all of them wait.
    let release = hold_writer(&store, WorkKind::USUAL).await;
    let releasing = async {
        let jobs = lock(&store.jobs).clone().unwrap();
        while jobs.max_capacity() - jobs.capacity() < 64 {
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
    };
    let all = all_at_once(&store, threads.iter().map(first).collect());
    let (codes, ()) = tokio::join!(all, releasing);
    assert!(codes.iter().all(Option::is_none));
    let after = store.stats().await.unwrap();
    assert_eq!(after.frames - before.frames, 64);
    assert_eq!(after.commits - before.commits, 1, "what comes while one is written joins it");
}

#[tokio::test]
async fn another_epoch_or_number_is_refused_before_anything_is_written() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, _) = thread_with_run(&store, 2).await;
    let taken = store.acquire(thread.key, "another node").await.unwrap();
    assert_eq!((taken.thread.epoch, taken.last, taken.open_runs.len()), (2, 2, 1));
    let frames = frames(thread.key, None, 3, 0, &["x"]);
    let old = Batch { frames: frames.clone(), ..batch(thread.key, 2) };
    assert_eq!(store.append(old).await.unwrap_err().code(), Code::OwnershipLost);
    let late = Batch { epoch: 2, ..batch(thread.key, 1) };
    assert_eq!(store.append(late).await.unwrap_err().code(), Code::OwnershipLost);
    store.append(Batch { epoch: 2, frames, ..batch(thread.key, 2) }).await.unwrap();
    assert_eq!(store.acquire(thread.key, "another node").await.unwrap().thread.epoch, 2);
    let unknown = batch(ThreadKey(77), 0);
    assert_eq!(store.append(unknown).await.unwrap_err().code(), Code::OwnershipLost);
}

#[tokio::test]
async fn a_closed_store_refuses_and_keeps_everything() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, _) = thread_with_run(&store, 3).await;
    store.close().await.unwrap();
    store.close().await.unwrap();
    assert_eq!(store.append(batch(thread.key, 3)).await.unwrap_err().code(), Code::ShuttingDown);
    assert_eq!(
        store.thread(&super::seed::scope(), &thread.id).await.unwrap_err().code(),
        Code::ShuttingDown
    );
    assert_eq!(store.health().unwrap_err().code(), Code::ShuttingDown);
    // The lock is free although the closed store still exists.
    let again = folder.open().await;
    assert_eq!(numbers(&again, &thread).await, [1, 2, 3]);
    assert!(again.next_thread_key() > thread.key);
}

#[tokio::test]
async fn a_cancelled_append_gives_its_room_in_the_queue_back() {
    let folder = Folder::new();
    let store = Arc::new(folder.open_with(|options| options.write_queue = 1).await);
    let (thread, _) = thread_with_run(&store, 0).await;
    let room = Arc::clone(&store.context.queue_room);
    let whole = room.available_permits();
    let text = "x".repeat(100_000);
    let release = hold_writer(&store, WorkKind::USUAL).await;
    let append = |number| {
        let (store, key) = (Arc::clone(&store), thread.key);
        let frames = frames(key, None, number, 0, &[&text]);
        tokio::spawn(async move { store.append(Batch { frames, ..batch(key, number - 1) }).await })
    };
    let waiting = append(1);
    while lock(&store.jobs).as_ref().unwrap().capacity() > 0 {
        tokio::task::yield_now().await;
    }
    // The queue is full: these have their permits and wait for a slot, and then their requests are cancelled.
    let with_one = room.available_permits();
    for _ in 0..3 {
        let cancelled = append(2);
        while room.available_permits() == with_one {
            tokio::task::yield_now().await;
        }
        cancelled.abort();
        assert!(cancelled.await.unwrap_err().is_cancelled());
    }
    drop(release);
    waiting.await.unwrap().unwrap();
    append(2).await.unwrap().unwrap();
    while room.available_permits() < whole {
        tokio::task::yield_now().await;
    }
    assert_eq!(numbers(&store, &thread).await, [1, 2]);
}

#[tokio::test]
async fn a_store_whose_writer_panicked_says_that_it_takes_no_writes() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, _) = thread_with_run(&store, 2).await;
    let panics = |_: &mut WriteContext<'_>| -> Result<(), SqliteError> { panic!("a test says so") };
    let error = store.write(WorkKind::USUAL, panics).await.unwrap_err();
    assert_eq!(error.code(), Code::StoreReadOnly, "{error}");
    assert_eq!(store.health().unwrap_err().code(), Code::StoreReadOnly);
    let refused = store.append(batch(thread.key, 2)).await.unwrap_err();
    assert_eq!(refused.code(), Code::StoreReadOnly);
    assert_eq!(numbers(&store, &thread).await, [1, 2], "what is there can be read");
    store.close().await.unwrap();
    let again = folder.open().await;
    assert_eq!(again.health(), Ok(()));
    assert_eq!(numbers(&again, &thread).await, [1, 2]);
}
