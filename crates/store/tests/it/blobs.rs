//! Large content: stored once per tenant, visible through the thread that names it, removed with its last name.

use bytes::Bytes;
use trilogue_domain::content::BlobRef;
use trilogue_domain::{Code, RunKey, limits};
use trilogue_store::Change;

use crate::bucket::objects;
use crate::harness::{Log, World, code, contract, tenant_scope};
use crate::postgres::client;

contract!(
    with bucket: a_blob_is_seen_through_the_thread_that_names_it,
    storing_the_same_bytes_again_is_free,
    tenants_do_not_share_blobs,
    a_blob_goes_with_the_last_run_that_names_it,
    a_blob_that_waits_for_its_frame_survives_a_removal,
    a_blob_of_no_run_goes_with_its_thread,
    a_blob_above_the_limit_is_refused,
    a_batch_that_names_a_blob_that_is_not_there_is_refused,
);

pub(crate) async fn put(world: &World, tenant: &str, text: &'static str) -> BlobRef {
    let tenant = tenant_scope(tenant).tenant;
    world.store.put_blob(&tenant, Bytes::from_static(text.as_bytes()), true).await.unwrap()
}

pub(crate) async fn name(log: &mut Log, run: Option<RunKey>, blob: &BlobRef) {
    log.step().say(run, &["named"]).blob(blob).commit().await.unwrap();
}

pub(crate) async fn get(log: &Log, blob: &BlobRef) -> Option<Bytes> {
    let found = log.store.blob(log.row.key, blob).await.unwrap();
    let by_hash = log.store.blob_by_hash(log.row.key, &blob.hash).await.unwrap();
    assert_eq!(by_hash, found.clone().map(|bytes| (blob.clone(), bytes)));
    found
}

async fn a_blob_is_seen_through_the_thread_that_names_it(world: World) {
    let mut log = world.thread("t").await;
    let other = world.thread("u").await;
    let run = log.start("r").await;
    let blob = put(&world, "default", "content").await;
    assert_eq!((blob.length, blob.is_text), (7, true));
    assert_eq!(get(&log, &blob).await, None, "nothing names it yet");
    name(&mut log, Some(run.key), &blob).await;
    assert_eq!(get(&log, &blob).await, Some(Bytes::from_static(b"content")));
    assert_eq!(get(&other, &blob).await, None);
    let unknown = BlobRef { hash: [0; 32], ..blob };
    assert_eq!(get(&log, &unknown).await, None);
}

async fn storing_the_same_bytes_again_is_free(world: World) {
    // Far more than the preallocated part of the log's file, which is counted too and may grow at any time.
    let content = Bytes::from(vec![b'x'; 4 * 1024 * 1024]);
    let tenant = tenant_scope("default").tenant;
    let blob = world.store.put_blob(&tenant, content.clone(), true).await.unwrap();
    let before = bytes_of(&world).await;
    assert!(world.bucket.is_some() || before >= blob.length);
    for _ in 0..10 {
        let again = world.store.put_blob(&tenant, content.clone(), true).await.unwrap();
        assert_eq!(again, blob);
    }
    let after = bytes_of(&world).await;
    assert!(after < before + blob.length, "{before} {after}");
    if let Some(bucket) = &world.bucket {
        assert_eq!(objects(bucket).await.len(), 1);
    }
}

/// The size of a store. Its statistics in PostgreSQL contain the schemas of other tests.
async fn bytes_of(world: &World) -> u64 {
    if world.is_in_database() {
        let own = "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c \
            WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace";
        let row = client(&world.url()).await.query_one(own, &[]).await.unwrap();
        return row.get::<_, i64>(0).cast_unsigned();
    }
    world.store.stats().await.unwrap().bytes
}

async fn tenants_do_not_share_blobs(world: World) {
    let mut log = world.thread("t").await;
    let mut foreign = world.thread_of(&tenant_scope("other"), "t").await;
    let blob = put(&world, "default", "content").await;
    name(&mut log, None, &blob).await;
    assert_eq!(get(&foreign, &blob).await, None);
    let step = foreign.step().say(None, &["x"]).blob(&blob);
    assert_eq!(code(step.commit().await), Code::Internal, "the tenant has no such blob");
    let theirs = put(&world, "other", "content").await;
    name(&mut foreign, None, &theirs).await;
    log.write([Change::RemoveThread]).await;
    assert_eq!(get(&foreign, &theirs).await, Some(Bytes::from_static(b"content")));
}

async fn a_blob_goes_with_the_last_run_that_names_it(world: World) {
    let mut log = world.thread("t").await;
    let (one, two) = (log.start("one").await, log.start("two").await);
    let blob = put(&world, "default", "content").await;
    name(&mut log, Some(one.key), &blob).await;
    name(&mut log, Some(one.key), &blob).await;
    name(&mut log, Some(two.key), &blob).await;
    log.write([Change::RemoveRun(one.key)]).await;
    assert!(get(&log, &blob).await.is_some());
    log.write([Change::RemoveRun(two.key)]).await;
    assert_eq!(get(&log, &blob).await, None);
    let step = log.step().say(None, &["x"]).blob(&blob);
    assert_eq!(code(step.commit().await), Code::Internal, "it is gone");
}

async fn a_blob_that_waits_for_its_frame_survives_a_removal(world: World) {
    let mut log = world.thread("t").await;
    let (one, two) = (log.start("one").await, log.start("two").await);
    let blob = put(&world, "default", "content").await;
    name(&mut log, Some(one.key), &blob).await;
    let again = put(&world, "default", "content").await;
    log.write([Change::RemoveRun(one.key)]).await;
    name(&mut log, Some(two.key), &again).await;
    assert!(get(&log, &again).await.is_some());
}

async fn a_blob_of_no_run_goes_with_its_thread(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await;
    let blob = put(&world, "default", "content").await;
    name(&mut log, None, &blob).await;
    log.write([Change::RemoveRun(run.key)]).await;
    assert!(get(&log, &blob).await.is_some());
    log.write([Change::RemoveThread]).await;
    assert_eq!(get(&log, &blob).await, None);
}

async fn a_blob_above_the_limit_is_refused(world: World) {
    let tenant = tenant_scope("default").tenant;
    let large = Bytes::from(vec![0; limits::MAX_BLOB_BYTES + 1]);
    let result = world.store.put_blob(&tenant, large, false).await;
    assert_eq!(code(result), Code::BlobTooLarge);
}

async fn a_batch_that_names_a_blob_that_is_not_there_is_refused(world: World) {
    let mut log = world.thread("t").await;
    let blob = BlobRef { hash: [3; 32], length: 9, is_text: false };
    let step = log.step().say(None, &["x"]).blob(&blob);
    assert_eq!(code(step.commit().await), Code::Internal);
    assert_eq!(log.read().await, []);
}
