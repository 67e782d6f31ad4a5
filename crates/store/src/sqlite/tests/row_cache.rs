use std::sync::Arc;

use trilogue_domain::error::Code;
use trilogue_domain::{AgentName, CheckpointKey, Json, Scope, ThreadKey};

use super::seed::{Folder, batch, creation, scope, tenant, thread_row};
use crate::fixtures;
use crate::options::Durability;
use crate::port::{Append, Batch, Change, Housekeeping, Read};
use crate::rows::{BindingRow, ThreadRow};
use crate::sqlite::SqliteStore;
use crate::sqlite::row_cache::RowCache;

fn binding(thread: &ThreadRow, remote: &str, told: i64) -> BindingRow {
    BindingRow { last_seen: Some(CheckpointKey(told)), ..fixtures::binding_row(thread.key, remote) }
}

fn agent() -> AgentName {
    fixtures::agent("echo")
}

async fn write(store: &SqliteStore, thread: &ThreadRow, changes: Vec<Change>) {
    let batch = Batch { changes, epoch: thread.epoch, ..batch(thread.key, 0) };
    store.append(batch).await.unwrap();
}

async fn created(store: &SqliteStore) -> ThreadRow {
    let key = store.next_thread_key();
    store.append(creation(key)).await.unwrap();
    thread_row(key)
}

#[tokio::test]
async fn who_was_told_of_a_change_finds_it() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut thread = created(&store).await;
    for turn in 1..=3 {
        thread.head = Some(CheckpointKey(turn));
        let bound = binding(&thread, "session", turn);
        let changes = vec![Change::Thread(thread.clone()), Change::Binding(bound.clone())];
        write(&store, &thread, changes).await;
        let found = store.thread(&scope(), &thread.id).await.unwrap();
        assert_eq!(found.as_ref(), Some(&thread));
        assert_eq!(store.thread_of(&scope(), thread.key).await.unwrap().as_ref(), Some(&thread));
        let known = store.binding(&scope(), &thread.id, &agent()).await.unwrap();
        assert_eq!(known, Some(bound));
        // The disk has the same row.
        let stored = store.thread_by_key(thread.key).await.unwrap();
        assert_eq!(stored.as_ref(), Some(&thread));
    }
}

