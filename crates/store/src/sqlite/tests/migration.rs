use rusqlite::{Connection, Transaction};
use trilogue_domain::ThreadKey;
use trilogue_domain::error::Code;

use super::seed::{Folder, batch, creation, frames, numbers, options, thread_row, thread_with_run};
use crate::port::{Admin, Append, Batch, Change};
use crate::sqlite::SqliteStore;
use crate::sqlite::error::SqliteError;
use crate::sqlite::schema::{MIGRATIONS, Migration, SCHEMA_VERSION, migrate};

fn version(conn: &Connection) -> u32 {
    conn.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

fn add_notes(transaction: &Transaction<'_>) -> Result<(), SqliteError> {
    Ok(transaction
        .execute_batch("CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('a')")?)
}

/// Fails after it has changed something.
fn add_notes_twice(transaction: &Transaction<'_>) -> Result<(), SqliteError> {
    add_notes(transaction)?;
    add_notes(transaction)
}

fn with(next: Migration) -> Vec<Migration> {
    MIGRATIONS.iter().copied().chain([next]).collect()
}

fn notes(conn: &Connection) -> Option<i64> {
    conn.query_row("SELECT count(*) FROM notes", [], |row| row.get(0)).ok()
}

#[tokio::test]
async fn a_migration_runs_once_and_keeps_what_is_there() {
    let folder = Folder::new();
    let store = folder.open().await;
    assert_eq!(store.stats().await.unwrap().schema_version, SCHEMA_VERSION);
    let (thread, _) = thread_with_run(&store, 2).await;
    store.close().await.unwrap();
    let mut conn = folder.raw();
    for _ in 0..2 {
        migrate(&mut conn, &with(add_notes)).unwrap();
        assert_eq!((version(&conn), notes(&conn)), (SCHEMA_VERSION + 1, Some(1)));
    }
    let SqliteError::Refused(error) = migrate(&mut conn, MIGRATIONS).unwrap_err() else {
        panic!("the version before it does not read it");
    };
    assert_eq!(error.code(), Code::StoreTooNew);
    conn.execute_batch("DROP TABLE notes").unwrap();
    conn.pragma_update(None, "user_version", SCHEMA_VERSION).unwrap();
    drop(conn);
    assert_eq!(numbers(&folder.open().await, &thread).await, [1, 2]);
}

#[tokio::test]
async fn the_third_version_has_no_index_of_message_ids_and_keeps_the_messages() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, _) = thread_with_run(&store, 2).await;
    store.close().await.unwrap();
    // The state that the second version left.
    let conn = folder.raw();
    conn.execute_batch("CREATE INDEX messages_by_id ON messages (tenant, id)").unwrap();
    conn.pragma_update(None, "user_version", 2).unwrap();
    drop(conn);
    assert_eq!(numbers(&folder.open().await, &thread).await, [1, 2]);
    let conn = folder.raw();
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'messages_by_id'";
    let left: i64 = conn.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!((version(&conn), left), (SCHEMA_VERSION, 0));
}

#[test]
fn a_migration_that_failed_or_was_cut_off_leaves_nothing_and_is_made_again() {
    let folder = Folder::new();
    let mut conn = folder.raw();
    migrate(&mut conn, MIGRATIONS).unwrap();
    assert!(migrate(&mut conn, &with(add_notes_twice)).is_err());
    assert_eq!((version(&conn), notes(&conn)), (SCHEMA_VERSION, None));
    // The state after a crash: the transaction did not end.
    conn.execute_batch("BEGIN; CREATE TABLE notes (x); INSERT INTO notes VALUES (1)").unwrap();
    drop(conn);
    let mut conn = folder.raw();
    migrate(&mut conn, &with(add_notes)).unwrap();
    assert_eq!((version(&conn), notes(&conn)), (SCHEMA_VERSION + 1, Some(1)));
}

#[tokio::test]
async fn a_store_of_a_newer_version_or_another_program_is_refused_unchanged() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, _) = thread_with_run(&store, 1).await;
    drop(store);
    let newer = SCHEMA_VERSION + 1;
    folder.raw().pragma_update(None, "user_version", newer).unwrap();
    let error = SqliteStore::open(folder.path.clone(), options()).await.unwrap_err();
    assert_eq!(error.code(), Code::StoreTooNew);
    assert!(error.message().contains(&newer.to_string()), "{error}");
    folder.raw().pragma_update(None, "user_version", SCHEMA_VERSION).unwrap();
    assert_eq!(numbers(&folder.open().await, &thread).await, [1]);

    let other = Folder::new();
    other.raw().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let error = SqliteStore::open(other.path.clone(), options()).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest);
    let tables: i64 =
        other.raw().query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1);

    let text = Folder::new();
    std::fs::write(&text.path, "this is no database, it is a text of some length. ".repeat(50))
        .unwrap();
    let error = SqliteStore::open(text.path.clone(), options()).await.unwrap_err();
    assert_eq!(error.code(), Code::StoreCorrupt);
    assert!(error.hint_text().unwrap().contains("trilogue restore"));
}

#[tokio::test]
async fn keys_of_what_was_removed_are_not_given_again() {
    let folder = Folder::new();
    let (run, thread) = {
        let store = folder.open().await;
        let (thread, run) = thread_with_run(&store, 2).await;
        let (other, _) = (store.next_thread_key(), ());
        store.append(creation(other)).await.unwrap();
        let removal = Batch { changes: vec![Change::RemoveRun(run)], ..batch(thread.key, 2) };
        store.append(removal).await.unwrap();
        let removal = Batch { changes: vec![Change::RemoveThread], ..batch(other, 0) };
        store.append(removal).await.unwrap();
        (run, other)
    };
    let store = folder.open().await;
    assert!(store.next_run_key() > run);
    assert!(store.next_thread_key() > thread);
    // The numbers of its log are not reused either: the next number follows the removed ones.
    let first = ThreadKey(1);
    let frames = frames(first, None, 3, 0, &["behind the gap"]);
    store.append(Batch { frames, ..batch(first, 2) }).await.unwrap();
    assert_eq!(numbers(&store, &thread_row(first)).await, [3]);
}
