//! A damaged write-ahead log: exactly its losses are reported.

use std::path::Path;

use trilogue_domain::error::Code;
use trilogue_domain::{Rights, ThreadKey};

use super::seed::{
    Folder, OVERWRITE, Random, batch, creation, frames, killed, numbers, options, scope,
    thread_row, thread_with_run,
};
use crate::fixtures;
use crate::options::Durability;
use crate::port::{Admin, Append, Batch, Change, Housekeeping, Read, Tokens};
use crate::rows::{Page, ThreadFilter};
use crate::sqlite::commit_position::CommitPosition;
use crate::sqlite::commit_record::{self, CommitRecord, RecordFile, RecordedCommits, ThreadChange};
use crate::sqlite::file::sibling_path;
use crate::sqlite::{SqliteStore, restore};

const LOG: &str = "-wal";
const RECORD: &str = ".commits";

/// Threads with frames, each with a token.
async fn furnish(store: &SqliteStore, threads: usize) {
    for _ in 0..threads {
        let (thread, _) = thread_with_run(store, 3).await;
        let id = format!("token-{}", thread.key);
        let mut token = fixtures::token_row("tenant", &id, Rights::default());
        token.hash = [u8::try_from(thread.key.0).unwrap(); 32];
        store.put_token(token).await.unwrap();
    }
}

/// Removes a run of one thread, and another thread. The log is emptied half a second later.
async fn remove(store: &SqliteStore) {
    let (thread, run) = thread_with_run(store, 3).await;
    let removal = Batch { changes: vec![Change::RemoveRun(run)], ..batch(thread.key, 3) };
    store.append(removal).await.unwrap();
    let (thread, _) = thread_with_run(store, 3).await;
    let removal = Batch { changes: vec![Change::RemoveThread], ..batch(thread.key, 3) };
    store.append(removal).await.unwrap();
}

/// Moves the whole log into the database, as the checkpointer does.
fn move_log(folder: &Folder) {
    let file = RecordFile::open(&folder.path, commit_record::boot_id());
    let log = file.log_salts();
    let conn = folder.raw();
    let moved: (u32, u32) = conn
        .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get(1)?, row.get(2)?)))
        .unwrap();
    assert!(moved.0 > 0 && moved.0 == moved.1, "{moved:?}");
    file.note_moved(log, moved.1);
}

/// The acknowledged content, as the file has it.
fn content(path: &Path) -> String {
    let conn = rusqlite::Connection::open(path).unwrap();
    let mut content = String::new();
    for sql in [
        "SELECT group_concat(id || ':' || thread || ':' || first || hex(body)) FROM frames",
        "SELECT group_concat(thread || ':' || first || ':' || last) FROM gaps",
        "SELECT group_concat(id) FROM tokens",
        "SELECT group_concat(key || hex(body)) FROM threads WHERE key NOT IN (SELECT thread FROM damaged_threads)",
    ] {
        let found: Option<String> = conn.query_row(sql, [], |row| row.get(0)).unwrap();
        content.push_str(&found.unwrap_or_default());
        content.push('\n');
    }
    content
}

fn damage(log: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut damaged = log.to_vec();
    match random.below(8) {
        0 => return None,
        1 | 2 => damaged.truncate(random.below(log.len())),
        _ => damaged[random.below(log.len())] ^= 1 << random.below(8),
    }
    Some(damaged)
}

/// Damages the log of a killed store in `damages` ways. Returns how many of them lost commits.
async fn damaged_logs(whole: &Folder, damages: usize) -> usize {
    let log = std::fs::read(sibling_path(&whole.path, LOG)).unwrap();
    let truth = {
        let copy = killed(whole);
        drop(copy.open().await);
        content(&copy.path)
    };
    let (mut random, mut losses) = (Random(0x9e37_79b9_7f4a_7c15), 0);
    for number in 0..damages {
        let copy = killed(whole);
        match damage(&log, &mut random) {
            Some(damaged) => std::fs::write(sibling_path(&copy.path, LOG), damaged).unwrap(),
            None => std::fs::remove_file(sibling_path(&copy.path, LOG)).unwrap(),
        }
        let store = match SqliteStore::open(copy.path.clone(), options()).await {
            Ok(store) => store,
            Err(error) => {
                // No read is served from a database that does not fit its log.
                assert_eq!(error.code(), Code::StoreCorrupt, "damage {number}: {error}");
                losses += 1;
                continue;
            }
        };
        let stats = store.stats().await.unwrap();
        let is_reported = stats.lost_commits > 0;
        assert_eq!(stats.lost_at.is_some(), is_reported);
        store.close().await.unwrap();
        drop(store);
        let is_lost = content(&copy.path) != truth;
        assert_eq!(is_reported, is_lost, "damage {number}: {stats:?}");
        losses += usize::from(is_lost);
    }
    losses
}

