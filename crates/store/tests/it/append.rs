//! Numbering, the compare-and-swap, and batches that are stored whole or not at all.

use std::collections::HashSet;

use trilogue_domain::{Code, RunStatus};
use trilogue_store::Change;
use trilogue_store::rows::{QueueKind, RunRow};

use crate::harness::{
    Log, NODE, World, alice, code, contract, now, own_scope, run_id, tenant_scope, thread_id,
    thread_row,
};

contract!(
    numbers_have_no_gaps_and_events_read_back,
    keys_are_never_given_twice,
    a_batch_may_hold_several_frames_or_none,
    an_append_with_another_epoch_is_refused,
    an_append_that_expects_another_number_is_refused,
    a_thread_that_is_not_there_takes_nothing,
    a_thread_begins_at_number_zero_under_its_own_epoch,
    a_refused_batch_leaves_nothing,
    ids_are_unique_in_their_tenant_only,
    an_id_is_free_again_after_its_run,
    rows_are_written_over,
    a_take_over_raises_the_epoch,
    an_owner_begins_with_what_is_open,
    a_batch_that_makes_no_sense_is_refused,
);

async fn numbers_have_no_gaps_and_events_read_back(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await;
    log.step().say(Some(run.key), &["a", "b"]).commit().await.unwrap();
    log.step().say(None, &["c"]).commit().await.unwrap();
    log.step().say(Some(run.key), &["d"]).commit().await.unwrap();
    let texts = ["begin", "a", "b", "c", "d"].map(str::to_owned);
    assert_eq!(log.read().await, (1..).zip(texts).collect::<Vec<_>>());
    let of_run = crate::harness::read(&*world.store, &log.row, Some(run.key)).await;
    let texts = ["begin", "a", "b", "d"].map(str::to_owned);
    assert_eq!(of_run, (1..).zip(texts).collect::<Vec<_>>());
}

async fn keys_are_never_given_twice(world: World) {
    let store = &world.store;
    let threads: HashSet<_> = (0..100).map(|_| store.next_thread_key()).collect();
    let runs: HashSet<_> = (0..100).map(|_| store.next_run_key()).collect();
    let checkpoints: HashSet<_> = (0..100).map(|_| store.next_checkpoint_key()).collect();
    assert_eq!((threads.len(), runs.len(), checkpoints.len()), (100, 100, 100));
}

async fn a_batch_may_hold_several_frames_or_none(world: World) {
    let mut log = world.thread("t").await;
    let (one, two) = (log.run_row("one"), log.run_row("two"));
    let step = log.step().run(&one).run(&two);
    let step = step.say(Some(one.key), &["a"]).say(Some(two.key), &["b"]).say(None, &["c"]);
    step.commit().await.unwrap();
    assert_eq!(log.last, 3);
    log.step().commit().await.unwrap();
    assert_eq!(log.read().await.len(), 3);
    assert_eq!(log.frames(0, usize::MAX).await.len(), 3);
}

async fn an_append_with_another_epoch_is_refused(world: World) {
    let mut log = world.thread("t").await;
    for epoch in [0, 2] {
        let mut step = log.step().say(None, &["late"]);
        step.batch.epoch = epoch;
        assert_eq!(code(step.commit().await), Code::OwnershipLost);
    }
    assert_eq!(log.read().await, []);
    log.step().say(None, &["a"]).commit().await.unwrap();
}

async fn an_append_that_expects_another_number_is_refused(world: World) {
    let mut log = world.thread("t").await;
    log.step().say(None, &["a"]).commit().await.unwrap();
    log.last = 0;
    assert_eq!(code(log.step().say(None, &["b"]).commit().await), Code::OwnershipLost);
    log.last = 2;
    assert_eq!(code(log.step().say(None, &["b"]).commit().await), Code::OwnershipLost);
    log.last = 1;
    log.step().say(None, &["b"]).commit().await.unwrap();
    assert_eq!(log.read().await.len(), 2);
}

async fn a_thread_that_is_not_there_takes_nothing(world: World) {
    let mut log = world.thread("t").await;
    log.write([Change::RemoveThread]).await;
    log.last = 0;
    assert_eq!(code(log.step().say(None, &["a"]).commit().await), Code::OwnershipLost);
    assert_eq!(code(world.store.acquire(log.row.key, NODE).await), Code::ThreadNotFound);
}

