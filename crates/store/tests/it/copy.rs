//! Copies of a store: from a file to a database, back, and between databases.

use bytes::Bytes;
use serde_json::json;
use trilogue_domain::{CheckpointKey, Code, Right, Rights, RunKey};
use trilogue_store::rows::{ConfigurationRow, QueueItem, QueueKind, RetryDecision, TokenRow};
use trilogue_store::{Change, CopyOptions, CopyProgress, CopyReport, CopyStep, Options, open};

use crate::harness::{
    Log, World, agent, alice, at, bucket_options, code, now, options, own_scope, page,
    postgres_url, read, run_id, tenant_scope, thread_id,
};
use crate::model::answers;
use crate::postgres::{KILL, client};
use crate::rows;

/// Copies everything, including the tokens.
async fn copy(
    from: &str,
    to: &str,
    store: Options,
    progress: impl FnMut(CopyProgress) + Send,
) -> trilogue_domain::error::Result<CopyReport> {
    trilogue_store::copy(from, to, CopyOptions { store, with_tokens: true }, progress).await
}

/// A copy of a world from a file into a new database.
pub(crate) async fn copied(source: &World) -> World {
    let url = postgres_url().await;
    copy(&source.url(), &url, options(), |_| {}).await.unwrap();
    World::in_database(url).await
}

async fn copy_to(source: &World, url: &str) -> trilogue_domain::error::Result<CopyReport> {
    copy(&source.url(), url, options(), |_| {}).await
}

fn token(id: &str, hash: u8) -> TokenRow {
    let rights = Rights::from_iter([Right::Read]);
    TokenRow { hash: [hash; 32], ..rows::token_row("default", id, rights) }
}

/// All kinds of content: runs that ended, wait and were removed, interrupts, blobs, queue items in every state, tokens and configured instances.
async fn furnish(world: &World) -> [Log; 2] {
    let store = &world.store;
    let mut log = world.thread("t0").await;
    let ended = log.start("r0").await;
    let gone = log.start("r1").await;
    let ended = log.end(ended).await;
    let open = log.start("r2").await;
    let blob = store.put_blob(&log.row.tenant, Bytes::from("blob 1"), true).await.unwrap();
    let lost = store.put_blob(&log.row.tenant, Bytes::from("blob 2"), true).await.unwrap();
    let mut checkpoint = log.checkpoint("c0", None);
    (checkpoint.run, checkpoint.value) = (Some(ended.key), Some(rows_json(1)));
    log.row.head = Some(checkpoint.key);
    log.row.metadata = crate::harness::json(&json!({"v": 1, "text": "a \u{0} b"}));
    let [row, message, question, used] = [
        Change::Thread(log.row.clone()),
        Change::Message(log.message("m0", ended.key)),
        Change::Interrupt(Box::new(log.interrupt("i0", &open))),
        Change::Idempotency(log.idempotency("k \u{0}", &open)),
    ];
    let alias = Change::Alias(rows::message_id("m0"), rows::message_id("m5"));
    let binding = Change::Binding(rows::binding_row(log.row.key, "remote"));
    let step = log.step().say(Some(open.key), &["asked"]).change(row).change(message);
    let step = step.change(question).change(used).change(alias).change(binding);
    step.change(Change::Checkpoint(checkpoint)).blob(&blob).commit().await.unwrap();
    log.step().say(Some(gone.key), &["gone"]).blob(&lost).commit().await.unwrap();
    log.write([Change::RemoveRun(gone.key)]).await;
    queue(world, &mut log, open.key).await;

    let mut other = world.thread_of(&own_scope("other", "bob"), "t1").await;
    other.start("r3").await;
    for (id, hash) in [("k-1", 1), ("k-2", 2)] {
        store.put_token(token(id, hash)).await.unwrap();
    }
    let configuration = rows::configuration_row("default", "k1");
    let configuration = ConfigurationRow { expires_at: Some(at(30)), ..configuration };
    store.create_configuration(configuration).await.unwrap();
    [log, other]
}

