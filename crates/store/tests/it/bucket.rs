//! Large content in a bucket: where it is stored, when it is removed, and what happens if the bucket fails.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use trilogue_domain::Code;
use trilogue_domain::content::BlobRef;
use trilogue_store::{BucketOptions, Change, Options, check_bucket, open};

use crate::blobs::{get, name, put};
use crate::harness::{
    Log, World, alice, bucket_options, code, http, options, postgres_url, tenant_scope,
};
use crate::postgres::client;

/// The longest wait for the removal of an object.
const PATIENCE: Duration = Duration::from_secs(30);

/// The names of the objects in a bucket.
pub(crate) async fn objects(bucket: &BucketOptions) -> Vec<String> {
    let listing = http().get(format!("{}?list-type=2", bucket.url)).send().await.unwrap();
    let text = listing.error_for_status().unwrap().text().await.unwrap();
    let keys = text.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap());
    keys.map(str::to_owned).collect()
}

/// Waits until a bucket has this many objects.
async fn objects_become(bucket: &BucketOptions, count: usize) -> Vec<String> {
    let wait = async {
        loop {
            let found = objects(bucket).await;
            if found.len() == count {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    waited.unwrap_or_else(|_| panic!("the bucket never has {count} objects"))
}

fn bucket_of(world: &World) -> &BucketOptions {
    world.bucket.as_ref().unwrap()
}

async fn execute(world: &World, sql: &str) -> u64 {
    client(&world.url()).await.execute(sql, &[]).await.unwrap()
}

fn quick(bucket: BucketOptions) -> Options {
    let connect_wait = Duration::from_millis(200);
    Options { bucket: Some(bucket), connect_wait, ..options() }
}

/// A world with a thread that names content in the bucket.
async fn with_content(world: &World) -> (Log, BlobRef) {
    let mut log = world.thread("t").await;
    let blob = put(world, "default", "content").await;
    name(&mut log, None, &blob).await;
    (log, blob)
}

#[tokio::test]
async fn content_from_a_size_on_is_in_the_bucket_and_goes_with_its_thread() {
    let bucket = BucketOptions { min_bytes: 8, ..bucket_options().await };
    let world = World::in_bucket(postgres_url().await, bucket.clone()).await;
    let mut log = world.thread("t").await;
    let small = put(&world, "default", "7 bytes").await;
    let large = put(&world, "default", "8 bytes.").await;
    name(&mut log, None, &small).await;
    name(&mut log, None, &large).await;
    assert!(objects(&bucket).await[0].contains("/default/"), "one for each tenant");
    assert_eq!(objects(&bucket).await.len(), 1);
    assert_eq!(execute(&world, "DELETE FROM blob_objects").await, 0, "the upload has ended");

    // Another node, with another size limit.
    let other = BucketOptions { min_bytes: 1 << 30, ..bucket.clone() };
    let other = World::in_bucket(world.url(), other).await;
    let seen = Log::of(other.store.clone(), log.row.clone());
    assert_eq!(get(&seen, &small).await, Some(Bytes::from_static(b"7 bytes")));
    assert_eq!(get(&seen, &large).await, Some(Bytes::from_static(b"8 bytes.")));

    log.write([Change::RemoveThread]).await;
    objects_become(&bucket, 0).await;
    assert_eq!(get(&seen, &large).await, None);
}

#[tokio::test]
async fn content_goes_with_its_run_and_with_an_ephemeral_thread() {
    let world = World::bucket().await;
    let mut log = world.thread("t").await;
    let run = log.start("r").await;
    let blob = put(&world, "default", "of a run").await;
    name(&mut log, Some(run.key), &blob).await;
    log.write([Change::RemoveRun(run.key)]).await;
    objects_become(bucket_of(&world), 0).await;

    log.row.ephemeral = true;
    let row = log.row.clone();
    log.write([Change::Thread(row)]).await;
    let blob = put(&world, "default", "of a thread").await;
    name(&mut log, None, &blob).await;
    let removed = world.store.remove_ephemeral(&[log.row.key]).await.unwrap();
    assert_eq!(removed, [log.row.key]);
    objects_become(bucket_of(&world), 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_nodes_that_store_the_same_content_keep_one_object() {
    let world = World::bucket().await;
    let (url, bucket) = (world.url(), bucket_of(&world).clone());
    let second = World::in_bucket(url, bucket.clone()).await;
    let putting = (0..8).map(|number| {
        let world = if number % 2 == 0 { &world } else { &second };
        put(world, "default", "the same")
    });
    let blobs = join_all(putting).await;
    let mut log = world.thread("t").await;
    name(&mut log, None, &blobs[0]).await;
    objects_become(&bucket, 1).await;
    assert_eq!(get(&log, &blobs[0]).await, Some(Bytes::from_static(b"the same")));
}

#[tokio::test]
async fn a_sweep_takes_what_was_given_up_and_nothing_younger() {
    let world = World::bucket().await;
    let (url, bucket) = (world.url(), bucket_of(&world).clone());
    let mut log = world.thread("t").await;
    // Content whose frame is not stored yet, and an unfinished upload.
    let fresh = put(&world, "default", "fresh").await;
    let upload = format!("{}/upload", bucket.url);
    http().put(&upload).body("half").send().await.unwrap().error_for_status().unwrap();
    let begin =
        "INSERT INTO blob_objects VALUES ('upload', now() + interval '1 hour'), ('due', now())";
    execute(&world, begin).await;
    let due = format!("{}/due", bucket.url);
    http().put(&due).body("old").send().await.unwrap().error_for_status().unwrap();
    // Opening a store sweeps the bucket.
    let other = World::in_bucket(url.clone(), bucket.clone()).await;
    let left = objects_become(&bucket, 2).await;
    assert!(left.contains(&"upload".to_owned()), "{left:?}");
    name(&mut log, None, &fresh).await;
    assert!(get(&log, &fresh).await.is_some());

    put(&world, "default", "given up").await;
    execute(&world, "UPDATE blob_waits SET since = now() - interval '2 hours'").await;
    execute(&world, "UPDATE blob_objects SET due = now()").await;
    other.store.close().await.unwrap();
    let _sweeper = World::in_bucket(url, bucket.clone()).await;
    objects_become(&bucket, 1).await;
    assert!(get(&log, &fresh).await.is_some(), "a frame names it");
}

#[tokio::test]
async fn an_upload_that_was_swept_meanwhile_stores_nothing() {
    let world = World::bucket().await;
    // Does what a sweep would do, between the upload and its end.
    let client = client(&world.url()).await;
    let doom = "CREATE FUNCTION doom() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN NEW.doomed = TRUE; RETURN NEW; END';
        CREATE TRIGGER doom BEFORE INSERT ON blob_objects FOR EACH ROW EXECUTE FUNCTION doom()";
    client.batch_execute(doom).await.unwrap();
    let tenant = tenant_scope("default").tenant;
    let late = world.store.put_blob(&tenant, Bytes::from_static(b"late"), true).await;
    assert_eq!(code(late), Code::StoreUnavailable);
    let count: i64 = client.query_one("SELECT count(*) FROM blobs", &[]).await.unwrap().get(0);
    assert_eq!(count, 0);
}

#[tokio::test]
async fn a_bucket_that_cannot_be_reached_fails_only_what_needs_it() {
    let world = World::bucket().await;
    let (mut log, blob) = with_content(&world).await;
    let away = BucketOptions {
        url: "http://127.0.0.1:1/away".to_owned(),
        min_bytes: 8,
        ..bucket_of(&world).clone()
    };
    assert_eq!(code(check_bucket(&quick(away.clone())).await), Code::StoreUnavailable);
    let store = open(&world.url(), quick(away)).await.unwrap();
    let error = store.blob(log.row.key, &blob).await.unwrap_err();
    assert_eq!(error.code(), Code::StoreUnavailable, "{error}");
    assert!(error.message().contains("http://127.0.0.1:1/away"), "{error}");
    let tenant = &tenant_scope("default").tenant;
    let large = store.put_blob(tenant, Bytes::from_static(b"8 bytes."), true).await;
    assert_eq!(code(large), Code::StoreUnavailable);
    log.store = store.clone();
    let small = store.put_blob(tenant, Bytes::from_static(b"7 bytes"), true).await.unwrap();
    name(&mut log, None, &small).await;
    assert!(get(&log, &small).await.is_some(), "the thread is as it was");
}

#[tokio::test]
async fn a_node_without_the_bucket_says_what_is_missing() {
    let world = World::bucket().await;
    let (mut log, blob) = with_content(&world).await;
    let store = open(&world.url(), options()).await.unwrap();
    let error = store.blob(log.row.key, &blob).await.unwrap_err();
    assert_eq!(error.code(), Code::StoreUnavailable, "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("[store.blobs]")), "{error}");
    // Content that one node removes is taken out of the bucket by another.
    let bucket = bucket_of(&world).clone();
    world.store.close().await.unwrap();
    log.store = store;
    log.write([Change::RemoveThread]).await;
    assert_eq!(objects(&bucket).await.len(), 1);
    let _sweeper = World::in_bucket(world.url(), bucket.clone()).await;
    objects_become(&bucket, 0).await;
}

#[tokio::test]
async fn an_object_that_changed_closes_its_thread_and_a_missing_one_does_not() {
    let world = World::bucket().await;
    let (log, blob) = with_content(&world).await;
    execute(&world, "UPDATE blobs SET object = object || 'x'").await;
    let error = world.store.blob(log.row.key, &blob).await.unwrap_err();
    assert_eq!(error.code(), Code::StoreUnavailable, "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("bucket")), "{error}");
    assert!(world.store.thread(&alice(), &log.row.id).await.unwrap().is_some());
    let another = format!("{}/another", bucket_of(&world).url);
    http().put(&another).body("another").send().await.unwrap().error_for_status().unwrap();
    execute(&world, "UPDATE blobs SET object = 'another'").await;
    assert_eq!(code(world.store.blob(log.row.key, &blob).await), Code::ThreadQuarantined);
    assert_eq!(code(world.store.blob(log.row.key, &blob).await), Code::ThreadQuarantined);
}

#[tokio::test]
async fn a_bucket_that_refuses_stops_the_start() {
    let url = postgres_url().await;
    let bucket = bucket_options().await;
    let missing = BucketOptions { url: format!("{}-missing", bucket.url), ..bucket.clone() };
    let error = open(&url, quick(missing)).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest, "{error}");
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");
    let half = BucketOptions { secret: None, ..bucket.clone() };
    assert_eq!(code(open(&url, quick(half)).await), Code::InvalidRequest);
    let wrong = BucketOptions { url: "bucket".to_owned(), ..bucket.clone() };
    assert_eq!(code(open(&url, quick(wrong)).await), Code::InvalidRequest);
    check_bucket(&quick(bucket)).await.unwrap();
}