#[tokio::test]
async fn every_damage_of_the_log_that_loses_something_is_reported_and_no_other() {
    let folder = Folder::new();
    let store = folder.open().await;
    furnish(&store, 20).await;
    let furnished = killed(&folder);
    // The database has all of it now, so damage of the log loses nothing.
    move_log(&folder);
    let moved = killed(&folder);
    // A log that started over, with the remains of the earlier one after it.
    furnish(&store, 5).await;
    remove(&store).await;
    // Data that is removed again leaves nothing to compare, so the last commit adds data.
    furnish(&store, 1).await;
    let begun_again = killed(&folder);
    let losses = damaged_logs(&furnished, 100).await;
    assert!(losses > 60, "{losses}");
    assert_eq!(damaged_logs(&moved, 60).await, 0);
    let losses = damaged_logs(&begun_again, 100).await;
    assert!(losses > 10 && losses < 90, "{losses}");
}

#[tokio::test]
async fn a_thread_that_lost_events_is_listed_and_closed_until_it_is_erased() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (old, run) = thread_with_run(&store, 2).await;
    let (whole, _) = thread_with_run(&store, 2).await;
    move_log(&folder);
    let more = frames(old.key, Some(run), 3, 3, &["three"]);
    store.append(Batch { frames: more, ..batch(old.key, 2) }).await.unwrap();
    let new = store.next_thread_key();
    store.append(creation(new)).await.unwrap();
    let left = killed(&folder);
    std::fs::remove_file(sibling_path(&left.path, LOG)).unwrap();
    for life in 0..2 {
        let store = left.open().await;
        let stats = store.stats().await.unwrap();
        assert_eq!((stats.lost_commits, stats.quarantined), (2, 2), "life {life}");
        let filter = ThreadFilter { with_damaged: true, ..ThreadFilter::default() };
        let page = Page { limit: 9, ..Page::default() };
        let listed = store.threads(&scope(), &filter, &page).await.unwrap();
        let damage = |key: ThreadKey| store.damage(key).unwrap_or_default();
        let keys: Vec<_> = listed.rows.iter().map(|row| row.key).collect();
        assert_eq!(keys, [new, whole.key, old.key]);
        assert!(damage(old.key).contains("its event 3 is lost"), "{}", damage(old.key));
        assert!(damage(new).contains("are lost"), "{}", damage(new));
        assert_eq!(store.damage(whole.key), None);
        assert_eq!(numbers(&store, &whole).await, [1, 2]);
        for row in [&old, &thread_row(new)] {
            let error = store.thread(&scope(), &row.id).await.unwrap_err();
            assert_eq!(error.code(), Code::ThreadQuarantined);
        }
        let hidden = store.threads(&scope(), &ThreadFilter::default(), &page).await.unwrap();
        assert_eq!(hidden.rows.len(), 1);
        // A key is never given twice, even if nothing but the key of its thread is left.
        assert!(store.next_thread_key() > new);
    }
    let store = left.open().await;
    for row in [&old, &thread_row(new)] {
        let erased = store.erase_quarantined(&scope(), &row.id).await.unwrap();
        assert_eq!(erased, Some(row.key));
    }
    drop(store);
    let stats = left.open().await.stats().await.unwrap();
    assert_eq!((stats.lost_commits, stats.quarantined), (0, 0));
}