async fn a_thread_begins_at_number_zero_under_its_own_epoch(world: World) {
    let row = thread_row(world.store.next_thread_key(), &alice(), "t");
    let mut log = Log::of(world.store.clone(), row.clone());
    let mut step = log.step().change(Change::Thread(row.clone()));
    step.batch.epoch = 2;
    assert_eq!(code(step.commit().await), Code::OwnershipLost);
    log.last = 1;
    let step = log.step().change(Change::Thread(row.clone()));
    assert_eq!(code(step.commit().await), Code::OwnershipLost);
    assert_eq!(world.store.thread(&alice(), &thread_id("t")).await.unwrap(), None);
    log.last = 0;
    log.step().change(Change::Thread(row)).say(None, &["a"]).commit().await.unwrap();
}

async fn a_refused_batch_leaves_nothing(world: World) {
    let mut taken = world.thread("taken").await;
    taken.start("r").await;
    let mut log = world.thread("t").await;
    let (fresh, clash) = (log.run_row("fresh"), log.run_row("r"));
    let message = log.message("m", fresh.key);
    let checkpoint = log.checkpoint("c", None);
    let interrupt = log.interrupt("i", &fresh);
    let used = log.idempotency("k", &fresh);
    let item = log.item(QueueKind::ScheduledRun, "fresh", 1);
    let mut row = log.row.clone();
    row.metadata = crate::harness::json(&serde_json::json!({"a": 1}));
    let step = log.step().say(Some(fresh.key), &["a"]).run(&fresh);
    let step = step
        .change(Change::Thread(row))
        .change(Change::Message(message.clone()))
        .change(Change::Checkpoint(checkpoint.clone()))
        .change(Change::Interrupt(Box::new(interrupt)))
        .change(Change::Idempotency(used.clone()))
        .change(Change::Offer(item))
        .run(&clash);
    assert_eq!(code(step.commit().await), Code::AlreadyExists);

    let (store, scope) = (&world.store, alice());
    assert_eq!(log.read().await, []);
    assert_eq!(store.thread(&scope, &thread_id("t")).await.unwrap(), Some(log.row.clone()));
    assert_eq!(store.run(&scope, &run_id("fresh")).await.unwrap(), None);
    assert_eq!(store.message(&scope, &thread_id("t"), &message.id).await.unwrap(), None);
    let found = store.checkpoint(&scope, &thread_id("t"), &checkpoint.id).await.unwrap();
    assert_eq!(found, None);
    assert_eq!(store.checkpoint_by_key(checkpoint.key).await.unwrap(), None);
    assert_eq!(store.idempotency(&used.key, now()).await.unwrap(), None);
    assert_eq!(store.next_due(QueueKind::ScheduledRun).await.unwrap(), None);
    let pending = store.acquire(log.row.key, NODE).await.unwrap().pending;
    assert_eq!(pending, []);
    log.step().say(None, &["a"]).commit().await.unwrap();
}

async fn ids_are_unique_in_their_tenant_only(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await;
    let raised = log.interrupt("i", &run);
    let checkpoint = log.checkpoint("c", None);
    log.write([Change::Interrupt(Box::new(raised)), Change::Checkpoint(checkpoint)]).await;

    let again = thread_row(world.store.next_thread_key(), &alice(), "t");
    assert_eq!(code(world.create(again).await), Code::AlreadyExists);
    let mut other = world.thread("u").await;
    let clash = other.run_row("r");
    assert_eq!(code(other.step().run(&clash).commit().await), Code::AlreadyExists);
    let second = other.start("s").await;
    let clash = other.interrupt("i", &second);
    let step = other.step().change(Change::Interrupt(Box::new(clash)));
    assert_eq!(code(step.commit().await), Code::AlreadyExists);
    let clash = log.checkpoint("c", None);
    let step = log.step().change(Change::Checkpoint(clash));
    assert_eq!(code(step.commit().await), Code::AlreadyExists);

    let mut foreign = world.thread_of(&tenant_scope("other"), "t").await;
    let run = foreign.start("r").await;
    let raised = foreign.interrupt("i", &run);
    foreign.write([Change::Interrupt(Box::new(raised))]).await;
}

async fn an_id_is_free_again_after_its_run(world: World) {
    let (mut log, run) = world.thread_with_ended_run("t", "r").await;
    let again = log.run_row("r");
    log.step().change(Change::RemoveRun(run.key)).run(&again).commit().await.unwrap();
    let found = world.store.run(&alice(), &run_id("r")).await.unwrap();
    assert_eq!(found, Some(again));
    log.write([Change::RemoveThread]).await;
    let mut log = world.thread("t").await;
    log.start("r").await;
}

