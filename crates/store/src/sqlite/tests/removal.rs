//! Large removals: invisible at once, deleted in parts.

use bytes::Bytes;
use trilogue_domain::content::BlobRef;

use super::seed::{Folder, batch, everything, frames, naming, numbers, tenant, thread_with_run};
use crate::port::{Admin, Append, Batch, Change, Read};
use crate::sqlite::{SqliteStore, blob, remove, verify};

/// Appends so many frames of one run to a thread, from this number on.
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
    let copy = crate::sqlite::file::beside(&folder.path, ".backup");
    store.backup(&copy).await.unwrap();
    let report = verify(&copy).unwrap();
    assert!(report.is_sound() && report.frames == 1, "{report:?}");

    // A process that ended in between: the note is there, and so are the frames.
    let (thread, run) = thread_with_run(&store, 5).await;
    store.close().await.unwrap();
    folder.raw().execute("INSERT INTO removals VALUES (?1, ?2)", [thread.key.0, run.0]).unwrap();
    folder.raw().execute("INSERT INTO gaps VALUES (?1, 1, 5)", [thread.key.0]).unwrap();
    let store = folder.open().await;
    assert_eq!(store.frames(thread.key, everything()).await.unwrap().len(), 0);
    assert_eq!(store.last_number(thread.key).await.unwrap(), 5);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let left = || -> i64 {
        let sql = "SELECT count(*) FROM frames WHERE thread = ?1";
        folder.raw().query_row(sql, [thread.key.0], |row| row.get(0)).unwrap()
    };
    while left() > 0 {
        assert!(std::time::Instant::now() < deadline, "nothing deletes them");
        tokio::task::yield_now().await;
    }
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
    let copy = crate::sqlite::file::beside(&folder.path, ".backup");
    store.backup(&copy).await.unwrap();
    let report = verify(&copy).unwrap();
    assert!(report.is_sound() && report.blobs == 1, "{report:?}");
    assert!(store.blob(two.key, &last).await.unwrap().is_some());
}