#[tokio::test]
async fn what_replaces_a_store_is_not_compared_with_it() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, run) = thread_with_run(&store, 1).await;
    let backup = sibling_path(&folder.path, ".backup");
    store.backup(&backup).await.unwrap();
    let more = frames(thread.key, Some(run), 2, 2, &["newer"]);
    store.append(Batch { frames: more, ..batch(thread.key, 1) }).await.unwrap();
    drop(store);
    restore(&backup, &folder.path, OVERWRITE).unwrap();
    let store = folder.open().await;
    assert_eq!(store.stats().await.unwrap().lost_commits, 0);
    assert_eq!(numbers(&store, &thread).await, [1]);
    drop(store);
    // Another program moved the log into the database, and removed the log.
    let left = killed(&folder);
    drop(content(&left.path));
    assert_eq!(left.open().await.stats().await.unwrap().lost_commits, 0);
    // The store is gone. A new one may use its name only if nothing else of the old one is left.
    for suffix in ["", LOG] {
        let _ = std::fs::remove_file(sibling_path(&left.path, suffix));
    }
    let refused = SqliteStore::open(left.path.clone(), options()).await.unwrap_err();
    assert_eq!(refused.code(), Code::StoreCorrupt, "{refused}");
    std::fs::remove_file(sibling_path(&left.path, RECORD)).unwrap();
    assert_eq!(left.open().await.stats().await.unwrap().lost_commits, 0);
}

#[tokio::test]
async fn a_power_cut_is_no_damage_for_a_buffered_store() {
    for (durability, system, expected) in
        [(Durability::Buffered, 1, 1), (Durability::Buffered, 2, 0), (Durability::Fsync, 2, 1)]
    {
        let folder = Folder::new();
        let (path, boot) = (&folder.path, [1; 16]);
        let file = std::sync::Arc::new(RecordFile::open(path, boot));
        let is_durable = durability == Durability::Fsync;
        let mut record = CommitRecord::new(file, &RecordedCommits::default(), is_durable);
        let position = CommitPosition { counted: 1, frame: 7 };
        record.note(position, 3, std::iter::empty());
        let found = commit_record::read(path, [system; 16]);
        assert_eq!(found.entries.len(), expected, "{durability} after start {system}");
    }
}

#[tokio::test]
async fn the_record_forgets_the_names_of_a_removed_thread_and_survives_its_own_damage() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, _) = thread_with_run(&store, 2).await;
    let record = || std::fs::read(sibling_path(&folder.path, RECORD)).unwrap();
    let name = thread.id.as_str().as_bytes();
    let holds = |bytes: &[u8]| bytes.windows(name.len()).any(|part| part == name);
    assert!(holds(&record()));
    let removal = Batch { changes: vec![Change::RemoveThread], ..batch(thread.key, 2) };
    store.append(removal).await.unwrap();
    assert!(!holds(&record()));
    let (thread, _) = thread_with_run(&store, 2).await;
    let left = killed(&folder);
    for damage in 0..20 {
        let copy = killed(&left);
        let mut bytes = record();
        bytes[256 + damage * 97] ^= 4;
        std::fs::write(sibling_path(&copy.path, RECORD), bytes).unwrap();
        let store = copy.open().await;
        assert_eq!(store.stats().await.unwrap().lost_commits, 0);
        assert_eq!(numbers(&store, &thread).await, [1, 2]);
    }
}

#[test]
fn entries_are_found_in_their_order_when_the_oldest_are_overwritten() {
    let folder = Folder::new();
    let file = std::sync::Arc::new(RecordFile::open(&folder.path, [1; 16]));
    let mut record = CommitRecord::new(file, &RecordedCommits::default(), true);
    for counted in 1..=700 {
        let position = CommitPosition { counted, frame: 0 };
        let changes = (1..=5).map(|key| ThreadChange::removal(ThreadKey(key)));
        record.note(position, 3, changes);
    }
    let found = commit_record::read(&folder.path, [1; 16]).entries;
    assert_eq!(found.len(), 2_048);
    assert!(found.windows(2).all(|pair| pair[0].sequence + 1 == pair[1].sequence));
    let last = found.last().unwrap();
    assert_eq!((last.sequence, last.commit, last.position.counted), (3_500, 700, 700));
}