#[tokio::test]
async fn another_scope_finds_nothing_there_either() {
    let folder = Folder::new();
    let store = folder.open().await;
    let thread = created(&store).await;
    write(&store, &thread, vec![Change::Binding(binding(&thread, "session", 1))]).await;
    let another = Scope { tenant: tenant(), owner: Some(fixtures::principal("bob")) };
    let foreign = Scope { tenant: fixtures::tenant("foreign"), owner: None };
    for scope in [another, foreign] {
        assert_eq!(store.thread(&scope, &thread.id).await.unwrap(), None);
        assert_eq!(store.thread_of(&scope, thread.key).await.unwrap(), None);
        assert_eq!(store.binding(&scope, &thread.id, &agent()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_thread_that_another_node_took_is_seen_as_its_own() {
    let folder = Folder::new();
    let store = folder.open().await;
    let thread = created(&store).await;
    let acquired = store.acquire(thread.key, "another").await.unwrap();
    assert_eq!(acquired.thread.epoch, thread.epoch + 1);
    let found = store.thread(&scope(), &thread.id).await.unwrap();
    assert_eq!(found, Some(acquired.thread));
}

#[tokio::test]
async fn a_thread_that_is_gone_is_not_found_and_its_name_is_free() {
    let folder = Folder::new();
    let store = folder.open().await;
    let thread = created(&store).await;
    write(&store, &thread, vec![Change::Binding(binding(&thread, "session", 1))]).await;
    write(&store, &thread, vec![Change::RemoveThread]).await;
    assert_eq!(store.thread(&scope(), &thread.id).await.unwrap(), None);
    assert_eq!(store.thread_of(&scope(), thread.key).await.unwrap(), None);
    assert_eq!(store.binding(&scope(), &thread.id, &agent()).await.unwrap(), None);

    let key = store.next_thread_key();
    let again = ThreadRow { id: thread.id.clone(), ..thread_row(key) };
    let changes = vec![Change::Thread(again.clone())];
    store.append(Batch { changes, ..creation(key) }).await.unwrap();
    assert_eq!(store.thread(&scope(), &thread.id).await.unwrap(), Some(again));
    assert_eq!(store.binding(&scope(), &thread.id, &agent()).await.unwrap(), None);
}

#[tokio::test]
async fn a_damaged_thread_is_refused_and_gone_when_it_was_erased() {
    let folder = Folder::new();
    let store = folder.open().await;
    let thread = created(&store).await;
    store.quarantine(thread.key, "a test says so");
    let refused = store.thread(&scope(), &thread.id).await.unwrap_err();
    assert_eq!(refused.code(), Code::ThreadQuarantined);
    let erased = store.erase_quarantined(&scope(), &thread.id).await.unwrap();
    assert_eq!(erased, Some(thread.key));
    assert_eq!(store.thread(&scope(), &thread.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_row_that_is_too_large_to_keep_is_looked_up() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut thread = created(&store).await;
    for metadata in [format!(r#"{{"long":"{}"}}"#, "x".repeat(8_000)), "{}".to_owned()] {
        thread.metadata = Json::parse(metadata).unwrap();
        write(&store, &thread, vec![Change::Thread(thread.clone())]).await;
        let found = store.thread(&scope(), &thread.id).await.unwrap();
        assert_eq!(found.as_ref(), Some(&thread));
    }
}

#[test]
fn rows_that_a_commit_under_way_changes_are_hidden() {
    let hot = RowCache::default();
    let (mut thread, other) = (thread_row(ThreadKey(1)), thread_row(ThreadKey(2)));
    let commit = |thread: &ThreadRow| {
        let changes =
            vec![Change::Thread(thread.clone()), Change::Binding(binding(thread, "session", 1))];
        hot.committed(&Batch { changes, ..batch(thread.key, 0) });
    };
    let found = |thread: &ThreadRow| {
        let bound = hot.binding(&thread.tenant, &thread.id, &agent()).map(|(row, _)| row);
        let found = hot.thread_of(thread.key);
        assert_eq!(bound, found);
        assert_eq!(hot.thread(&thread.tenant, &thread.id), found);
        found
    };
    commit(&thread);
    commit(&other);
    hot.hide([thread.key].into_iter());
    assert_eq!((found(&thread), found(&other)), (None, Some(other.clone())));
    // The first of two changes is not the newest one.
    thread.head = Some(CheckpointKey(1));
    commit(&thread);
    assert_eq!(found(&thread), None);
    thread.head = Some(CheckpointKey(2));
    commit(&thread);
    hot.show();
    assert_eq!((found(&thread), found(&other)), (Some(thread), Some(other)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_saw_a_change_in_the_database_finds_it() {
    let folder = Folder::new();
    let store = folder.open_with(|options| options.durability = Durability::Buffered).await;
    let store = Arc::new(store);
    let thread = created(&store).await;
    let turns = 200;
    let writer = tokio::spawn({
        let (store, mut thread) = (Arc::clone(&store), thread.clone());
        async move {
            for turn in 1..=turns {
                thread.head = Some(CheckpointKey(turn));
                write(&store, &thread, vec![Change::Thread(thread.clone())]).await;
            }
        }
    });
    loop {
        let seen = store.thread_by_key(thread.key).await.unwrap().unwrap().head;
        let found = store.thread(&scope(), &thread.id).await.unwrap().unwrap().head;
        assert!(found >= seen, "{found:?} after {seen:?}");
        if writer.is_finished() {
            break;
        }
    }
    writer.await.unwrap();
}