/// Items that are due, dead, held, and in line. The first of the line by number is neither the first nor the last offer.
async fn queue(world: &World, log: &mut Log, run: RunKey) {
    let store = &world.store;
    let kind = QueueKind::ScheduledRun;
    let item = log.item(kind, "dead", 1);
    log.write([Change::Offer(item)]).await;
    let dead = store.claim(kind, at(1), at(2), 9).await.unwrap().remove(0);
    assert!(store.abandon(&dead, RetryDecision::Dead, "it \u{0} failed").await.unwrap());
    let item = log.item(kind, "held", 1);
    log.write([Change::Offer(item)]).await;
    assert_eq!(store.claim(kind, at(1), at(40), 9).await.unwrap().len(), 1);
    let item = log.item(kind, "due", 5);
    log.write([Change::Offer(item)]).await;
    for (key, number) in [("a", 5), ("b", 3), ("c", 9)] {
        let reference = crate::harness::json(&json!({"run": run.0, "number": number}));
        let item = QueueItem { reference, ..log.item(QueueKind::Callback, key, 1) };
        log.write([Change::Offer(item)]).await;
    }
    // A held item is not replaced: an offer under its key waits.
    let held = store.claim(QueueKind::Callback, at(1), at(40), 9).await.unwrap();
    assert_eq!(held[0].item.key, "b");
    let reference = crate::harness::json(&json!({"run": run.0, "number": 4}));
    let next = QueueItem { reference, ..log.item(QueueKind::Callback, "b", 1) };
    log.write([Change::Offer(next)]).await;
}

fn rows_json(number: i64) -> trilogue_domain::Json {
    crate::harness::json(&json!({"n": number}))
}

async fn everything(world: &World, logs: &[Log]) -> Vec<String> {
    let store = &*world.store;
    let rows: Vec<_> = logs.iter().map(|log| log.row.clone()).collect();
    let runs = store.runs(&alice(), &Default::default(), &page(9, None)).await.unwrap().rows;
    let mut found = answers(store, &rows, &runs).await;
    let binding = store.binding(&alice(), &thread_id("t0"), &agent("echo")).await.unwrap();
    let run = store.run(&alice(), &run_id("r2")).await.unwrap().unwrap();
    let used = logs[0].idempotency("k \u{0}", &run).key;
    found.extend([
        format!("{binding:?}"),
        format!("{:?}", store.idempotency(&used, now()).await.unwrap().map(|row| row.run)),
        format!("{:?}", store.tokens(&tenant_scope("default").tenant).await.unwrap()),
        format!("{:?}", store.token(&[2; 32]).await.unwrap()),
    ]);
    found
}

#[tokio::test]
async fn a_copy_answers_as_its_source_and_goes_on() {
    let world = World::sqlite().await;
    let logs = furnish(&world).await;
    let url = postgres_url().await;
    let mut steps = (0, 0);
    let progress = |progress: CopyProgress| {
        let (write, verify) = steps;
        assert!(progress.rows <= progress.total, "{progress:?}");
        steps = match progress.step {
            CopyStep::Write => (progress.rows, verify),
            CopyStep::Verify => (write, progress.rows),
        };
    };
    let report = copy(&world.url(), &url, options(), progress).await.unwrap();
    assert_eq!((report.threads, report.runs, report.blobs), (2, 3, 1), "{report:?}");
    assert!(report.frames >= 5 && report.events >= 5 && report.rows >= 10, "{report:?}");
    assert!(steps.0 > report.rows, "{steps:?}");
    assert_eq!(steps.0, steps.1, "everything was read again");
    let source = everything(&world, &logs).await;
    let copy = World::in_database(url).await;
    assert_eq!(everything(&copy, &logs).await, source);

    // New keys are not keys of the source, and held items stay held until their leases end.
    assert!(copy.store.next_run_key() > world.store.next_run_key());
    assert!(copy.store.next_checkpoint_key() > CheckpointKey(1 << 40));
    for kind in [QueueKind::ScheduledRun, QueueKind::Callback] {
        let mut claimed = Vec::new();
        for world in [&world, &copy] {
            let mut of_world = Vec::new();
            for time in [4, 39, 40, 80] {
                let claims = world.store.claim(kind, at(time), at(time + 10), 9).await.unwrap();
                let shown = claims.iter().map(|claim| (claim.attempts, claim.item.clone()));
                of_world.push(shown.collect::<Vec<_>>());
            }
            claimed.push(of_world);
        }
        assert_eq!(claimed[0], claimed[1]);
        assert!(claimed[0].iter().any(|claims| !claims.is_empty()));
    }
    // The log continues after the last number, although its run was removed.
    let taken = copy.store.acquire(logs[0].row.key, "another").await.unwrap();
    assert_eq!((taken.last, taken.pending.len(), taken.open_runs.len()), (logs[0].last, 1, 1));
    let mut log = Log::of(copy.store.clone(), taken.thread);
    log.last = taken.last;
    log.step().say(None, &["more"]).commit().await.unwrap();
    let texts = read(&*copy.store, &log.row, None).await;
    assert_eq!(texts.last(), Some(&(taken.last + 1, "more".to_owned())));
}

