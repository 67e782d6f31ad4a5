//! Slow owners: an agent removes its data of an erased thread, and the thread's owner waits up to ten seconds for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tempfile::TempDir;
use trilogue_domain::port::Clock;
use trilogue_domain::{Code, Json};
use trilogue_runtime::{Backend, Options, Runtime, ThreadChoice};
use trilogue_store::record::NoOriginals;
use trilogue_store::rows::{QueueItem, QueueKind};
use trilogue_store::{Batch, Change, Store};

use crate::fixture::{HandClock, Scripted, TestServer, alice, new_run, on, scope, until};
use crate::keeper::{Keeper, with_keeper};

/// Shorter than an owner waits for its agents.
const SOON: Duration = Duration::from_secs(8);

#[tokio::test]
async fn a_slow_owner_does_not_delay_what_is_due_on_other_threads() {
    let options = Options { local_principal: Some(alice().id), ..Options::default() };
    let (server, keeper) = with_keeper(TestServer::with(options).await).await;
    let slow = server.thread().await;
    let slow_key = server.store.thread(&scope(), &slow).await.unwrap().unwrap().key;
    keeper.may_forget.forget_permits(tokio::sync::Semaphore::MAX_PERMITS);
    let runtime = server.runtime.clone();
    tokio::spawn(async move { runtime.erase_thread(&alice(), &slow).await });
    until("its owner waits", || async { keeper.told.load(Ordering::SeqCst) == 1 }).await;

    // The first due item belongs to that owner, the second does not.
    let due = server.clock.now().after(Duration::from_secs(60));
    let other = server.thread().await;
    let row = server.store.thread(&scope(), &other).await.unwrap().unwrap();
    let item = QueueItem {
        kind: QueueKind::ScheduledRun,
        key: "for the slow owner".to_owned(),
        due,
        tenant: alice().tenant,
        principal: alice().id,
        thread: Some(row.key),
        reference: Json::from_value(&serde_json::json!({"thread": slow_key.0, "run": 0})),
    };
    let batch = Batch {
        thread: row.key,
        epoch: row.epoch,
        expected_last: 1,
        frames: Vec::new(),
        changes: vec![Change::Offer(item)],
        blobs: Vec::new(),
        vital: false,
    };
    server.store.append(batch).await.unwrap();
    let mut scheduled = on(&server.thread().await, "say:done");
    scheduled.not_before = Some(due.after(Duration::from_millis(1)));
    let run = server.submit(scheduled).await;
    server.clock.advance(Duration::from_secs(61));
    // The worker sleeps by real time; a new item in the queue wakes it.
    let mut waking = on(&server.thread().await, "say:later");
    waking.not_before = Some(server.clock.now().after(Duration::from_secs(3600)));
    server.submit(waking).await;
    let ended = tokio::time::timeout(SOON, run.settled.wait()).await.expect("it waits for another");
    assert!(ended.unwrap().status.is_terminal());
    assert!(keeper.forgotten.lock().unwrap().is_empty());
    keeper.may_forget.add_permits(1);
}

#[tokio::test]
async fn threads_are_recovered_side_by_side() {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("t.db").display());
    let open = || async {
        let options = trilogue_store::Options::new(Arc::new(NoOriginals));
        trilogue_store::open(&url, options).await.unwrap()
    };
    let clock = Arc::new(HandClock::default());
    let start = |store: Arc<dyn Store>, keeper: Arc<Keeper>| {
        let agents: Vec<Arc<dyn Backend>> = vec![Arc::new(Scripted::new("script", true)), keeper];
        Runtime::start(Options::default(), store, agents, clock.clone(), Arc::new(NoOriginals))
    };
    let store = open().await;
    let runtime = start(Arc::clone(&store), Arc::new(Keeper::new(0))).await.unwrap();
    // A crash leaves threads that must be removed with their runs.
    const LEFT: usize = 4;
    for _ in 0..LEFT {
        let run = new_run("commit until-cancelled forever", ThreadChoice::Stateless);
        let run = runtime.submit(&alice(), run).await.unwrap().run;
        let (leaving, id) = (runtime.clone(), run.id.clone());
        tokio::spawn(async move { leaving.roll_back(&alice(), &id).await });
        until("that is durable", || async {
            let row = store.run(&scope(), &run.id).await.unwrap().unwrap();
            row.cancel_reason == Some(Code::RunRolledBack)
        })
        .await;
    }
    store.close().await.unwrap();
    drop((runtime, store));

    let keeper = Arc::new(Keeper::new(0));
    let starting = tokio::spawn(start(open().await, Arc::clone(&keeper)));
    let all = until("all are at it", || async { keeper.told.load(Ordering::SeqCst) == LEFT });
    tokio::time::timeout(SOON, all).await.expect("one waits for another");
    keeper.may_forget.add_permits(LEFT);
    starting.await.unwrap().unwrap();
}
