use std::fs;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::seed::{Folder, batch, frames, killed, numbers, thread_with_run};
use crate::port::{Admin, Append, Batch, Change};
use crate::sqlite::connection::PAGE_BYTES;
use crate::sqlite::file::sibling_path;
use crate::sqlite::wal_file::LogFile;

/// What the log uses of its file with this many pages.
fn used(pages: u64) -> u64 {
    32 + pages * (24 + u64::from(PAGE_BYTES))
}

#[test]
fn the_file_is_ahead_of_a_log_that_grows_and_found_again_when_it_was_cut() {
    let folder = Folder::new();
    let path = sibling_path(&folder.path, "-wal");
    let length = || fs::metadata(&path).unwrap().len();
    let mut log = LogFile::of(&folder.path);

    // For a log of a few pages, the file has not even been opened.
    log.grow_ahead(10).unwrap();
    assert!(!path.exists());
    assert!(log.grow_ahead(64).is_err(), "there is no file");

    let held = vec![7; usize::try_from(used(64)).unwrap()];
    fs::write(&path, &held).unwrap();
    log.grow_ahead(64).unwrap();
    let first = length();
    assert!(first >= used(64) + 1024 * 1024, "{first}");
    log.grow_ahead(100).unwrap();
    assert_eq!(length(), first, "there was room enough");
    log.grow_ahead(300).unwrap();
    assert!(length() > first);
    // The log's content is unchanged, and the rest is zeros.
    let bytes = fs::read(&path).unwrap();
    assert!(bytes.starts_with(&held));
    assert!(bytes.iter().skip(held.len()).all(|byte| *byte == 0));

    // The log started over: the file has space for a long time.
    let before = length();
    log.grow_ahead(64).unwrap();
    assert_eq!(length(), before);
    // The log started over and its file was cut.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    log.grow_ahead(70).unwrap();
    let cut = length();
    log.grow_ahead(65).unwrap();
    assert!(length() >= used(65) + 1024 * 1024, "{cut}");
}

#[tokio::test]
async fn a_log_with_room_behind_it_is_recovered() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, run) = thread_with_run(&store, 1).await;
    for number in 2..=60 {
        let frames = frames(thread.key, Some(run), number, number, &["and on"]);
        store.append(Batch { frames, ..batch(thread.key, number - 1) }).await.unwrap();
    }
    // The state that a power cut would leave: no checkpoint was made yet.
    let copy = killed(&folder);
    let log = fs::read(sibling_path(&copy.path, "-wal")).unwrap();
    assert!(log.len() > 1024 * 1024, "the file is not ahead of its log");
    assert!(log.ends_with(&[0; 4096]));
    let again = copy.open().await;
    let expected: Vec<u64> = (1..=60).collect();
    assert_eq!(numbers(&again, &thread).await, expected);
    // The store continues from that state.
    let frames = frames(thread.key, Some(run), 61, 61, &["and on"]);
    again.append(Batch { frames, ..batch(thread.key, 60) }).await.unwrap();
    assert_eq!(numbers(&again, &thread).await.len(), 61);
}

/// A reader that holds its snapshot, as an inspection does, so that the log cannot start over.
fn snapshot(folder: &Folder) -> Connection {
    let reader = folder.raw();
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM frames", [], |row| row.get::<_, i64>(0)).unwrap();
    reader
}

fn log_bytes(folder: &Folder) -> u64 {
    fs::metadata(sibling_path(&folder.path, "-wal")).map_or(0, |log| log.len())
}

#[tokio::test]
async fn sudden_ends_do_not_add_log_to_log() {
    const MIB: u64 = 1024 * 1024;
    let text = "x".repeat(1_000_000);
    let mut folder = Folder::new();
    let store = folder.open().await;
    let (thread, run) = thread_with_run(&store, 1).await;
    drop(store);
    let mut last = 1;
    for life in 1..=4 {
        let store = folder.open().await;
        let begun = log_bytes(&folder);
        assert!(begun < 4 * MIB, "life {life} begins with a log of {begun} bytes");
        let reader = snapshot(&folder);
        for _ in 0..13 {
            let frames = frames(thread.key, Some(run), last + 1, last + 1, &[&text]);
            store.append(Batch { frames, ..batch(thread.key, last) }).await.unwrap();
            last += 1;
        }
        assert!(log_bytes(&folder) > 12 * MIB, "the snapshot keeps the log");
        let next = killed(&folder);
        drop(reader);
        drop(store);
        folder = next;
    }
    let store = folder.open().await;
    assert_eq!(numbers(&store, &thread).await, (1..=last).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_store_says_that_it_waits_for_its_log() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, run) = thread_with_run(&store, 1).await;
    let reader = snapshot(&folder);
    let text = "x".repeat(1_000_000);
    for number in 2..=12 {
        let frames = frames(thread.key, Some(run), number, number, &[&text]);
        store.append(Batch { frames, ..batch(thread.key, number - 1) }).await.unwrap();
    }
    let next = killed(&folder);
    drop(reader);
    assert_eq!(store.waits_for(), None);
    // Another process reads, so the log cannot be emptied yet. The store does not wait for ever.
    let reader = snapshot(&next);
    let store = next.open_with(|options| options.start_wait = Duration::ZERO).await;
    let reason = store.waits_for().expect("it waits");
    assert!(reason.contains("MiB of write-ahead log"), "{reason}");
    let frames = frames(thread.key, Some(run), 13, 13, &["work goes on"]);
    store.append(Batch { frames, ..batch(thread.key, 12) }).await.unwrap();
    drop(reader);
    let deadline = Instant::now() + Duration::from_secs(30);
    while store.waits_for().is_some() {
        assert!(Instant::now() < deadline, "it waits for ever");
        tokio::task::yield_now().await;
    }
    assert!(log_bytes(&next) < 1024 * 1024);
    assert_eq!(numbers(&store, &thread).await.len(), 13);
}

#[tokio::test]
async fn removals_in_a_row_share_the_emptying_of_the_log() {
    /// Shorter than the delay in which removals share the emptying of the log.
    const SHARED: Duration = Duration::from_millis(450);
    let folder = Folder::new();
    let store = folder.open().await;
    let mut threads = Vec::new();
    for _ in 0..40 {
        threads.push(thread_with_run(&store, 1).await.0.key);
    }
    let begun = Instant::now();
    let mut longest = 0;
    for thread in threads {
        let removal = Batch { changes: vec![Change::RemoveThread], ..batch(thread, 1) };
        store.append(removal).await.unwrap();
        let length = log_bytes(&folder);
        // On a slow machine the first removal may not wait for the last.
        if begun.elapsed() > SHARED {
            break;
        }
        assert!(length >= longest, "the log of {longest} bytes was emptied for one of them");
        longest = length;
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while log_bytes(&folder) > 0 {
        assert!(Instant::now() < deadline, "the log keeps what was removed");
        tokio::task::yield_now().await;
    }
}