async fn rows_are_written_over(world: World) {
    let mut log = world.thread_of(&own_scope("default", "alice"), "t").await;
    let mut run = log.start("r").await;
    run.status = RunStatus::Interrupted;
    run.last_run_number = 1;
    run.saved = Some(crate::harness::json(&serde_json::json!([1])));
    log.row.metadata = crate::harness::json(&serde_json::json!({"k": "v"}));
    log.row.updated_at = now();
    let row = log.row.clone();
    log.step().run(&run).change(Change::Thread(row.clone())).commit().await.unwrap();
    assert_eq!(world.store.run(&alice(), &run.id).await.unwrap(), Some(run.clone()));
    assert_eq!(world.store.run_by_key(run.key).await.unwrap(), Some(run));
    assert_eq!(world.store.thread(&alice(), &row.id).await.unwrap(), Some(row.clone()));
    assert_eq!(world.store.thread_by_key(row.key).await.unwrap(), Some(row));
}

async fn a_take_over_raises_the_epoch(world: World) {
    let mut log = world.thread("t").await;
    log.step().say(None, &["a"]).commit().await.unwrap();
    let same = world.store.acquire(log.row.key, NODE).await.unwrap();
    assert_eq!((same.thread.epoch, same.last), (1, 1));
    let taken = world.store.acquire(log.row.key, "another").await.unwrap();
    assert_eq!((taken.thread.epoch, taken.last), (2, 1));
    assert_eq!(taken.thread.owner_node, "another");
    assert_eq!(code(log.step().say(None, &["b"]).commit().await), Code::OwnershipLost);
    let stored = world.store.thread(&alice(), &log.row.id).await.unwrap().unwrap();
    assert_eq!(stored, taken.thread);
    log.row = taken.thread;
    log.step().say(None, &["c"]).commit().await.unwrap();
    let texts: Vec<_> = log.read().await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["a", "c"]);
}

async fn an_owner_begins_with_what_is_open(world: World) {
    let mut log = world.thread("t").await;
    let one = log.start("one").await;
    let two = log.start("two").await;
    let done = log.start("three").await;
    log.end(done).await;
    let mut first = log.interrupt("i-1", &one);
    let second = log.interrupt("i-2", &two);
    log.write([
        Change::Interrupt(Box::new(first.clone())),
        Change::Interrupt(Box::new(second.clone())),
    ])
    .await;
    // Between two boundaries the log grows without a write of the row.
    log.step().say(Some(one.key), &["more", "and more"]).commit().await.unwrap();
    let last = |row: &RunRow, last_run_number| RunRow { last_run_number, ..row.clone() };
    let acquired = world.store.acquire(log.row.key, NODE).await.unwrap();
    assert_eq!(acquired.open_runs, [last(&one, 3), last(&two, 1)]);
    assert_eq!(acquired.pending, [first.clone(), second.clone()]);
    assert_eq!(acquired.last, log.last);
    assert_eq!(world.store.open_threads().await.unwrap(), [log.row.key]);

    first.resolution = Some(trilogue_domain::Resolution::Cancelled);
    first.resolved_at = Some(now());
    log.write([Change::Interrupt(Box::new(first))]).await;
    log.end(one).await;
    let acquired = world.store.acquire(log.row.key, NODE).await.unwrap();
    assert_eq!(acquired.open_runs, [last(&two, 1)]);
    assert_eq!(acquired.pending, [second]);
    log.end(two).await;
    assert_eq!(world.store.open_threads().await.unwrap(), []);
}

async fn a_batch_that_makes_no_sense_is_refused(world: World) {
    let mut log = world.thread("t").await;
    let mut other = world.thread("u").await;
    let foreign = other.run_row("r");
    assert_eq!(code(log.step().run(&foreign).commit().await), Code::Internal);
    let frame = other.step().say(None, &["a"]).batch.frames.remove(0);
    let mut step = log.step();
    step.batch.frames.push(frame);
    assert_eq!(code(step.commit().await), Code::OwnershipLost);
    let mut step = log.step().say(None, &["a"]).say(None, &["b"]);
    step.batch.frames.swap(0, 1);
    assert_eq!(code(step.commit().await), Code::OwnershipLost);
    assert_eq!(log.read().await, []);
}
