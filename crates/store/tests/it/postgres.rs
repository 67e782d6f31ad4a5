//! Tests of the PostgreSQL store alone: several processes share it, connections break, and an error names the reason if it cannot be opened.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::join;
use futures_util::poll;
use tokio_postgres::NoTls;
use trilogue_domain::{Code, Json};
use trilogue_store::rows::ThreadRow;
use trilogue_store::{Change, Options, open};

use crate::erasure::{MARKER, furnish};
use crate::harness::{World, alice, code, options, page, postgres_url, read, thread_row};

/// Ends the connections of a store whose URL has an application name.
pub(crate) const KILL: &str = concat!(
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity",
    " WHERE application_name = $1"
);

/// A separate connection of the test to the server of a store.
pub(crate) async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn everything_is_there_again() {
    let world = World::postgres().await;
    let log = furnish(&world, "t", "r").await;
    let keys = (world.store.next_thread_key(), world.store.next_run_key());
    let world = world.reopen().await;
    assert_eq!(read(&*world.store, &log.row, None).await.last().unwrap().1, MARKER);
    assert!(world.store.next_thread_key() > keys.0 && world.store.next_run_key() > keys.1);
    let acquired = world.store.acquire(log.row.key, "another").await.unwrap();
    assert_eq!((acquired.last, acquired.thread.epoch), (log.last, log.row.epoch + 1));
}

#[tokio::test]
async fn many_open_an_empty_database_at_once() {
    let url = postgres_url().await;
    let opening = (0..6).map(|_| open(&url, options()));
    let stores: Vec<_> =
        futures_util::future::join_all(opening).await.into_iter().map(Result::unwrap).collect();
    let keys: std::collections::HashSet<_> =
        stores.iter().map(|store| store.next_thread_key()).collect();
    assert_eq!(keys.len(), stores.len(), "each has a block of its own");
}

#[tokio::test]
async fn a_writer_that_was_replaced_writes_nothing() {
    let world = World::postgres().await;
    let other = open(&world.url(), options()).await.unwrap();
    let mut log = world.thread("t").await;
    log.step().say(None, &["one"]).commit().await.unwrap();
    let taken = other.acquire(log.row.key, "other").await.unwrap();
    assert_eq!((taken.last, taken.thread.epoch), (1, log.row.epoch + 1));
    let late = log.step().say(None, &["late"]).commit().await;
    assert_eq!(code(late), Code::OwnershipLost);
    let texts = read(&*other, &log.row, None).await;
    assert_eq!(texts, [(1, "one".to_owned())]);
}

#[tokio::test]
async fn nothing_is_refused_because_of_what_is_not_stored_yet() {
    let world = World::postgres().await;
    let other = client(&world.url()).await;
    other.batch_execute("BEGIN; LOCK TABLE search IN SHARE ROW EXCLUSIVE MODE").await.unwrap();
    // One writer writes both in one transaction.
    let keys: Vec<_> = (0..4).map(|_| world.store.next_thread_key()).collect();
    let row = |key| ThreadRow {
        metadata: Json::parse(r#"{"n":1}"#).unwrap(),
        ..thread_row(key, &alice(), "same")
    };
    let is_answered = Cell::new(false);
    let second = async {
        let created = world.create(row(keys[2])).await;
        is_answered.set(true);
        created
    };
    let mut both = pin!(join(world.create(row(keys[0])), second));
    let blocked = async {
        let waits = "SELECT 1 FROM pg_locks WHERE relation = 'search'::regclass AND NOT granted";
        while other.query(waits, &[]).await.unwrap().is_empty() {}
    };
    tokio::select! {
        _ = &mut both => panic!("nothing can be stored"),
        () = blocked => {}
    }
    assert!(poll!(&mut both).is_pending() && !is_answered.get(), "the first may still fail");
    other.batch_execute("ROLLBACK").await.unwrap();
    let (first, second) = both.await;
    assert!(first.is_ok() && code(second) == Code::AlreadyExists);
}

#[tokio::test]
async fn what_one_writes_the_other_lists_newest_first() {
    let world = World::postgres().await;
    let second = World::of(open(&world.url(), options()).await.unwrap());
    // The keys of the second store are larger than those of the first, independent of the order of writes.
    second.thread("a").await;
    world.thread("b").await;
    second.thread("c").await;
    let listing = world.store.threads(&alice(), &Default::default(), &page(9, None)).await.unwrap();
    let ids: Vec<_> = listing.rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["c", "b", "a"]);
}

