use bytes::Bytes;
use rusqlite::{Connection, params};
use trilogue_domain::error::{Code, Result};
use trilogue_domain::{AgentName, CheckpointId, InterruptId, Json, MessageId, RunKey, ThreadKey};

use super::seed::{
    Folder, batch, creation, everything, frames, naming, run_row, scope, tenant, thread_row,
};
use crate::fixtures::{
    START, binding_row, checkpoint_row, idempotency_row, interrupt_row, message_row,
};
use crate::options::Durability;
use crate::port::{Admin, Append, Batch, Change, Housekeeping, Read};
use crate::rows::{BindingRow, CheckpointRow, IdempotencyRow, ThreadFilter};
use crate::sqlite::SqliteStore;

/// A thread with one row of every kind; all rows have the same length as those of other threads.
async fn full_thread(store: &SqliteStore) -> ThreadKey {
    let (thread, run) = (store.next_thread_key(), store.next_run_key());
    let content = Bytes::from(format!("large content of thread {thread:04}"));
    let blob = store.put_blob(&tenant(), content, true).await.unwrap();
    let checkpoint = store.next_checkpoint_key();
    let (thread_row, run_row) = (thread_row(thread), run_row(thread, run));
    let mut changes = creation(thread).changes;
    changes.extend([
        Change::Run(Box::new(run_row.clone())),
        Change::Message(message_row(&thread_row, run, &format!("message-{thread}"))),
        Change::Checkpoint(CheckpointRow {
            run: Some(run),
            value: Some(Json::parse(r#"{"count":1}"#).unwrap()),
            ..checkpoint_row(thread, checkpoint, "checkpoint")
        }),
        Change::Interrupt(Box::new(interrupt_row(&run_row, &format!("interrupt-{thread}")))),
        Change::Binding(BindingRow {
            last_seen: Some(checkpoint),
            ..binding_row(thread, "session")
        }),
        Change::Idempotency(idempotency_of(thread)),
    ]);
    let first = Batch {
        frames: naming(thread, Some(run), 1, 1, &blob),
        blobs: vec![blob],
        changes,
        ..batch(thread, 0)
    };
    store.append(first).await.unwrap();
    thread
}

fn idempotency_of(thread: ThreadKey) -> IdempotencyRow {
    idempotency_row(&run_row(thread, RunKey(thread.0)), &format!("key-{thread}"))
}

/// Reads everything of a thread and formats it. Returns the first error, if there is one.
async fn show(store: &SqliteStore, key: ThreadKey) -> Result<String> {
    use crate::port::Housekeeping;
    let (scope, thread) = (scope(), thread_row(key));
    let run = RunKey(key.0);
    let mut shown = format!("{:?}", store.thread(&scope, &thread.id).await?);
    let frames = store.frames(thread.key, everything()).await?;
    for frame in &frames {
        shown += &format!("{frame:?} {:?}", frame.events()?);
    }
    let of_run = crate::port::Range { run: Some(run), ..everything() };
    shown += &format!("{:?}", store.frames(thread.key, of_run).await?);
    shown += &format!("{:?}", store.run(&scope, &run_row(key, run).id).await?);
    let message = MessageId::parse(&format!("message-{key}")).unwrap();
    shown += &format!("{:?}", store.message(&scope, &thread.id, &message).await?);
    let checkpoint = CheckpointId::parse("checkpoint").unwrap();
    shown += &format!("{:?}", store.checkpoint(&scope, &thread.id, &checkpoint).await?);
    let interrupt = InterruptId::parse(&format!("interrupt-{key}")).unwrap();
    shown += &format!("{:?}", store.interrupt(&scope, &interrupt).await?);
    let agent = AgentName::parse("echo").unwrap();
    shown += &format!("{:?}", store.binding(&scope, &thread.id, &agent).await?);
    shown += &format!("{:?}", store.idempotency(&idempotency_of(key).key, START).await?);
    let content = Bytes::from(format!("large content of thread {key:04}"));
    let blob = crate::core::batch::blob_ref(&content, true)?;
    shown += &format!("{:?}", store.blob(thread.key, &blob).await?);
    Ok(shown)
}

/// Flips one byte of a stored value: byte `index` of the row's `column`, counted around its end.
fn flip(raw: &Connection, table: &str, column: &str, of: &str, key: i64, index: usize) -> usize {
    let read = format!("SELECT {column} FROM {table} WHERE {of} = ?1");
    let mut bytes: Vec<u8> = raw.query_row(&read, [key], |row| row.get(0)).unwrap();
    let length = bytes.len();
    bytes[index % length] ^= 1 << (index % 8);
    let write = format!("UPDATE {table} SET {column} = ?2 WHERE {of} = ?1");
    assert_eq!(raw.execute(&write, params![key, bytes]).unwrap(), 1);
    length
}

async fn full_store(count: usize) -> (Folder, Vec<ThreadKey>) {
    let folder = Folder::new();
    let store = folder.open_with(|options| options.durability = Durability::Buffered).await;
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(full_thread(&store).await);
    }
    store.close().await.unwrap();
    (folder, keys)
}

#[tokio::test]
async fn every_flipped_byte_of_a_row_frame_or_blob_quarantines_its_thread_and_no_other() {
    let (original, keys) = full_store(168).await;
    let (doomed, sound) = keys.split_at(160);
    for (table, column, of) in [
        ("frames", "body", "thread"),
        ("threads", "body", "key"),
        ("runs", "body", "thread"),
        ("messages", "body", "thread"),
        ("checkpoints", "body", "thread"),
        ("interrupts", "body", "thread"),
        ("bindings", "body", "thread"),
        ("idempotency", "body", "thread"),
        ("blobs", "data", "key"),
    ] {
        let folder = Folder::new();
        std::fs::copy(&original.path, &folder.path).unwrap();
        let store = folder.open_with(|options| options.durability = Durability::Buffered).await;
        let raw = folder.raw();
        raw.execute_batch("PRAGMA synchronous = off; BEGIN").unwrap();
        let mut length = 0;
        for (byte, key) in doomed.iter().enumerate() {
            length = flip(&raw, table, column, of, key.0, byte);
        }
        raw.execute_batch("COMMIT").unwrap();
        assert!(length <= doomed.len(), "{table}: not every one of {length} bytes was flipped");
        for (byte, key) in doomed.iter().enumerate().take(length) {
            let code = show(&store, *key).await.map_err(|error| error.code());
            assert_eq!(code, Err(Code::ThreadQuarantined), "{table} byte {byte}");
            let refused = store.append(batch(*key, 1)).await.unwrap_err();
            assert_eq!(refused.code(), Code::ThreadQuarantined, "{table} byte {byte}");
        }
        for key in sound {
            show(&store, *key).await.unwrap();
        }
        store.health().unwrap();
        assert_eq!(store.stats().await.unwrap().quarantined, length as u64, "{table}");
        let keep_going =
            Batch { frames: frames(sound[0], None, 2, 0, &["on"]), ..batch(sound[0], 1) };
        store.append(keep_going).await.unwrap();
    }
}

#[tokio::test]
async fn a_thread_whose_own_row_is_damaged_is_erased_unread() {
    let (folder, keys) = full_store(2).await;
    let store = folder.open().await;
    let ids: Vec<_> = {
        let page = crate::rows::Page::default();
        let listed = store.threads(&scope(), &ThreadFilter::default(), &page).await.unwrap();
        listed.rows.iter().map(|row| (row.key, row.id.clone())).collect()
    };
    let id = |key| ids.iter().find(|(found, _)| *found == key).unwrap().1.clone();
    flip(&folder.raw(), "threads", "body", "key", keys[0].0, 9);
    let damaged = store.thread(&scope(), &id(keys[0])).await.map_err(|error| error.code());
    assert_eq!(damaged, Err(Code::ThreadQuarantined));
    assert_eq!(store.erase_quarantined(&scope(), &id(keys[0])).await.unwrap(), Some(keys[0]));
    assert_eq!(store.thread(&scope(), &id(keys[0])).await.unwrap(), None);
    let left: i64 = folder
        .raw()
        .query_row("SELECT count(*) FROM frames WHERE thread = ?1", [keys[0].0], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
    show(&store, keys[1]).await.unwrap();
}

#[tokio::test]
async fn a_listing_leaves_damaged_rows_out() {
    let (folder, keys) = full_store(5).await;
    flip(&folder.raw(), "threads", "body", "key", keys[1].0, 9);
    let store = folder.open().await;
    let page = crate::rows::Page::default();
    let listed = store.threads(&scope(), &ThreadFilter::default(), &page).await.unwrap();
    let listed: Vec<_> = listed.rows.iter().map(|row| row.key).collect();
    assert_eq!(listed, [keys[4], keys[3], keys[2], keys[0]]);
}

#[tokio::test]
async fn a_column_that_does_not_say_what_its_row_says_quarantines_the_thread() {
    for damage in [
        "UPDATE frames SET first = 5, last = 5 WHERE thread = 1 AND first = 1",
        "UPDATE frames SET last = 3 WHERE thread = 1 AND first = 1",
        "UPDATE frames SET run = NULL WHERE thread = 1 AND first = 1",
        "UPDATE frames SET run = 9 WHERE thread = 1 AND first = 1",
        "UPDATE frames SET first_run = 2 WHERE thread = 1 AND first = 1",
        "UPDATE frames SET thread = 2, first = 9, last = 9 WHERE thread = 1 AND first = 1",
        "UPDATE threads SET epoch = 2 WHERE key = 1",
        "UPDATE threads SET owner = 'eve' WHERE key = 1",
        "UPDATE runs SET status = 'completed' WHERE thread = 1",
        "UPDATE runs SET principal = 'eve' WHERE thread = 1",
        "UPDATE runs SET ended_at = 5 WHERE thread = 1",
        "UPDATE interrupts SET pending = 0 WHERE thread = 1",
        "UPDATE blobs SET crc = crc + 1 WHERE key = 1",
        "DELETE FROM frames WHERE thread = 1 AND first = 1",
    ] {
        let folder = Folder::new();
        let store = folder.open().await;
        let key = full_thread(&store).await;
        let other = full_thread(&store).await;
        let keep_going = |key| Batch { frames: frames(key, None, 2, 0, &["on"]), ..batch(key, 1) };
        store.append(keep_going(key)).await.unwrap();
        folder.raw().execute(damage, []).unwrap();
        let code = show(&store, key).await.map_err(|error| error.code());
        assert_eq!(code, Err(Code::ThreadQuarantined), "{damage}");
        if !damage.contains("thread = 2") {
            show(&store, other).await.unwrap();
            store.append(keep_going(other)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn wrong_data_is_never_served_whatever_byte_of_the_file_is_flipped() {
    let folder = Folder::new();
    let mut expected = Vec::new();
    {
        let store = folder.open().await;
        for _ in 0..12 {
            let key = full_thread(&store).await;
            expected.push((key, show(&store, key).await.unwrap()));
        }
        store.close().await.unwrap();
    }
    let sound = std::fs::read(&folder.path).unwrap();
    let (mut served, mut refused) = (0, 0);
    // The stride hits every part of a page over time.
    for position in (0..sound.len()).step_by(997) {
        let mut bytes = sound.clone();
        bytes[position] ^= 1 << (position % 8);
        for suffix in ["-wal", "-shm"] {
            drop(std::fs::remove_file(crate::sqlite::file::sibling_path(&folder.path, suffix)));
        }
        std::fs::write(&folder.path, &bytes).unwrap();
        let Ok(store) = SqliteStore::open(folder.path.clone(), super::seed::options()).await else {
            refused += 1;
            continue;
        };
        for (key, text) in &expected {
            match show(&store, *key).await {
                Ok(shown) => {
                    served += 1;
                    assert_eq!(shown, *text, "byte {position}");
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(served > 0 && refused > 0);
}

/// Changes the first page of a table or index, as a failing disk might.
fn damage_root(path: &std::path::Path, name: &str, change: impl FnOnce(&mut [u8])) {
    let raw = Connection::open(path).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let root: u32 = raw.query_row(sql, [name], |row| row.get(0)).unwrap();
    drop(raw);
    let mut bytes = std::fs::read(path).unwrap();
    let end = root as usize * 4_096;
    change(&mut bytes[end - 4_096..end]);
    std::fs::write(path, bytes).unwrap();
}

/// Changes a key in the index of messages. The row itself stays sound.
fn damage_index(path: &std::path::Path) {
    damage_root(path, "messages_by_thread", |page| {
        let key = b"message-1";
        let at = page.windows(key.len()).position(|window| window == key).unwrap();
        page[at] ^= 1;
    });
}

#[tokio::test]
async fn a_damaged_index_stops_a_small_store_before_it_opens() {
    let (folder, _) = full_store(3).await;
    damage_index(&folder.path);
    let opened = SqliteStore::open(folder.path.clone(), super::seed::options()).await;
    let error = opened.unwrap_err();
    assert_eq!(error.code(), Code::StoreCorrupt);
    assert!(error.hint_text().unwrap().contains("trilogue restore"), "{error:?}");
}

#[tokio::test]
async fn a_page_with_many_damaged_cells_is_reported_by_one_of_them() {
    let (folder, _) = full_store(1).await;
    // An empty index that claims to have 8 cells: the number is in bytes 3 and 4 of its page.
    damage_root(&folder.path, "configurations_by_agent", |page| {
        page[3..5].copy_from_slice(&[0, 8])
    });
    let opened = SqliteStore::open(folder.path.clone(), super::seed::options()).await;
    let error = opened.unwrap_err();
    assert_eq!(error.code(), Code::StoreCorrupt);
    assert_eq!(error.message().matches("Offset 0 out of range").count(), 1, "{error:?}");
    assert!(!error.message().contains('\n'), "{error:?}");
}

#[tokio::test]
async fn a_damaged_index_stops_a_large_store_soon_after() {
    let (folder, keys) = full_store(3).await;
    let text = "x".repeat(60_000);
    {
        let store = folder.open().await;
        for number in 2..100 {
            let frames = frames(keys[0], None, number, 0, &[&text]);
            store.append(Batch { frames, ..batch(keys[0], number - 1) }).await.unwrap();
        }
    }
    damage_index(&folder.path);
    let store = folder.open().await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while store.health().is_ok() {
        assert!(std::time::Instant::now() < deadline, "the damage is not seen");
        tokio::task::yield_now().await;
    }
    for code in [
        store.health().unwrap_err().code(),
        store.append(batch(keys[1], 1)).await.unwrap_err().code(),
        store.thread(&scope(), &thread_row(keys[1]).id).await.unwrap_err().code(),
        store.frames(thread_row(keys[1]).key, everything()).await.unwrap_err().code(),
    ] {
        assert_eq!(code, Code::StoreCorrupt);
    }
    store.close().await.unwrap();
}
