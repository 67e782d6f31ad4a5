//! What the statements of a turn cost the writer: no second preparation, and no look-up of what cannot exist.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, StatementStatus, params};
use trilogue_domain::ThreadKey;
use trilogue_domain::error::Code;

use super::seed::{Folder, batch, creation, options, run_row, thread_with_run};
use crate::port::{Append, Batch, Change};
use crate::rows::{MessageRow, ThreadRow};
use crate::sqlite::SqliteStore;
use crate::sqlite::apply::{UPDATE_RUN, UPDATE_THREAD};
use crate::sqlite::connection;
use crate::sqlite::job::{WorkKind, WriteContext};
use crate::sqlite::lookups::BY_ALIAS;
use crate::sqlite::row::{one, select};

/// A status counter of a statement that the writer keeps prepared.
async fn count(store: &SqliteStore, sql: &str, status: StatementStatus) -> i32 {
    let sql = sql.to_owned();
    let read = move |writer: &mut WriteContext<'_>| {
        Ok(writer.conn.prepare_cached(&sql)?.get_status(status))
    };
    store.write(WorkKind::USUAL, read).await.unwrap()
}

#[tokio::test]
async fn the_statements_of_a_turn_are_prepared_once() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (thread, run) = thread_with_run(&store, 1).await;
    // Zero and one are the values that SQLite plans for.
    assert_eq!(thread.key, ThreadKey(1));
    for _ in 0..20 {
        let row = run_row(thread.key, run);
        let changes = vec![Change::Thread(thread.clone()), Change::Run(Box::new(row))];
        store.append(Batch { changes, ..batch(thread.key, 1) }).await.unwrap();
    }
    for sql in [UPDATE_THREAD, UPDATE_RUN] {
        assert!(count(&store, sql, StatementStatus::Run).await >= 20, "{sql}");
        assert_eq!(count(&store, sql, StatementStatus::RePrepare).await, 0, "{sql}");
    }
    let look_ups = store.read(|conn, _| {
        for _ in 0..20 {
            one::<MessageRow>(conn, BY_ALIAS, params![1, "alias"])?;
        }
        let statement = conn.prepare_cached(&select::<MessageRow>(BY_ALIAS))?;
        Ok([StatementStatus::Run, StatementStatus::RePrepare]
            .map(|status| statement.get_status(status)))
    });
    assert_eq!(look_ups.await.unwrap(), [20, 0]);
}

#[tokio::test]
async fn a_new_thread_is_stored_without_a_look_up() {
    let folder = Folder::new();
    let store = folder.open().await;
    let (kept, _) = thread_with_run(&store, 2).await;
    let look_up = select::<ThreadRow>("WHERE key = ?1");
    let before = count(&store, &look_up, StatementStatus::Run).await;
    let (skipped, next) = (store.next_thread_key(), store.next_thread_key());
    store.append(creation(next)).await.unwrap();
    assert_eq!(count(&store, &look_up, StatementStatus::Run).await, before);
    // The thread of an earlier key may be stored, which costs a look-up.
    store.append(creation(skipped)).await.unwrap();
    assert_eq!(count(&store, &look_up, StatementStatus::Run).await, before + 1);
    drop(store);
    let store = folder.open().await;
    for (thread, last) in [(kept.key, 2), (skipped, 0), (next, 0)] {
        let late = store.append(batch(thread, last + 1)).await.unwrap_err();
        assert_eq!(late.code(), Code::OwnershipLost);
        store.append(batch(thread, last)).await.unwrap();
    }
}

#[tokio::test]
async fn every_connection_keeps_the_plans_of_its_statements() {
    let folder = Folder::new();
    drop(folder.open().await);
    let is_stable = |conn: Connection| conn.db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG);
    assert_eq!(is_stable(connection::writer(&folder.path, &options()).unwrap()), Ok(true));
    assert_eq!(is_stable(connection::reader(&folder.path, 64).unwrap()), Ok(true));
}
