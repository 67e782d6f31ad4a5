use rusqlite::{Connection, params};
use trilogue_domain::error::Code;
use trilogue_domain::{Given, Json, MessageId};

use super::seed::{
    Folder, creation, frames, numbers, options, run_row, scope, thread_row, thread_with_run,
};
use crate::port::{Admin, Append, Batch, Change, Housekeeping, Read};
use crate::record::{Record, as_version, as_version_1};
use crate::rows::{CheckpointRow, MessageRow, Page, RunFilter, ThreadFilter};
use crate::sqlite::SqliteStore;
use crate::sqlite::schema::{Migrations, SCHEMA_VERSION};

/// Writes a thread with a run and a frame as version 1 did.
fn write_version_1(conn: &Connection, key: i64) {
    let thread = thread_row(trilogue_domain::ThreadKey(key));
    let run = run_row(thread.key, trilogue_domain::RunKey(key));
    conn.execute(
        "INSERT INTO threads (key, tenant, id, owner, owner_node, epoch, ephemeral, body)
         VALUES (?1, ?2, ?3, ?4, ?5, 1, 0, ?6)",
        params![
            key,
            thread.tenant.as_str(),
            thread.id.as_str(),
            thread.owner.as_str(),
            thread.owner_node,
            as_version_1(thread.encode(), 0)
        ],
    )
    .unwrap();
    conn.execute(
        "INSERT INTO runs (key, tenant, id, thread, principal, agent, status, body)
         VALUES (?1, ?2, ?3, ?1, ?4, ?5, 'running', ?6)",
        params![
            key,
            run.tenant.as_str(),
            run.id.as_str(),
            run.principal.as_str(),
            run.agent.as_str(),
            // Without its rules, callback, request, statelessness and reason, which are none: a byte each.
            as_version_1(run.encode(), 5)
        ],
    )
    .unwrap();
    let frame = frames(thread.key, Some(run.key), 1, 1, &["written by version 1"]).remove(0);
    conn.execute(
        "INSERT INTO frames (thread, run, first, last, first_run, body) VALUES (?1, ?1, 1, 1, 1, ?2)",
        params![key, as_version_1(frame.bytes().to_vec(), 0)],
    )
    .unwrap();
}

fn metadata(key: &str, value: &str) -> Vec<(String, String)> {
    vec![(key.to_owned(), value.to_owned())]
}

