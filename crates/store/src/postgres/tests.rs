//! Two versions of the program on one database.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join;
use tokio_postgres::{Client, NoTls};
use trilogue_domain::error::Code;
use trilogue_domain::event::MessageEvent;
use trilogue_domain::{Body, ThreadKey};

use super::PostgresStore;
use super::schema::{MIGRATIONS, SCHEMA_VERSION};
use crate::fixtures::{START, tenant, thread_row};
use crate::options::{Durability, Options};
use crate::port::{Admin, Append, Batch, Change, Range, Read};
use crate::record::{Draft, NoOriginals};
use crate::services::postgres_url;

/// How many migrations the older program knows.
const OLDER: usize = SCHEMA_VERSION as usize - 1;
const EVENTS: u64 = 50;

fn options() -> Options {
    Options { durability: Durability::Buffered, ..Options::new(Arc::new(NoOriginals)) }
}

async fn older(url: &str) -> PostgresStore {
    PostgresStore::open_with(url, options(), &MIGRATIONS[..OLDER]).await.unwrap()
}

async fn newer(url: &str) -> PostgresStore {
    PostgresStore::open(url, options()).await.unwrap()
}

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn version(url: &str) -> i64 {
    client(url).await.query_one("SELECT version FROM schema_version", &[]).await.unwrap().get(0)
}

fn batch(thread: ThreadKey, expected_last: u64) -> Batch {
    Batch {
        thread,
        epoch: thread_row(thread, "default", "t").epoch,
        expected_last,
        frames: Vec::new(),
        changes: Vec::new(),
        blobs: Vec::new(),
        vital: false,
    }
}

async fn create(store: &PostgresStore, id: &str) -> ThreadKey {
    let thread = store.next_thread_key();
    let changes = vec![Change::Thread(thread_row(thread, "default", id))];
    store.append(Batch { changes, ..batch(thread, 0) }).await.unwrap();
    thread
}

/// Appends events up to this number, one after the other.
async fn say(store: &PostgresStore, thread: ThreadKey, after: u64, last: u64) {
    for number in after + 1..=last {
        let mut draft = Draft::default();
        let body = Body::Message(MessageEvent::Thought { message: None, text: Arc::from("said") });
        draft.push(START, &body, None).unwrap();
        let reader = Arc::new(NoOriginals) as _;
        let frames = draft.seal(thread, None, number, 0, &reader);
        store.append(Batch { frames, ..batch(thread, number - 1) }).await.unwrap();
    }
}

async fn last_read(store: &PostgresStore, thread: ThreadKey) -> u64 {
    let range = Range { run: None, after: 0, max_bytes: usize::MAX };
    let frames = store.frames(thread, range).await.unwrap();
    frames.last().map_or(0, |frame| frame.last())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_server_goes_on_while_a_newer_one_changes_the_tables() {
    let url = postgres_url().await;
    let old = older(&url).await;
    assert_eq!(version(&url).await, OLDER as i64);
    let first = create(&old, "first").await;
    say(&old, first, 0, 1).await;
    let ((), new) = join(say(&old, first, 1, EVENTS), newer(&url)).await;
    assert_eq!(version(&url).await, i64::from(SCHEMA_VERSION));

    let second = create(&new, "second").await;
    join(say(&old, first, EVENTS, 2 * EVENTS), say(&new, second, 0, EVENTS)).await;
    for store in [&old, &new] {
        assert_eq!(last_read(store, first).await, 2 * EVENTS);
        assert_eq!(last_read(store, second).await, EVENTS);
    }
    // Each node owns a thread that the other one created.
    let taken = new.acquire(first, "new").await.unwrap();
    assert_eq!((taken.last, taken.is_taken_over), (2 * EVENTS, true));
    let taken = old.acquire(second, "old").await.unwrap();
    assert_eq!((taken.last, taken.is_taken_over), (EVENTS, true));
    let stale = Batch { changes: Vec::new(), ..batch(second, EVENTS) };
    assert_eq!(new.append(stale).await.unwrap_err().code(), Code::OwnershipLost);

    // The old program is restarted in the middle of the upgrade.
    old.close().await.unwrap();
    let old = older(&url).await;
    assert_eq!(last_read(&old, first).await, 2 * EVENTS);
    assert_eq!(version(&url).await, i64::from(SCHEMA_VERSION));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_change_the_tables_at_once_change_them_once() {
    let url = postgres_url().await;
    let old = older(&url).await;
    let thread = create(&old, "t").await;
    let opening = futures_util::future::join_all((0..4).map(|_| newer(&url)));
    let (new, ()) = join(opening, say(&old, thread, 0, EVENTS)).await;
    assert_eq!(version(&url).await, i64::from(SCHEMA_VERSION));
    for store in new {
        assert_eq!(last_read(&store, thread).await, EVENTS);
    }
}

#[tokio::test]
async fn a_server_that_the_tables_are_too_new_for_does_not_start() {
    let url = postgres_url().await;
    newer(&url).await.close().await.unwrap();
    let sql = "UPDATE schema_version SET min_version = version";
    client(&url).await.execute(sql, &[]).await.unwrap();
    let refused = PostgresStore::open_with(&url, options(), &MIGRATIONS[..OLDER]).await;
    let error = refused.unwrap_err();
    assert_eq!(error.code(), Code::StoreTooNew, "{error}");
    assert_eq!(version(&url).await, i64::from(SCHEMA_VERSION));
}

/// How the first version stores content, on the tables of the second.
#[tokio::test]
async fn content_of_a_server_without_buckets_is_read_and_what_it_removes_goes() {
    let url = postgres_url().await;
    let new = newer(&url).await;
    let thread = create(&new, "t").await;
    let bytes = Bytes::from_static(b"content");
    let blob = crate::core::batch::blob_ref(&bytes, true).unwrap();
    let insert = concat!(
        "INSERT INTO blobs (tenant, hash, length, crc, data) VALUES ($1, $2, $3, $4, $5)",
        " ON CONFLICT (tenant, hash, length) DO UPDATE SET crc = blobs.crc RETURNING key"
    );
    let client = client(&url).await;
    let crc = i64::from(crc32c::crc32c(&bytes));
    let (tenant, hash, data) = (tenant("default"), blob.hash.as_slice(), bytes.as_ref());
    let params: &[&(dyn tokio_postgres::types::ToSql + Sync)] =
        &[&tenant.as_str(), &hash, &7_i64, &crc, &data];
    let key: i64 = client.query_one(insert, params).await.unwrap().get(0);
    let refer = "INSERT INTO blob_refs (thread, run, blob, is_text) VALUES ($1, 0, $2, TRUE)";
    client.execute(refer, &[&thread.0, &key]).await.unwrap();
    assert_eq!(new.blob(thread, &blob).await.unwrap(), Some(bytes));

    client.execute("UPDATE blobs SET object = 'an object', data = ''", &[]).await.unwrap();
    client.execute("DELETE FROM blobs WHERE key = ANY($1)", &[&vec![key]]).await.unwrap();
    let due = "SELECT object FROM blob_objects WHERE due <= now()";
    let object: String = client.query_one(due, &[]).await.unwrap().get(0);
    assert_eq!(object, "an object");
}