#[tokio::test]
async fn tokens_are_copied_only_on_demand() {
    let world = World::sqlite().await;
    furnish(&world).await;
    let tenant = rows::tenant("default");
    assert!(!world.store.tokens(&tenant).await.unwrap().is_empty());
    for with_tokens in [false, true] {
        let url = postgres_url().await;
        let store = options();
        let wanted = CopyOptions { store, with_tokens };
        trilogue_store::copy(&world.url(), &url, wanted, |_| {}).await.unwrap();
        let copied = World::in_database(url).await;
        assert_eq!(copied.store.tokens(&tenant).await.unwrap().is_empty(), !with_tokens);
        // A copy from a database works too.
        let folder = tempfile::tempdir().unwrap();
        let file = format!("sqlite:{}", folder.path().join("copy.db").display());
        let wanted = CopyOptions { store: options(), with_tokens: false };
        trilogue_store::copy(&copied.url(), &file, wanted, |_| {}).await.unwrap();
        let back = open(&file, options()).await.unwrap();
        assert!(back.tokens(&tenant).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_backup_is_copied_as_the_store_that_it_was() {
    let world = World::sqlite().await;
    let logs = furnish(&world).await;
    let backup = world.file().with_file_name("backup.db");
    world.store.backup(&backup).await.unwrap();
    let source = everything(&world, &logs).await;
    world.thread("later").await;
    let url = postgres_url().await;
    let from = format!("sqlite:{}", backup.display());
    copy(&from, &url, options(), |_| {}).await.unwrap();
    assert_eq!(everything(&World::in_database(url).await, &logs).await, source);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stored_after_the_beginning_stays_behind() {
    let world = World::sqlite().await;
    let logs = furnish(&world).await;
    let source = everything(&world, &logs).await;
    let url = postgres_url().await;
    let mut later = 0;
    let progress = |_| {
        later += 1;
        let create = async { drop(world.thread(&format!("later-{later}")).await) };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(create));
    };
    copy(&world.url(), &url, options(), progress).await.unwrap();
    assert!(later > 0);
    assert_eq!(everything(&World::in_database(url).await, &logs).await, source);
}

#[tokio::test]
async fn threads_that_are_being_removed_stay_behind() {
    let world = World::sqlite().await;
    let logs = furnish(&world).await;
    world.store.close().await.unwrap();
    // The state in which a removal leaves a thread with many rows, before they are deleted.
    let raw = rusqlite::Connection::open(world.file()).unwrap();
    let key = logs[1].row.key.0;
    raw.execute("INSERT INTO removals (thread, run) VALUES (?1, 0)", [key]).unwrap();
    raw.execute("DELETE FROM threads WHERE key = ?1", [key]).unwrap();
    drop(raw);
    let copy = copied(&world).await;
    let stats = copy.store.stats().await.unwrap();
    assert_eq!((stats.threads, stats.runs), (1, 2));
    let client = client(&copy.url()).await;
    for table in ["frames", "runs", "heads"] {
        let sql = format!("SELECT count(*) FROM {table} WHERE {} = $1", "thread");
        let count: i64 = client.query_one(&sql, &[&key]).await.unwrap().get(0);
        assert_eq!(count, 0, "{table}");
    }
}

#[tokio::test]
async fn damage_names_its_thread_and_nothing_is_copied() {
    for (damage, id) in [
        ("UPDATE runs SET status = 'failed' WHERE id = 'r3'", Some("'t1'")),
        ("UPDATE frames SET body = zeroblob(30) WHERE first = 1 AND thread = 1", Some("'t0'")),
        ("DELETE FROM frames WHERE first = 1 AND thread = 1", Some("'t0'")),
        ("UPDATE blobs SET data = zeroblob(length)", Some("'t0'")),
        ("DELETE FROM blobs", Some("'t0'")),
        ("UPDATE tokens SET principal = 'mallory'", None),
    ] {
        let world = World::sqlite().await;
        furnish(&world).await;
        world.store.close().await.unwrap();
        let raw = rusqlite::Connection::open(world.file()).unwrap();
        assert!(raw.execute(damage, []).unwrap() > 0, "{damage}");
        drop(raw);
        let url = postgres_url().await;
        let error = copy_to(&world, &url).await.unwrap_err();
        assert_eq!(error.code(), Code::ThreadQuarantined, "{damage}: {error}");
        assert!(error.message().contains(id.unwrap_or("the store")), "{damage}: {error}");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("backup")), "{error}");
        assert_empty(&url).await;
    }
}

async fn assert_empty(url: &str) {
    let client = client(url).await;
    for table in ["threads", "runs", "frames", "heads", "tokens", "queue", "blobs", "search"] {
        let sql = format!("SELECT count(*) FROM {table}");
        let count: i64 = client.query_one(&sql, &[]).await.unwrap().get(0);
        assert_eq!(count, 0, "{table}");
    }
}

#[tokio::test]
async fn a_target_that_holds_anything_is_refused() {
    let world = World::sqlite().await;
    furnish(&world).await;
    let target = World::postgres().await;
    target.store.put_token(token("k-9", 9)).await.unwrap();
    let error = copy_to(&world, &target.url()).await.unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists, "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("empty")), "{error}");
    assert_eq!(target.store.stats().await.unwrap().threads, 0);
    let copy = copied(&world).await;
    assert_eq!(code(copy_to(&world, &copy.url()).await), Code::AlreadyExists);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_becomes_unreachable_holds_nothing() {
    let world = World::sqlite().await;
    let logs = furnish(&world).await;
    let url = postgres_url().await;
    let schema = url.rsplit("%3D").next().unwrap();
    // Only connections of this copy have this application name.
    let named = format!("{url}&application_name={schema}");
    let killer = client(&std::env::var("TRILOGUE_POSTGRES").unwrap()).await;
    for step in [CopyStep::Write, CopyStep::Verify] {
        let mut killed = 0;
        let progress = |progress: CopyProgress| {
            if progress.step == step && killed == 0 {
                let kill = async { killer.query_one(KILL, &[&schema]).await.unwrap().get(0) };
                killed = tokio::task::block_in_place(|| {
                    tokio::runtime::Handle::current().block_on(kill)
                });
            }
        };
        let error = copy(&world.url(), &named, options(), progress).await.unwrap_err();
        assert!(killed > 0_i64, "{step:?}");
        assert_eq!(error.code(), Code::StoreUnavailable, "{error}");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("copy again")), "{error}");
        assert_empty(&url).await;
    }
    copy_to(&world, &url).await.unwrap();
    let copy = World::in_database(url).await;
    assert_eq!(everything(&copy, &logs).await, everything(&world, &logs).await);
}

