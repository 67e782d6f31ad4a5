use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, params};
use trilogue_domain::error::{Code, Result};
use trilogue_domain::{
    AgentName, CheckpointId, Interrupt, InterruptId, InterruptKind, Json, MessageId, PrincipalId,
    Role, RunKey, Survives, ThreadKey,
};

use super::seed::{
    Folder, START, batch, creation, everything, frames, naming, run_row, scope, tenant, thread_row,
};
use crate::open::Durability;
use crate::port::{Admin, Append, Batch, Change, Read};
use crate::rows::{
    BindingRow, CheckpointRow, IdempotencyKey, IdempotencyRow, InterruptRow, MessageRow,
};
use crate::sqlite::SqliteStore;

/// A thread with one of everything, all rows as long as those of the others.
async fn full_thread(store: &SqliteStore) -> ThreadKey {
    let (thread, run) = (store.next_thread_key(), store.next_run_key());
    let content = Bytes::from(format!("large content of thread {thread:04}"));
    let blob = store.put_blob(&tenant(), content, true).await.unwrap();
    let checkpoint = store.next_checkpoint_key();
    let mut changes = creation(thread).changes;
    changes.extend([
        Change::Run(Box::new(run_row(thread, run))),
        Change::Message(MessageRow {
            id: MessageId::parse(&format!("message-{thread}")).unwrap(),
            tenant: tenant(),
            thread,
            run,
            role: Role::User,
            position: 1,
        }),
        Change::Checkpoint(CheckpointRow {
            key: checkpoint,
            id: CheckpointId::parse("checkpoint").unwrap(),
            thread,
            parent: None,
            run: Some(run),
            position: 1,
            value: Some(Json::parse(r#"{"count":1}"#).unwrap()),
            created_at: START,
        }),
        Change::Interrupt(Box::new(interrupt_row(thread, run))),
        Change::Binding(BindingRow {
            thread,
            agent: AgentName::parse("echo").unwrap(),
            remote: "session".to_owned(),
            capabilities: Json::parse(r#"{"load":true}"#).unwrap(),
            told: Some(checkpoint),
        }),
        Change::Idempotency(IdempotencyRow {
            key: idempotency_key(thread),
            request: [7; 32],
            run: run_row(thread, run).id,
            thread,
            created_at: START,
        }),
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

fn interrupt_row(thread: ThreadKey, run: RunKey) -> InterruptRow {
    InterruptRow {
        interrupt: Interrupt {
            id: InterruptId::parse(&format!("interrupt-{thread}")).unwrap(),
            kind: InterruptKind::Form,
            prompt: Vec::new(),
            payload: Json::null(),
            options: Vec::new(),
            schema: None,
            survives: Survives::Restart,
            patience: None,
        },
        tenant: tenant(),
        principal: PrincipalId::parse("ada").unwrap(),
        thread,
        thread_id: thread_row(thread).id,
        run,
        run_id: run_row(thread, run).id,
        agent: AgentName::parse("echo").unwrap(),
        raised_at: START,
        resolution: None,
        resolved_at: None,
    }
}

fn idempotency_key(thread: ThreadKey) -> IdempotencyKey {
    IdempotencyKey {
        tenant: tenant(),
        principal: PrincipalId::parse("ada").unwrap(),
        agent: AgentName::parse("echo").unwrap(),
        text: format!("key-{thread}"),
    }
}

/// Reads everything of a thread and shows it; the first error where there is one.
async fn show(store: &SqliteStore, key: ThreadKey) -> Result<String> {
    use crate::port::Housekeeping;
    let (scope, thread) = (scope(), thread_row(key));
    let run = RunKey(key.0);
    let mut shown = format!("{:?}", store.thread(&scope, &thread.id).await?);
    let frames = store.frames(&thread, everything()).await?;
    for frame in &frames {
        shown += &format!("{frame:?} {:?}", frame.events()?);
    }
    let of_run = crate::port::Range { run: Some(run), ..everything() };
    shown += &format!("{:?}", store.frames(&thread, of_run).await?);
    shown += &format!("{:?}", store.run(&scope, &run_row(key, run).id).await?);
    let message = MessageId::parse(&format!("message-{key}")).unwrap();
    shown += &format!("{:?}", store.message(&scope, &message).await?);
    let checkpoint = CheckpointId::parse("checkpoint").unwrap();
    shown += &format!("{:?}", store.checkpoint(&scope, &thread.id, &checkpoint).await?);
    let interrupt = InterruptId::parse(&format!("interrupt-{key}")).unwrap();
    shown += &format!("{:?}", store.interrupt(&scope, &interrupt).await?);
    let agent = AgentName::parse("echo").unwrap();
    shown += &format!("{:?}", store.binding(&scope, &thread.id, &agent).await?);
    shown += &format!("{:?}", store.idempotency(&idempotency_key(key), START).await?);
    let content = Bytes::from(format!("large content of thread {key:04}"));
    let blob = crate::sqlite::blob::name(&content, true)?;
    shown += &format!("{:?}", store.blob(&thread, &blob).await?);
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

#[tokio::test]
async fn every_flipped_byte_of_a_row_frame_or_blob_quarantines_its_thread_and_no_other() {
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
        let store = folder.open_with(|options| options.durability = Durability::Buffered).await;
        let store = Arc::new(store);
        let mut keys = Vec::new();
        for _ in 0..240 {
            keys.push(full_thread(&store).await);
        }
        let raw = folder.raw();
        // Two of three threads are damaged, each at another byte.
        let mut longest = 0;
        let damaged = |index: usize| index % 3 > 0;
        for (index, key) in keys.iter().enumerate().filter(|(index, _)| damaged(*index)) {
            let byte = index / 3 * 2 + index % 3 - 1;
            longest = longest.max(flip(&raw, table, column, of, key.0, byte));
        }
        assert!(longest <= 160, "{table}: not every one of {longest} bytes was flipped");
        for (index, key) in keys.iter().enumerate() {
            let shown = show(&store, *key).await;
            if damaged(index) {
                let code = shown.map_err(|error| error.code());
                assert_eq!(code, Err(Code::ThreadQuarantined), "{table} byte {index}");
                let refused = store.append(batch(*key, 1)).await.unwrap_err();
                assert_eq!(refused.code(), Code::ThreadQuarantined, "{table}");
            } else {
                assert!(shown.is_ok(), "{table}: {shown:?}");
            }
        }
        assert_eq!(store.stats().await.unwrap().quarantined, 160);
        store.health().unwrap();
        let goes_on = Batch { frames: frames(keys[0], None, 2, 0, &["on"]), ..batch(keys[0], 1) };
        store.append(goes_on).await.unwrap();
        // A listing leaves the damaged out and shows the others.
        let page = crate::rows::Page { limit: 1_000, after: None };
        let listed = store.threads(&scope(), &Default::default(), &page).await.unwrap();
        assert_eq!(listed.rows.len(), 80, "{table}");
    }
}

#[tokio::test]
async fn a_column_that_does_not_say_what_its_row_says_quarantines_the_thread() {
    for damage in [
        "UPDATE frames SET first = 2, last = 2 WHERE thread = 1",
        "UPDATE frames SET last = 2 WHERE thread = 1",
        "UPDATE frames SET run = NULL WHERE thread = 1",
        "UPDATE frames SET run = 9 WHERE thread = 1",
        "UPDATE frames SET first_run = 2 WHERE thread = 1",
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
        let goes_on = |key| Batch { frames: frames(key, None, 2, 0, &["on"]), ..batch(key, 1) };
        store.append(goes_on(key)).await.unwrap();
        folder.raw().execute(damage, []).unwrap();
        let code = show(&store, key).await.map_err(|error| error.code());
        assert_eq!(code, Err(Code::ThreadQuarantined), "{damage}");
        show(&store, other).await.unwrap();
        store.append(goes_on(other)).await.unwrap();
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
    let stride: usize = std::env::var("FLIP_STRIDE").map_or(997, |text| text.parse().unwrap());
    let (mut served, mut refused) = (0, 0);
    for position in (0..sound.len()).step_by(stride) {
        let mut bytes = sound.clone();
        bytes[position] ^= 1 << (position % 8);
        for suffix in ["-wal", "-shm"] {
            drop(std::fs::remove_file(crate::sqlite::file::beside(&folder.path, suffix)));
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
                    if shown != *text {
                        eprintln!("WRONG {position} page {} off {}", position / 4096, position % 4096);
                        for (at, (a, b)) in shown.bytes().zip(text.bytes()).enumerate() {
                            if a != b {
                                let from = at.saturating_sub(60);
                                eprintln!("  got {:?}", shown.get(from..(at + 60).min(shown.len())));
                                eprintln!("  exp {:?}", text.get(from..(at + 60).min(text.len())));
                                break;
                            }
                        }
                    }
                }
                Err(_) => refused += 1,
            }
        }
    }
    eprintln!("served {served} refused {refused} of {} bytes", sound.len());
    assert!(served > 0 && refused > 0);
}