#[tokio::test]
async fn a_path_leads_through_the_checkpoints_of_every_process() {
    let world = World::postgres().await;
    let second = World::of(open(&world.url(), options()).await.unwrap());
    let mut log = second.thread("t").await;
    let first = log.checkpoint("a", None);
    let row = log.row.clone();
    log.write([Change::Checkpoint(first.clone()), Change::Thread(row)]).await;
    // The newer checkpoint has the smaller key.
    let mut newer = log.checkpoint("b", Some(first.key));
    newer.key = world.store.next_checkpoint_key();
    assert!(newer.key < first.key);
    log.row.head = Some(newer.key);
    let row = log.row.clone();
    log.write([Change::Checkpoint(newer), Change::Thread(row)]).await;
    let (scope, id) = (alice(), log.row.id.clone());
    let mut path = trilogue_store::PathReader::new(&*world.store, &scope, &id, None);
    let mut ids = Vec::new();
    while let Some(row) = path.next().await.unwrap() {
        ids.push(row.id.to_string());
    }
    assert_eq!(ids, ["b", "a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_survive_connections_that_are_killed() {
    const EVENTS: usize = 100;
    let url = postgres_url().await;
    let schema = url.rsplit("%3D").next().unwrap();
    // Only connections of this store have this application name.
    let named = format!("{url}&application_name={schema}");
    let world = World::of(open(&named, options()).await.unwrap());
    let killer = client(&std::env::var("TRILOGUE_POSTGRES").unwrap()).await;
    let mut logs = Vec::new();
    for number in 0..4 {
        logs.push(world.thread(&format!("t{number}")).await);
    }
    let kills = std::sync::atomic::AtomicI64::new(0);
    let (killer, kills) = (&killer, &kills);
    // One writer kills the connections while the others write.
    let writing = logs.into_iter().enumerate().map(|(place, mut log)| async move {
        for number in 0..EVENTS {
            let run = log.run_row(&format!("{}-{number}", log.row.id));
            let text = format!("event {number}");
            log.step().run(&run).say(Some(run.key), &[&text]).commit().await.unwrap();
            if number % 20 == place * 5 {
                let killed: i64 = killer.query_one(KILL, &[&schema]).await.unwrap().get(0);
                kills.fetch_add(killed, std::sync::atomic::Ordering::Relaxed);
            }
        }
        log
    });
    let logs = futures_util::future::join_all(writing).await;
    assert!(kills.load(std::sync::atomic::Ordering::Relaxed) > 0, "some connection was killed");
    for log in logs {
        let expected: Vec<_> =
            (0..EVENTS).map(|number| (number as u64 + 1, format!("event {number}"))).collect();
        assert_eq!(read(&*world.store, &log.row, None).await, expected);
    }
}

#[tokio::test]
async fn a_database_that_cannot_be_used_says_why() {
    let url = postgres_url().await;
    let quick = || Options { connect_wait: Duration::from_millis(500), ..options() };
    let refused = async |url: &str| open(url, quick()).await.unwrap_err();
    let (server, _) = url.split_once('?').unwrap();
    let host = server.rsplit_once('/').unwrap().0;

    let error = refused("postgres://me:secret@127.0.0.1:1/db").await;
    assert_eq!(error.code(), Code::StoreUnavailable, "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    let error = refused(&format!("{host}/no_such_database")).await;
    assert_eq!(error.code(), Code::InvalidRequest, "{error}");
    assert!(error.to_string().contains("no_such_database"), "{error}");
    let error = refused(&format!("{server}?sslrootcert=/no/such/file")).await;
    assert_eq!(error.code(), Code::InvalidRequest, "{error}");
    assert!(error.to_string().contains("/no/such/file"), "{error}");
    let error = refused(&format!("{url}%20-cdefault_transaction_read_only%3Don")).await;
    assert_eq!(error.code(), Code::StoreReadOnly, "{error}");
}

#[tokio::test]
async fn a_newer_schema_is_used_only_where_it_says_so() {
    let world = World::postgres().await;
    let mut log = world.thread("t").await;
    let client = client(&world.url()).await;
    let newer = "UPDATE schema_version SET version = 99, min_version = 98";
    client.batch_execute(newer).await.unwrap();
    let error = open(&world.url(), options()).await.unwrap_err();
    assert_eq!(error.code(), Code::StoreTooNew, "{error}");
    assert!(error.to_string().contains("99"), "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("newer version")), "{error}");
    // The running server continues.
    log.step().say(None, &["one"]).commit().await.unwrap();

    client.batch_execute("UPDATE schema_version SET min_version = 2").await.unwrap();
    let other = open(&world.url(), options()).await.unwrap();
    assert_eq!(read(&*other, &log.row, None).await, [(1, "one".to_owned())]);
    let row = client.query_one("SELECT version FROM schema_version", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 99, "it stays as the newer program left it");
}

#[tokio::test]
async fn a_damaged_frame_closes_its_thread_alone() {
    let world = World::postgres().await;
    let mut log = world.thread("t").await;
    log.step().say(None, &["one"]).commit().await.unwrap();
    let mut other = world.thread("u").await;
    other.step().say(None, &["two"]).commit().await.unwrap();
    let client = client(&world.url()).await;
    let sql =
        "UPDATE frames SET body = set_byte(body, 12, get_byte(body, 12) # 1) WHERE thread = $1";
    client.execute(sql, &[&log.row.key.0]).await.unwrap();
    let range = trilogue_store::Range { run: None, after: 0, max_bytes: 99 };
    let read_back = world.store.frames(log.row.key, range).await;
    assert_eq!(code(read_back), Code::ThreadQuarantined);
    assert_eq!(other.read().await, [(1, "two".to_owned())]);
    let erased = world.store.erase_quarantined(&alice(), &log.row.id).await.unwrap();
    assert_eq!(erased, Some(log.row.key));
    assert!(world.store.thread(&alice(), &log.row.id).await.unwrap().is_none());
}