#[tokio::test]
async fn rows_that_the_database_drops_or_changes_are_noticed() {
    let world = World::sqlite().await;
    furnish(&world).await;
    for (table, body, says) in [
        ("messages", "RETURN NULL;", "the table 'messages' has 0 of 1 rows"),
        ("gaps", "NEW.last = NEW.last + 1; RETURN NEW;", "rows of the table 'gaps'"),
        ("queue", "NEW.fence = 0; RETURN NEW;", "rows of the table 'queue'"),
    ] {
        let url = postgres_url().await;
        open(&url, options()).await.unwrap().close().await.unwrap();
        let client = client(&url).await;
        let trigger = format!(
            "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {body} END';
             CREATE TRIGGER spoil BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION spoil()"
        );
        client.batch_execute(&trigger).await.unwrap();
        let error = copy_to(&world, &url).await.unwrap_err();
        assert!(error.message().contains(says), "{error}");
        assert_empty(&url).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_is_copied_to_a_file_and_to_another_database() {
    let world = World::bucket().await;
    let logs = furnish(&world).await;
    let source = everything(&world, &logs).await;
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("copy.db").display());
    // The content is stored in the same bucket, under new names.
    let options = Options { bucket: world.bucket.clone(), ..options() };
    for to in [file, postgres_url().await] {
        let mut verified = 0;
        let progress = |progress: CopyProgress| {
            if progress.step == CopyStep::Verify {
                verified = progress.rows;
            }
        };
        let report = copy(&world.url(), &to, options.clone(), progress).await.unwrap();
        assert_eq!((report.threads, report.runs, report.blobs), (2, 3, 1), "{report:?}");
        assert!(verified > report.rows, "everything was read again");
        let copy = World::of(open(&to, options.clone()).await.unwrap());
        assert_eq!(everything(&copy, &logs).await, source, "{to}");
        // The copy can be written, with keys that the source has not given.
        let run = world.store.run(&alice(), &run_id("r2")).await.unwrap().unwrap();
        assert!(copy.store.next_run_key() > run.key);
        let taken = copy.store.acquire(logs[0].row.key, "another").await.unwrap();
        assert_eq!((taken.last, taken.pending.len(), taken.open_runs.len()), (logs[0].last, 1, 1));
        let mut log = Log::of(copy.store.clone(), taken.thread);
        log.last = taken.last;
        log.step().say(None, &["more"]).commit().await.unwrap();
        copy.thread("new").await.start("new").await;
        copy.store.close().await.unwrap();
        let wanted = CopyOptions { store: options.clone(), with_tokens: true };
        let again = trilogue_store::copy(&world.url(), &to, wanted, |_| {}).await;
        assert_eq!(code(again), Code::AlreadyExists);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_goes_from_a_file_to_a_database_and_back() {
    let world = World::sqlite().await;
    let logs = furnish(&world).await;
    let there = copied(&world).await;
    // The database's keys are larger than those of a file.
    there.thread("larger").await.start("larger").await;
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("back.db").display());
    copy(&there.url(), &file, options(), |_| {}).await.unwrap();
    let back = World::of(open(&file, options()).await.unwrap());
    let ids = |world: &World| {
        let store = world.store.clone();
        async move {
            let rows = store.threads(&alice(), &Default::default(), &page(9, None)).await.unwrap();
            rows.rows.into_iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
        }
    };
    assert_eq!(ids(&back).await, ids(&there).await);
    assert_eq!(ids(&back).await, ["larger", "t0"]);
    back.store.close().await.unwrap();
    let url = postgres_url().await;
    copy(&file, &url, options(), |_| {}).await.unwrap();
    let again = World::in_database(url).await;
    assert_eq!(ids(&again).await, ["larger", "t0"]);
    let run = again.store.run(&alice(), &run_id("larger")).await.unwrap().unwrap();
    assert!(again.store.next_run_key() > run.key);
    assert_eq!(everything(&again, &logs).await, everything(&there, &logs).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_database_names_its_thread_and_leaves_no_file() {
    let world = World::postgres().await;
    furnish(&world).await;
    let client = client(&world.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("copy.db");
    let to = format!("sqlite:{}", file.display());
    for (damage, repair, id) in [
        (
            "UPDATE runs SET status = 'failed' WHERE id = 'r3'",
            "UPDATE runs SET status = 'running' WHERE id = 'r3'",
            "'t1'",
        ),
        ("UPDATE blobs SET data = reverse(encode(data, 'escape'))::bytea", "SELECT 1", "'t0'"),
    ] {
        client.batch_execute(damage).await.unwrap();
        let error = copy(&world.url(), &to, options(), |_| {}).await.unwrap_err();
        assert_eq!(error.code(), Code::ThreadQuarantined, "{damage}: {error}");
        assert!(error.message().contains(id), "{error}");
        assert!(!file.exists());
        client.batch_execute(repair).await.unwrap();
    }
}

#[tokio::test]
async fn a_copy_into_a_bucket_that_fails_leaves_nothing_there() {
    let world = World::sqlite().await;
    furnish(&world).await;
    let bucket = bucket_options().await;
    let url = postgres_url().await;
    let with_bucket = || Options { bucket: Some(bucket.clone()), ..options() };
    open(&url, with_bucket()).await.unwrap().close().await.unwrap();
    let spoil =
        "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER spoil BEFORE INSERT ON blob_refs FOR EACH ROW EXECUTE FUNCTION spoil()";
    client(&url).await.batch_execute(spoil).await.unwrap();
    let error = copy(&world.url(), &url, with_bucket(), |_| {}).await.unwrap_err();
    assert!(error.message().contains("the table 'blob_refs'"), "{error}");
    assert_empty(&url).await;
    assert_eq!(crate::bucket::objects(&bucket).await, Vec::<String>::new());
}

#[tokio::test]
async fn other_pairs_of_stores_and_files_that_are_none_are_refused() {
    let world = World::sqlite().await;
    let (file, database) = (world.url(), postgres_url().await);
    for (from, to) in [
        (&*file, "memory:"),
        ("memory:", &*database),
        (&*database, &*database),
        (&*database, "memory:"),
        (&*file, "sqlite:other.db"),
    ] {
        let error = copy(from, to, options(), |_| {}).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.message().contains("from SQLite to PostgreSQL"), "{error}");
    }
    let restored = world.file().with_file_name("store.db.restored");
    std::fs::write(&restored, "").unwrap();
    let error = copy_to(&world, &database).await.unwrap_err();
    assert!(error.message().contains("was interrupted"), "{error}");
    let missing = world.file().with_file_name("missing.db");
    let from = format!("sqlite:{}", missing.display());
    assert_eq!(code(copy(&from, &database, options(), |_| {}).await), Code::InvalidRequest);
    assert!(!missing.exists());
}