#[tokio::test]
async fn a_store_of_version_1_opens_with_everything_and_is_searched() {
    let folder = Folder::new();
    {
        let mut conn = folder.raw();
        Migrations::up_to(1).run(&mut conn).unwrap();
        conn.execute_batch("BEGIN").unwrap();
        for key in 1..=1_500 {
            write_version_1(&conn, key);
        }
        conn.execute_batch("COMMIT").unwrap();
        // One damaged row must not keep the others from being migrated.
        conn.execute("UPDATE threads SET body = x'00' WHERE key = 7", []).unwrap();
    }
    let store = folder.open().await;
    assert_eq!(store.stats().await.unwrap().schema_version, SCHEMA_VERSION);
    let thread = thread_row(trilogue_domain::ThreadKey(1_234));
    assert_eq!(store.thread(&scope(), &thread.id).await.unwrap(), Some(thread.clone()));
    assert_eq!(numbers(&store, &thread).await, [1]);
    let filter = ThreadFilter { metadata: metadata("key", "1234"), ..ThreadFilter::default() };
    let found = store.threads(&scope(), &filter, &Page::default()).await.unwrap();
    assert_eq!(found.rows, std::slice::from_ref(&thread));
    let filter = RunFilter { metadata: metadata("number", "1400"), ..RunFilter::default() };
    let found = store.runs(&scope(), &filter, &Page::default()).await.unwrap();
    assert_eq!(found.rows[0].key.0, 1_400);
    // New metadata replaces what the migration made of the old.
    let mut changed = thread.clone();
    changed.metadata = Json::parse(r#"{"key":"new"}"#).unwrap();
    let change = Batch {
        changes: vec![Change::Thread(changed.clone())],
        ..super::seed::batch(thread.key, 1)
    };
    store.append(change).await.unwrap();
    for (value, expected) in [("1234", vec![]), ("\"new\"", vec![changed])] {
        let filter = ThreadFilter { metadata: metadata("key", value), ..ThreadFilter::default() };
        let found = store.threads(&scope(), &filter, &Page::default()).await.unwrap();
        assert_eq!(found.rows, expected);
    }
    assert_eq!(store.next_thread_key().0, 1_501);
    let damaged = store.thread_by_key(trilogue_domain::ThreadKey(7)).await.unwrap_err();
    assert_eq!(damaged.code(), Code::ThreadQuarantined);
}

#[tokio::test]
async fn a_store_of_version_2_keeps_its_rows_and_takes_new_ones() {
    let folder = Folder::new();
    {
        let mut conn = folder.raw();
        Migrations::up_to(2).run(&mut conn).unwrap();
        write_version_1(&conn, 1);
    }
    let store = folder.open().await;
    assert_eq!(store.stats().await.unwrap().schema_version, SCHEMA_VERSION);
    let thread = thread_row(trilogue_domain::ThreadKey(1));
    assert_eq!(numbers(&store, &thread).await, [1]);
    let old = store.run_by_key(trilogue_domain::RunKey(1)).await.unwrap().unwrap();
    assert_eq!(old, run_row(thread.key, trilogue_domain::RunKey(1)));
    let strict = crate::rows::RunRow {
        rules: Some("strict".into()),
        ..run_row(thread.key, trilogue_domain::RunKey(2))
    };
    let checkpoint = CheckpointRow {
        key: trilogue_domain::CheckpointKey(1),
        id: trilogue_domain::CheckpointId::parse("c").unwrap(),
        thread: thread.key,
        parent: None,
        run: None,
        position: 2,
        value: None,
        created_at: super::seed::START,
        given: Some(Given { entries: Vec::new(), state: Some("http://example.com/s".into()) }),
    };
    let frames = frames(thread.key, None, 2, 0, &["written by this version"]);
    let changes =
        vec![Change::Run(Box::new(strict.clone())), Change::Checkpoint(checkpoint.clone())];
    store.append(Batch { frames, changes, ..super::seed::batch(thread.key, 1) }).await.unwrap();
    drop(store);
    let store = folder.open().await;
    assert_eq!(numbers(&store, &thread).await, [1, 2]);
    assert_eq!(store.run_by_key(old.key).await.unwrap(), Some(old));
    assert_eq!(store.run_by_key(strict.key).await.unwrap(), Some(strict));
    assert_eq!(store.checkpoint_by_key(checkpoint.key).await.unwrap(), Some(checkpoint));
}

#[tokio::test]
async fn a_store_of_version_3_keeps_what_it_holds_and_takes_what_is_new() {
    use crate::port::{Configurations, Queue};
    use crate::rows::{ConfigurationFilter, QueueItem, QueueKind, RetentionPolicy, RunRow};
    let folder = Folder::new();
    let thread = thread_row(trilogue_domain::ThreadKey(1));
    let item = |key: &str, reference: &'static str| QueueItem {
        kind: QueueKind::Callback,
        key: key.to_owned(),
        due: super::seed::START,
        tenant: thread.tenant.clone(),
        principal: thread.owner.clone(),
        thread: Some(thread.key),
        reference: Json::parse(reference).unwrap(),
    };
    // What stood in no line then stands in none now.
    let old = item("old", r#"{"run":1,"number":9}"#);
    {
        let mut conn = folder.raw();
        Migrations::up_to(3).run(&mut conn).unwrap();
        write_version_1(&conn, 1);
        conn.execute(
            "INSERT INTO queue (kind, key, tenant, thread, due, free_at, fence, attempts, dead, error, body)
             VALUES ('callback', 'old', ?1, 1, ?2, ?2, 0, 0, 0, '', ?3)",
            params![thread.tenant.as_str(), old.due.as_micros(), old.encode()],
        )
        .unwrap();
    }
    let store = folder.open().await;
    assert_eq!(numbers(&store, &thread).await, [1]);
    let run = store.run_by_key(trilogue_domain::RunKey(1)).await.unwrap().unwrap();
    assert!(!run.stateless && run.callback.is_none() && run.request.is_none());
    let stateless = RunRow {
        stateless: true,
        status: trilogue_domain::RunStatus::Completed,
        ended_at: Some(super::seed::START),
        ..run_row(thread.key, trilogue_domain::RunKey(2))
    };
    let changes = vec![
        Change::Run(Box::new(stateless.clone())),
        Change::Offer(item("b", r#"{"run":1,"number":2}"#)),
        Change::Offer(item("a", r#"{"run":1,"number":1}"#)),
    ];
    store.append(Batch { changes, ..super::seed::batch(thread.key, 1) }).await.unwrap();
    let now = super::seed::START.after(std::time::Duration::from_secs(9));
    let until = now.after(std::time::Duration::from_secs(9));
    let claims = store.claim(QueueKind::Callback, now, until, 9).await.unwrap();
    let keys: Vec<_> = claims.iter().map(|claim| claim.item.key.as_str()).collect();
    assert_eq!(keys, ["old", "a"]);
    for claim in &claims {
        assert!(store.finish(claim).await.unwrap());
    }
    let policy = RetentionPolicy {
        max_age: None,
        max_stateless_age: Some(std::time::Duration::from_secs(1)),
        max_runs_per_thread: None,
        max_runs_per_tenant: None,
    };
    assert_eq!(store.expired_runs(&policy, now, 9).await.unwrap(), [stateless]);
    let filter = ConfigurationFilter { agent: run.agent, metadata: Vec::new() };
    let listing = store.configurations(&scope(), &filter, &Page::default(), now).await.unwrap();
    assert_eq!(listing.rows, []);
}

/// Writes a message of the run of a thread as version 3 of the format did.
fn write_message_of_version_3(conn: &Connection, id: &str, thread: i64) -> MessageRow {
    let row = MessageRow {
        id: MessageId::parse(id).unwrap(),
        tenant: super::seed::tenant(),
        thread: trilogue_domain::ThreadKey(thread),
        run: trilogue_domain::RunKey(thread),
        role: trilogue_domain::Role::User,
        position: 1,
        alias: None,
    };
    conn.execute(
        "INSERT INTO messages (tenant, id, thread, run, body) VALUES (?1, ?2, ?3, ?3, ?4)",
        // Without its other id, which is none: a byte.
        params![row.tenant.as_str(), id, thread, as_version(3, row.encode(), 1)],
    )
    .unwrap();
    row
}

#[tokio::test]
async fn a_store_of_version_4_keeps_its_messages_and_takes_the_same_id_in_another_thread() {
    let folder = Folder::new();
    let row = {
        let mut conn = folder.raw();
        Migrations::up_to(4).run(&mut conn).unwrap();
        write_version_1(&conn, 1);
        write_version_1(&conn, 2);
        write_message_of_version_3(&conn, "m", 1)
    };
    let report = crate::sqlite::verify(&folder.path).unwrap();
    assert!(report.schema_version == 4 && report.is_sound(), "{report:?}");
    let store = folder.open().await;
    assert_eq!(store.stats().await.unwrap().schema_version, SCHEMA_VERSION);
    let (one, two) =
        (thread_row(trilogue_domain::ThreadKey(1)), thread_row(trilogue_domain::ThreadKey(2)));
    assert_eq!(store.message_in(&one, &row.id).await.unwrap(), Some(row.clone()));
    let of_run = run_row(one.key, trilogue_domain::RunKey(1));
    let ran = ThreadFilter { agent: Some(of_run.agent), ..ThreadFilter::default() };
    let listed = store.threads(&scope(), &ran, &Page::default()).await.unwrap();
    assert_eq!(listed.rows, [two.clone(), one.clone()]);
    let theirs = MessageId::parse("theirs").unwrap();
    let same = MessageRow { thread: two.key, run: trilogue_domain::RunKey(2), ..row.clone() };
    let changes = vec![Change::Message(same.clone())];
    store.append(Batch { changes, ..super::seed::batch(two.key, 1) }).await.unwrap();
    let changes = vec![Change::Alias(row.id.clone(), theirs.clone())];
    store.append(Batch { changes, ..super::seed::batch(one.key, 1) }).await.unwrap();
    let known = MessageRow { alias: Some(theirs.clone()), ..row.clone() };
    assert_eq!(store.message_in(&one, &theirs).await.unwrap(), Some(known.clone()));
    assert_eq!(store.message_in(&two, &row.id).await.unwrap(), Some(same));
    assert_eq!(store.message(&scope(), &row.id).await.unwrap(), Some(known), "the oldest");
    store.close().await.unwrap();
    let report = crate::sqlite::verify(&folder.path).unwrap();
    assert!(report.schema_version == SCHEMA_VERSION && report.is_sound(), "{report:?}");
}

/// What a program that knows version 2 alone would meet: a newer version, before it reads a row of the new format.
#[test]
fn the_version_in_the_file_names_the_format() {
    let folder = Folder::new();
    let mut conn = folder.raw();
    Migrations::up_to(2).run(&mut conn).unwrap();
    let version = |conn: &Connection| -> u32 {
        conn.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    };
    assert_eq!(version(&conn), 2);
    Migrations::all().run(&mut conn).unwrap();
    assert_eq!(version(&conn), SCHEMA_VERSION);
}

#[tokio::test]
async fn a_migration_that_was_cut_off_is_made_again() {
    let folder = Folder::new();
    {
        let mut conn = folder.raw();
        Migrations::up_to(1).run(&mut conn).unwrap();
        write_version_1(&conn, 1);
        // What a crash in the middle of version 2 leaves: its transaction did not end.
        conn.execute_batch("BEGIN; CREATE TABLE search (x); INSERT INTO search VALUES (1)")
            .unwrap();
    }
    let store = folder.open().await;
    let filter =
        ThreadFilter { metadata: metadata("colour", "\"blue\""), ..ThreadFilter::default() };
    let found = store.threads(&scope(), &filter, &Page::default()).await.unwrap();
    assert_eq!(found.rows.len(), 1);
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
        let removal =
            Batch { changes: vec![Change::RemoveRun(run)], ..super::seed::batch(thread.key, 2) };
        store.append(removal).await.unwrap();
        let removal = Batch { changes: vec![Change::RemoveThread], ..super::seed::batch(other, 0) };
        store.append(removal).await.unwrap();
        (run, other)
    };
    let store = folder.open().await;
    assert!(store.next_run_key() > run);
    assert!(store.next_thread_key() > thread);
    // Nor are the numbers of its log: the next is behind those that went.
    let first = trilogue_domain::ThreadKey(1);
    let frames = frames(first, None, 3, 0, &["behind the gap"]);
    store.append(Batch { frames, ..super::seed::batch(first, 2) }).await.unwrap();
    assert_eq!(numbers(&store, &thread_row(first)).await, [3]);
}
